/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of images: taken when one is published, checked when it is first used on a boot of the host. What was checked (or
 * taken) is remembered (verified.h); a file that is shared by several images is checked once.
 */
#ifndef HUTCH_HOST_VERIFY_H
#define HUTCH_HOST_VERIFY_H

#include "host/hutchd/image.h"
#include "host/hutchd/loop.h"
#include "host/hutchd/verified.h"
#include "host/hutchd/worker.h"

struct verify;

/* Is nothing left to check? No file is read. */
bool verify_is_known(const struct verified *v, const struct image *im, int dirfd);

enum verify_mode {
	VERIFY_UNKNOWN, /* files whose digest was not checked yet */
	VERIFY_ALL,
	VERIFY_TAKE, /* take those that are missing in im->digests */
};
/*
 * In the worker thread. done, from the loop: err NULL, or HUTCH_E_STATE, stage "digest", path the file that differs;
 * HUTCH_E_IO. bytes: what was read. im lives until then; dirfd is borrowed during the call.
 */
typedef void verify_done(void *arg, const struct hutch_error *err, uint64_t bytes);
struct verify *verify_start(struct verified *v, struct worker *w, struct image *im, int dirfd,
			    enum verify_mode mode, verify_done *done, void *arg,
			    struct hutch_error *err);
/* done is not called; im may go at once. NULL is harmless. */
void verify_cancel(struct verify *j);

#endif
