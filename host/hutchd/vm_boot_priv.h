/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a boot share: vm_boot.c (from the VMM on), vm_boot_start.c (what comes before it), vm_boot_pool.c. */
#ifndef HUTCH_HOST_VM_BOOT_PRIV_H
#define HUTCH_HOST_VM_BOOT_PRIV_H

#include "host/hutchd/hello.h"
#include "host/hutchd/template_check.h"
#include "host/hutchd/verify.h"
#include "host/hutchd/vm.h"

struct vm_boot {
	struct deferred deferred;
	struct vm *vm;
	struct template tpl;
	struct vm_origin origin;
	bool wakes; /* it was parked */
	uint64_t begun_us, up_us, hello_us, timeout_ms;
	struct event deadline, watch;
	uint64_t seen_cpu_ms; /* of the VMM, at the watchdog's last look */
	bool watched;	      /* watch is in use, or was */
	bool restores;	      /* it is to be no zygote's */
	bool again;	      /* its VMM is being ended, to be started anew */
	struct accel_wait *accel;
	struct verify *verify;
	struct template_check *check;
	struct hello_port port;
	struct guest_link *control; /* the one that said hello; the VM's from running on */
	struct guest_call *call;    /* identity */
	struct guest_waiter ahead; /* a pool's VM: for a connection that its first call will find */
	char stage[16];
};

/* NULL with err. Its deadline runs. */
struct vm_boot *vm_boot_new(struct vm *vm, uint64_t timeout_ms, struct hutch_error *err);
void vm_boot_stage(struct vm_boot *boot, const char *stage);
/* It does not come up. The boot is over, and freed after this callback. */
void vm_boot_fail(struct vm_boot *boot, enum hutch_error_kind kind, int errnum, const char *text);
void vm_boot_fail_err(struct vm_boot *boot, const struct hutch_error *err);
/* The image that it should have gone on from is at fault. */
void vm_boot_fail_origin(struct vm_boot *boot, const struct hutch_error *err);
/* All is checked: start the VMM. */
void vm_boot_spawn(struct vm_boot *boot);
/* vm_boot_watch.c: from now on, unless it was before; and no more. */
void vm_boot_watch(struct vm_boot *boot);
void vm_boot_unwatch(struct vm_boot *boot);
/* It said hello: give it its identity, and it runs. */
void vm_boot_identity(struct vm_boot *boot);
/* One of a pool said hello: it is made ready to be taken. */
void vm_boot_warm(struct vm_boot *boot);

#endif
