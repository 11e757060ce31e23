/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parking: a VM is captured and its VMM ended; what was captured takes the place of its image.
 *
 *   step       on the disk                                    a broker that dies here
 *   capturing  image/ (none where it was booted), capture/    lets the VM go on; capture/ is removed
 *   parking    image/ or half of it, capture/ whole           ends the VMM, and goes on as below
 *   parked     image/, which is what was captured
 *
 * The commit is the record's step "parking": before it the VM goes on as if nothing had been, after it there is no way back. The
 * VMM is gone before image/ is touched, and image/ is gone before capture/ takes its name; so capture/, while it is
 * there at step parking, is what counts.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"

struct vm_park {
	struct deferred deferred;
	struct vm *vm;
	bool by_idle;
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct vm_park, deferred));
}

bool vm_rests(const struct vm *vm)
{
	return vm->state == VM_PARKED && !vm->vmm && !vm->boot;
}

/* Those who came meanwhile are served by what it is now. */
static void serve(struct vm *vm)
{
	if (!vm_is_awaited(vm))
		return;
	if (vm->state == VM_RUNNING)
		vm_notify_ready(vm);
	else
		vm_rouse(vm);
}

static void stays(struct vm *vm, const struct hutch_error *err)
{
	log_warn(vm->object, "not parked: %s", err->message);
	vm_idle_begin(vm);
	vm_notify_not_parked(vm, err);
	serve(vm);
}

/* Its connections end; calls that were sent may or may not have been done. */
static void close_guest(struct vm *vm)
{
	struct hutch_error err;

	vm_idle_stop(vm);
	vm_heart_stop(vm);
	guest_link_close(vm->held);
	vm->held = NULL;
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_OUTCOME_UNKNOWN, 0, "VM %s was parked", vm->r.id);
	guest_pool_end(&vm->pool, &err);
}

/* It was captured for nothing. */
static void undo(struct capture *k)
{
	bool was_paused = k->was_paused;
	struct vm *vm = k->vm;
	struct hutch_error err;

	hutch_error_clear(&err);
	capture_undo(k);
	if (!was_paused && vm_thaw_start(vm, &err) < 0)
		vm_end(vm, err.message);
}

static int commit(struct vm *vm, const struct capture *k, bool by_idle)
{
	const struct vm_record before = vm->r;

	vm->r.step = STEP_PARKING;
	vm->r.asleep_ms = clock_unix_ms();
	vm->r.asleep_by_idle = by_idle;
	if (k->im->nlayers <= vm->r.layers)
		vm->r.layers = 0; /* it shares none any more */
	if (vm_save(vm) == 0)
		return 0;
	vm->r = before;
	return -1;
}

static void on_captured(void *arg, const struct hutch_error *err, struct capture *k)
{
	struct vm_park *park = arg;
	struct vm *vm = park->vm;
	struct hutch_error failure;

	vm->park = NULL;
	loop_defer(&vm->b->loop, &park->deferred, destroy);
	if (vm->state >= VM_STOPPING)
		return; /* its waiters are told when it is dead */
	hutch_error_clear(&failure);
	if (err)
		failure = *err;
	else if (park->by_idle && vm_is_awaited(vm))
		hutch_error_set(&failure, HUTCH_E_BUSY, 0, "VM %s is in use again", vm->r.id);
	else if (commit(vm, k, park->by_idle) < 0)
		hutch_error_set(&failure, HUTCH_E_IO, errno, "VM %s: cannot write its record: %s",
				vm->r.id, strerror(errno));
	if (failure.kind) {
		if (!err)
			undo(k);
		stays(vm, &failure);
		return;
	}
	capture_leave(k);
	vm_state_set(&vm->state, VM_PARKED, vm->object);
	close_guest(vm);
	vmm_kill(vm->vmm);
}

int vm_park(struct vm *vm, bool by_idle, struct hutch_error *err)
{
	struct vm_park *park = vm->park;

	if (vm->state == VM_PARKED && !vm->boot)
		return 0;
	if (vm->state == VM_PARKED)
		return hutch_error_set(err, HUTCH_E_BUSY, 0, "VM %s is being woken", vm->r.id);
	if (park) {
		park->by_idle &= by_idle;
		return 0;
	}
	park = calloc(1, sizeof(*park));
	if (!park)
		return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
	park->vm = vm;
	park->by_idle = by_idle;
	if (!capture_start(vm, CAPTURE_LAST, on_captured, park, err)) {
		free(park);
		return -1;
	}
	vm->capture->by_idle = by_idle;
	vm->park = park;
	return 0;
}

/* Again and again with the same outcome. -1 with errno. */
static int take_capture(struct vm *vm)
{
	struct stat st;

	if (fstatat(vm->rundir_fd, VM_CAPTURE_DIR, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	if (tree_remove(vm->rundir_fd, VM_IMAGE_DIR) < 0)
		return -1;
	return renameat(vm->rundir_fd, VM_CAPTURE_DIR, vm->rundir_fd, VM_IMAGE_DIR);
}

/* Where the step stays "parking", the wake tries again. */
int vm_park_settle(struct vm *vm)
{
	if (vm->r.step == STEP_PARKING && take_capture(vm) < 0) {
		log_errno(LOG_LEVEL_ERROR, vm->object, "what was captured cannot take its place");
		return -1;
	}
	vm->r.step = STEP_PARKED;
	return vm_save(vm);
}

void vm_park_rest(struct vm *vm)
{
	struct hutch_error *failure = vm->failure;

	vm_forget_vmm(vm);
	vm_park_settle(vm);
	log_info(vm->object, "parked, %llu ms left", (unsigned long long)vm_ttl_left(vm));
	vm->failure = NULL;
	vm_notify_parked(vm);
	if (failure)
		vm_notify_not_ready(vm, failure);
	else
		serve(vm);
	free(failure);
}

int vm_park_adopt(struct vm *vm, struct hutch_error *err)
{
	struct image *im;
	int fd, rc;

	vm_state_set(&vm->state, VM_PARKED, vm->object);
	vm_park_rest(vm);
	fd = dir_open(vm->rundir_fd, VM_IMAGE_DIR);
	if (fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "what was parked: %s",
				       strerror(errno));
	im = image_load(fd, err);
	fd_close(&fd);
	rc = im ? 0 : -1;
	free(im);
	return rc;
}
