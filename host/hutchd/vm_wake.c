/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waking. A parked VM is restored from its own image, in the same run directory, by the way that a new one goes (vm_boot.c); it has its TTL,
 * CID and machine id still, and gets the next generation. While it wakes it is called parked, and whoever waits for it is told
 * once. What goes wrong ends the VMM, and the VM is parked as before: the image is only ever read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/vm.h"

bool vm_is_asleep(const struct vm *vm)
{
	return vm->state == VM_PARKED || vm->park || (vm->capture && vm->capture->by_idle) ||
	       (vm->state == VM_PAUSED && vm->r.asleep_by_idle);
}

/* NULL with err. */
static const struct image *open_image(struct vm *vm, struct vm_origin *o, struct hutch_error *err)
{
	*o = VM_ORIGIN_NONE;
	if (vm_park_settle(vm) < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno, "what was parked cannot be used: %s",
				strerror(errno));
		return NULL;
	}
	o->dirfd = dir_open(vm->rundir_fd, VM_IMAGE_DIR);
	if (o->dirfd < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno, VM_IMAGE_DIR ": %s", strerror(errno));
		return NULL;
	}
	o->im = image_load(o->dirfd, err);
	return o->im && snapshot_fits(vm->b, o->im, vm->r.accel, err) == 0 ? o->im : NULL;
}

/* What a next broker has to know before anything is started: a number that no earlier start in this directory had. */
static int record_begin(struct vm *vm, const struct image *im, struct hutch_error *err)
{
	vm->r.step = STEP_WAKING;
	if (vm->r.generation <= im->generation)
		vm->r.generation = im->generation;
	vm->r.generation++;
	vm_next_start(vm);
	if (vm_save(vm) == 0)
		return 0;
	vm->r.step = STEP_PARKED;
	return hutch_error_set(err, HUTCH_E_IO, errno, "cannot write its record: %s",
			       strerror(errno));
}

static void wake(struct vm *vm)
{
	struct vm_origin origin = VM_ORIGIN_NONE;
	const struct image *im;
	struct hutch_error err;
	struct template tpl;

	hutch_error_clear(&err);
	if (vm_check_start(vm->b, &err) < 0 ||
	    limits_check_wake(vm->b, vm->r.owner_uid, vm->r.memory_mib, vm->r.vcpus, &err) < 0 ||
	    !(im = open_image(vm, &origin, &err)) || record_begin(vm, im, &err) < 0) {
		vm_origin_free(&origin);
		hutch_error_prefix(&err, "VM %s stays parked", vm->r.id);
		log_warn(vm->object, "not woken: %s", err.message);
		vm_notify_not_ready(vm, &err);
		return;
	}
	log_info(vm->object, "wakes, generation %llu", (unsigned long long)vm->r.generation);
	snapshot_template(im, &tpl);
	vm_boot_wake(vm, &tpl, &origin, &err);
}

void vm_wake_failed(struct vm *vm, const struct hutch_error *err)
{
	log_warn(vm->object, "not woken: %s", err->message);
	if (!vm->failure)
		vm->failure = malloc(sizeof(*vm->failure));
	if (vm->failure)
		*vm->failure = *err;
	vm_boot_abort(vm);
	if (vm->vmm)
		vmm_kill(vm->vmm);
	else
		vm_park_rest(vm);
}

/* Stopped with its agent held. */
static void rouse_paused(struct vm *vm)
{
	struct hutch_error err;

	if (vm->capture || vm->thaw || vm->rejoin || vm->thaw_wanted)
		return; /* after that */
	hutch_error_clear(&err);
	if (!vm->r.asleep_by_idle)
		hutch_error_set(&err, HUTCH_E_STATE, 0, "VM %s is paused: vm.resume lets it go on",
				vm->r.id);
	else
		vm_thaw_start(vm, &err);
	if (err.kind)
		vm_notify_not_ready(vm, &err);
}

void vm_rouse(struct vm *vm)
{
	if (vm->park)
		return; /* looked at when that is done */
	if (vm->state == VM_PAUSED)
		rouse_paused(vm);
	else if (vm_rests(vm))
		wake(vm);
}
