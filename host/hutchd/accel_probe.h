/* SPDX-License-Identifier: Apache-2.0 */
/* Boot one VM under KVM in a directory of its own and see whether its agent says hello. */
#ifndef HUTCH_HOST_ACCEL_PROBE_H
#define HUTCH_HOST_ACCEL_PROBE_H

#include <event2/event.h>
#include <stdbool.h>

#include "host/hutchd/launcher.h"
#include "host/hutchd/template.h"

struct accel_probe;

enum accel_probed {
	PROBE_WORKS,	 /* a guest said hello */
	PROBE_KVM_FAILS, /* the VMM says that KVM refused it */
	PROBE_GUEST_FAILS, /* there was a VMM with KVM, and no hello: for want of KVM, or of a guest that boots */
	PROBE_NOT_TRIED /* no VMM ran */
};

/* Called once, from the loop, after at most 12 s, when nothing of the VM is left. */
typedef void accel_probe_fn(void *arg, enum accel_probed result, const char *reason);

/* NULL with err when not even the directory could be made. Uses <state>/probe. */
struct accel_probe *accel_probe_start(struct event_base *base, struct launcher *launcher,
				      int state_dir_fd, const struct template *tpl,
				      accel_probe_fn *done, void *arg, struct hutch_error *err);
/* Kill the VM and forget it; done is not called. */
void accel_probe_free(struct accel_probe *p);

#endif
