/* SPDX-License-Identifier: Apache-2.0 */
/* A boot before its VMM is started: the accelerator, what it goes on from, the digests of that and of the template's files. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/vm_boot_priv.h"

static void on_checked(void *arg, const struct hutch_error *err)
{
	struct vm_boot *boot = arg;

	boot->check = NULL;
	if (err)
		vm_boot_failed(boot->vm, err);
	else
		vm_boot_spawn(boot);
}

/* The template's files that the VMM will use are looked at first; those of a fork's parent are in use. */
static void start_checked(struct vm_boot *boot)
{
	unsigned files = boot->origin.im ? TEMPLATE_CHECK_ROOT : TEMPLATE_CHECK_ALL;
	struct broker *b = boot->vm->b;
	struct hutch_error err;

	if (boot->origin.trusted ||
	    template_check_is_known(b->verified, &boot->tpl, b->templates_fd, files)) {
		vm_boot_spawn(boot);
		return;
	}
	hutch_error_clear(&err);
	vm_boot_stage(boot, "digest");
	boot->check = template_check_start(b->verified, b->worker, &boot->tpl, b->templates_fd,
					   files, on_checked, boot, &err);
	if (!boot->check)
		vm_boot_failed(boot->vm, &err);
}

/* What its memory is made of, for the record. */
static void go_on_from_origin(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;
	const struct image *im = boot->origin.im;

	vm->r.generation = im->generation + 1;
	vm->r.layers = im->nlayers;
	vm->r.secrets |= im->secrets;
	vm->image_made_ms = im->created_ms;
	vm->disk_grows = vm->r.disk_mib > im->disk_mib;
	start_checked(boot);
}

/* The template can be booted instead. */
static void use_cold(struct vm *vm, struct vm_origin *origin, const char *reason)
{
	log_info(vm->object, "the template's snapshot is not used: %s", reason);
	snprintf(vm->r.cold_reason, sizeof(vm->r.cold_reason), "%.250s", reason);
	vm->r.boot_mode = BOOT_COLD;
	vm->r.generation = 1;
	vm_origin_free(origin);
	tree_remove(vm->rundir_fd, VM_IMAGE_DIR);
}

static void origin_unusable(struct vm_boot *boot, const struct hutch_error *err)
{
	if (!boot->origin.optional) {
		vm_boot_fail_origin(boot, err);
		return;
	}
	use_cold(boot->vm, &boot->origin, err->message);
	start_checked(boot);
}

static void on_verified(void *arg, const struct hutch_error *err, uint64_t bytes)
{
	struct vm_boot *boot = arg;

	(void)bytes;
	boot->verify = NULL;
	if (err)
		origin_unusable(boot, err);
	else
		go_on_from_origin(boot);
}

static void check_origin(struct vm_boot *boot)
{
	struct broker *b = boot->vm->b;
	struct vm_origin *o = &boot->origin;
	struct hutch_error err;

	hutch_error_clear(&err);
	vm_boot_stage(boot, "snapshot");
	if (snapshot_fits(b, o->im, boot->vm->r.accel, &err) < 0) {
		origin_unusable(boot, &err);
		return;
	}
	if (verify_is_known(b->verified, o->im, o->dirfd)) {
		go_on_from_origin(boot);
		return;
	}
	vm_boot_stage(boot, "digest");
	boot->verify = verify_start(b->verified, b->worker, o->im, o->dirfd, VERIFY_UNKNOWN,
				    on_verified, boot, &err);
	if (!boot->verify)
		origin_unusable(boot, &err);
}

static void on_accel(void *arg, enum vmm_accel verdict, const char *reason)
{
	struct vm_boot *boot = arg;

	boot->accel = NULL;
	boot->vm->r.accel = verdict;
	snprintf(boot->vm->r.accel_reason, sizeof(boot->vm->r.accel_reason), "%.250s", reason);
	if (boot->origin.im)
		check_origin(boot);
	else
		start_checked(boot);
}

/* Has it ended at once? Nobody waits for it yet, and nobody would be told. */
static int ended(const struct vm *vm, struct hutch_error *err)
{
	if (vm->state != VM_DEAD)
		return 0;
	if (vm->failure)
		*err = *vm->failure;
	else
		vm_died_error(vm, err);
	return -1;
}

int vm_boot_start(struct vm *vm, const struct template *tpl, struct vm_origin *origin,
		  uint64_t timeout_ms, struct hutch_error *err)
{
	struct vm_boot *boot;

	if (vm_save(vm) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno,
				       "cannot write the record of VM %s: %s", vm->r.id,
				       strerror(errno));
	if (origin->im && vm_origin_take(origin, vm->rundir_fd, err) < 0) {
		if (!origin->optional)
			return hutch_error_prefix(err, "snapshot '%s'", origin->im->name), -1;
		use_cold(vm, origin, err->message);
		hutch_error_clear(err);
	}
	boot = vm_boot_new(vm, timeout_ms, err);
	if (!boot)
		return -1;
	boot->tpl = *tpl;
	boot->origin = *origin;
	*origin = VM_ORIGIN_NONE;
	if (boot->origin.trusted) {
		go_on_from_origin(boot);
		return ended(vm, err);
	}
	vm_boot_stage(boot, "accel");
	boot->accel = accel_resolve(vm->b->accel, tpl, on_accel, boot);
	if (boot->accel)
		return 0;
	return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM,
			       "cannot find out the accelerator for VM %s", vm->r.id);
}

void vm_boot_wake(struct vm *vm, const struct template *tpl, struct vm_origin *origin,
		  struct hutch_error *err)
{
	struct vm_boot *boot = vm_boot_new(vm, VM_WAKE_MS, err);

	if (!boot) {
		vm_origin_free(origin);
		vm_wake_failed(vm, err);
		return;
	}
	boot->wakes = true;
	boot->tpl = *tpl;
	boot->origin = *origin;
	*origin = VM_ORIGIN_NONE;
	vm_boot_spawn(boot);
}
