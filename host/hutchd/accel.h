/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM where a guest really boots on it, else TCG. Opening /dev/kvm proves nothing (nested or
 * filtered hosts open it and then run no guest), so the first time a VM of the template is booted
 * under KVM and has to say hello within 8 s; the verdict is written to <state>/accel.json with its
 * reason, the host's kernel release, boot id and the VMM's version, and is used as long as these
 * are the same. A guest that did not come, where nothing says that KVM refused it, may have failed
 * for its own reasons: that is written down once the same template has booted without KVM, and
 * forgotten when it does not.
 */
#ifndef HUTCH_HOST_ACCEL_H
#define HUTCH_HOST_ACCEL_H

#include <event2/event.h>

#include "host/hutchd/vmm.h"

struct accel;
struct accel_wait;

/* mode: what the configuration asks for. state_dir_fd is borrowed. */
struct accel *accel_create(struct event_base *base, struct launcher *launcher, int state_dir_fd,
			   enum vmm_accel mode);
void accel_destroy(struct accel *a);
/* What stands for /dev/kvm; borrowed. For tests. */
void accel_set_kvm_device(struct accel *a, const char *path);

typedef void accel_done_fn(void *arg, enum vmm_accel verdict, const char *reason);
/*
 * Ask which accelerator to use; done is called once, from the loop, after at most 12 s (callers
 * that come while a probe runs wait for the same one). A returned handle cancels the wait:
 * accel_cancel.
 */
struct accel_wait *accel_resolve(struct accel *a, const struct template *tpl, accel_done_fn *done,
				 void *arg);
void accel_cancel(struct accel_wait *w);
/* A VM of that template was booted from its kernel under TCG, and its agent said hello, or did not. */
void accel_booted(struct accel *a, const char *template_name, bool well);

/* For broker.info: mode, verdict (ACCEL_AUTO = not known yet), reason, unix time in ms. */
struct accel_status {
	enum vmm_accel mode, verdict;
	const char *reason;
	uint64_t checked_ms;
};
struct accel_status accel_status(const struct accel *a);

#endif
