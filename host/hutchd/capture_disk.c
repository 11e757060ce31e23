/* SPDX-License-Identifier: Apache-2.0 */
/* What a capture does about a writable disk. */
#include "host/hutchd/capture_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm_disk.h"
#include "host/hutchd/vmm_disk.h"

static bool parks(const struct capture *c)
{
	return c->mode == CAPTURE_LAST && c->vm->kind == VM_USERS;
}

int capture_disk_begin(struct capture *c, struct hutch_error *err)
{
	const struct vm_record *r = &c->vm->r;

	if (!r->disk_mib || c->mode == CAPTURE_PAUSE)
		return 0;
	/* What stands still since it was frozen last has written nothing; what is parked goes on with the same top. */
	c->disk.wanted = !parks(c) && !(c->was_paused && vm_disk_is_empty(c->vm));
	c->disk.busy = c->disk.wanted || c->vm->disk_unsure;
	if (c->im->disk_layers + (r->disk_top - r->disk_first) + c->disk.wanted <=
	    VMM_MAX_DISK_LAYERS)
		return 0;
	return hutch_error_set(err, HUTCH_E_BUSY, 0,
			       "VM %s: its disk has %u layers, the most there can be", r->id,
			       VMM_MAX_DISK_LAYERS);
}

static void next(struct vm *vm, const struct hutch_error *err)
{
	struct capture *c = vm->capture;

	if (c)
		c->disk.next(c, err);
}

static void on_prepared(void *arg, const struct hutch_error *err)
{
	next(arg, err);
}

static void prepare(struct capture *c)
{
	struct vm *vm = c->vm;
	struct hutch_error err;
	int top, fresh;

	if (vm_disk_make_next(vm, &top, &fresh) < 0) {
		hutch_error_clear(&err);
		hutch_error_set(&err, HUTCH_E_IO, errno, "its disk: %s", strerror(errno));
		next(vm, &err);
		return;
	}
	c->disk.prepared = true;
	/* What a broker before this one, or a capture while it was paused, left. */
	vmm_disk_settle(vm->vmm, vm->r.disk_top);
	vmm_disk_prepare(vm->vmm, vm->r.disk_top, top, fresh, on_prepared, vm);
	fd_close(&top);
	fd_close(&fresh);
}

/* An earlier broker died in between. */
static void on_seen(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;
	struct capture *c = vm->capture;

	if (!c)
		return;
	if (err) {
		next(vm, err);
		return;
	}
	vm->disk_unsure = false;
	if (vm->disk_seen == vm->r.disk_top + 1) {
		log_info(vm->object, "its disk was frozen when a broker died");
		vm->r.disk_top++;
		vm_save(vm);
	} else {
		vmm_disk_drop(vm->vmm, vm->r.disk_top + 1);
	}
	if (c->disk.wanted)
		prepare(c);
	else
		next(vm, NULL);
}

void capture_disk_prepare(struct capture *c, capture_disk_done *done)
{
	c->disk.next = done;
	if (c->vm->disk_unsure)
		vmm_disk_query(c->vm->vmm, &c->vm->disk_seen, on_seen, c->vm);
	else
		prepare(c);
}

static void on_frozen(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (!err && vm->capture) {
		vm->capture->disk.frozen = true;
		vm->r.disk_top++;
	}
	next(vm, err);
}

void capture_disk_freeze(struct capture *c, capture_disk_done *done)
{
	c->disk.next = done;
	vmm_disk_freeze(c->vm->vmm, c->vm->r.disk_top, on_frozen, c->vm);
}

void capture_disk_settle(struct capture *c)
{
	struct vm *vm = c->vm;

	if (!c->disk.prepared || !vm->vmm)
		return;
	c->disk.prepared = false;
	vmm_disk_settle(vm->vmm, vm->r.disk_top);
	if (c->disk.frozen) {
		vmm_disk_settle(vm->vmm, vm->r.disk_top - 1);
		return;
	}
	vmm_disk_drop(vm->vmm, vm->r.disk_top + 1);
	vm_disk_drop_next(vm);
}

static void add_bytes(struct capture *c)
{
	char name[IMAGE_FILE_NAME];
	struct stat st;

	image_file_name(IMAGE_FILE_DISK_LAYERS + c->im->disk_layers - 1, name);
	if (fstatat(c->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		c->bytes += (uint64_t)st.st_blocks * 512;
}

int capture_disk_link(struct capture *c, struct hutch_error *err)
{
	if (!c->vm->r.disk_mib)
		return 0;
	if (vm_disk_link(c->vm, !parks(c), c->dirfd, c->im, err) < 0)
		return -1;
	if (c->disk.frozen)
		add_bytes(c);
	if (image_save(c->im, c->dirfd, false) == 0)
		return 0;
	return hutch_error_set(err, HUTCH_E_IO, errno, "cannot write the manifest: %s",
			       strerror(errno));
}
