/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do a template's files have the digests that its build recorded? Looked into when they are first used on a boot of the
 * host, and remembered as those of images are (verified.h): else it costs a stat of each. A template without recorded
 * digests is taken as it is.
 */
#ifndef HUTCH_HOST_TEMPLATE_CHECK_H
#define HUTCH_HOST_TEMPLATE_CHECK_H

#include "host/hutchd/template.h"
#include "host/hutchd/verified.h"
#include "host/hutchd/worker.h"

#define TEMPLATE_CHECK_ALL  (1u << TEMPLATE_KERNEL | 1u << TEMPLATE_INITRAMFS | 1u << TEMPLATE_ROOT)
#define TEMPLATE_CHECK_ROOT (1u << TEMPLATE_ROOT) /* what is restored uses it alone */

struct template_check;

/* Is nothing left to check of these files? */
bool template_check_is_known(const struct verified *v, const struct template *t, int templates_fd,
			     unsigned files);
/*
 * In the worker thread. done, from the loop: err NULL, or HUTCH_E_STATE, stage "digest", path the file that differs;
 * HUTCH_E_IO.
 */
typedef void template_check_done(void *arg, const struct hutch_error *err);
struct template_check *template_check_start(struct verified *v, struct worker *w,
					    const struct template *t, int templates_fd,
					    unsigned files, template_check_done *done, void *arg,
					    struct hutch_error *err);
/* done is not called. NULL is harmless. */
void template_check_cancel(struct template_check *c);

#endif
