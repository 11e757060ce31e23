/* SPDX-License-Identifier: Apache-2.0 */
/* Boot one VM under KVM in a directory of its own and see whether its agent says hello. */
#ifndef HUTCH_HOST_ACCEL_PROBE_H
#define HUTCH_HOST_ACCEL_PROBE_H

#include <event2/event.h>
#include <stdbool.h>

#include "host/hutchd/launcher.h"
#include "host/hutchd/template.h"

struct accel_probe;

/*
 * Called once, from the loop, after at most 12 s, when nothing of the VM is left. conclusive: it
 * tells something about KVM, not only that this VM could not be started.
 */
typedef void accel_probe_fn(void *arg, bool works, bool conclusive, const char *reason);

/* NULL with err when not even the directory could be made. Uses <state>/probe. */
struct accel_probe *accel_probe_start(struct event_base *base, struct launcher *launcher,
				      int state_dir_fd, const struct template *tpl,
				      accel_probe_fn *done, void *arg, struct hutch_error *err);
/* Kill the VM and forget it; done is not called. */
void accel_probe_free(struct accel_probe *p);

#endif
