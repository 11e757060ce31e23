/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a record to a running VM:
 *
 *   accelerator -> (its origin compared, digests checked) -> the template's files checked -> VMM process
 *   -> QMP, memory and devices loaded -> the agent's hello, dialled to vsock_521 -> identity -> running
 *
 * The first valid hello wins, its connection becomes the control connection, and the socket is removed: no process of a
 * user can run before the identity is given (of a restored VM they are frozen until then), so none can have said it. One
 * deadline covers all of it. A VM whose agent does not confirm its identity is ended.
 *
 * A parked VM wakes on the same way, from the accelerator on the first part left out, and is parked again where this one would be ended
 * (vm_wake.c).
 *
 * A VM of a pool turns aside after the hello: agent.warm, a connection for its first call, stopped, and waiting; it goes on
 * from there when it is taken.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/flatten.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm_boot_priv.h"
#include "host/hutchd/vm_disk.h"
#include "host/hutchd/vm_identity.h"
#include "host/hutchd/vmm_disk.h"
#include "host/hutchd/zygote.h"

static void destroy(struct deferred *d)
{
	free(container_of(d, struct vm_boot, deferred));
}

void vm_boot_abort(struct vm *vm)
{
	struct vm_boot *boot = vm->boot;

	if (!boot)
		return;
	vm->boot = NULL;
	event_del(&boot->deadline);
	vm_boot_unwatch(boot);
	if (boot->accel)
		accel_cancel(boot->accel);
	verify_cancel(boot->verify);
	template_check_cancel(boot->check);
	hello_close(&boot->port);
	guest_call_cancel(boot->call);
	guest_pool_cancel(&boot->ahead);
	guest_link_close(boot->control);
	vm_origin_free(&boot->origin);
	loop_defer(&vm->b->loop, &boot->deferred, destroy);
}

void vm_boot_stage(struct vm_boot *boot, const char *stage)
{
	snprintf(boot->stage, sizeof(boot->stage), "%s", stage);
}

static uint64_t left_ms(const struct vm_boot *boot)
{
	uint64_t spent = (clock_us() - boot->begun_us) / 1000;

	return spent < boot->timeout_ms ? boot->timeout_ms - spent : 1;
}

/* A new one is ended, one that was parked is so again. */
static void give_up(struct vm_boot *boot, const struct hutch_error *err)
{
	if (boot->wakes)
		vm_wake_failed(boot->vm, err);
	else
		vm_fail(boot->vm, err);
}

void vm_boot_fail(struct vm_boot *boot, enum hutch_error_kind kind, int errnum, const char *text)
{
	struct vm *vm = boot->vm;
	struct hutch_error err;

	hutch_error_clear(&err);
	hutch_error_set(&err, kind, errnum, "VM %s did not come up: %s", vm->r.id, text);
	memcpy(err.stage, boot->stage, sizeof(boot->stage));
	give_up(boot, &err);
}

/* Whether its template's kernel came to a hello; only that says something about an accelerator. */
static void tell_accel(const struct vm_boot *boot, bool well)
{
	const struct vm *vm = boot->vm;

	if (!boot->origin.im && vm->r.accel == ACCEL_TCG &&
	    (well || strcmp(boot->stage, "hello") == 0))
		accel_booted(vm->b->accel, boot->tpl.name, well);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct vm_boot *boot = arg;
	char text[128];

	(void)fd;
	(void)what;
	tell_accel(boot, false);
	snprintf(text, sizeof(text), "not ready after %llu ms, in stage %s",
		 (unsigned long long)boot->timeout_ms, boot->stage);
	vm_boot_fail(boot, HUTCH_E_BOOT_FAILED, ETIMEDOUT, text);
}

/* The image that it should have gone on from is at fault. */
void vm_boot_fail_origin(struct vm_boot *boot, const struct hutch_error *err)
{
	struct hutch_error named = *err;

	if (!boot->wakes)
		hutch_error_prefix(&named, "snapshot '%s'", boot->origin.im->name);
	give_up(boot, &named);
}

/* The deadline is in the record before anybody is told. What is not a user's is not adopted. */
static int record_success(struct vm *vm, bool wakes)
{
	if (wakes)
		vmm_renew(vm->vmm, vm_ttl_left(vm) + VM_GRACE_MS);
	else
		vm_ttl_set(vm, vm->r.ttl_ms);
	return vm->kind == VM_USERS ? vm_set_running(vm) : vm_save(vm);
}

static void succeed(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;
	struct guest_link *control = boot->control;

	boot->control = NULL;
	vm->r.total_us = clock_us() - boot->begun_us;
	if (record_success(vm, boot->wakes) < 0) {
		guest_link_close(control);
		vm_boot_fail(boot, HUTCH_E_IO, errno, "its record cannot be written");
		return;
	}
	vm_boot_abort(vm);
	vm->disk_grows = false; /* it has: a later wake has nothing to tell */
	vm_state_set(&vm->state, VM_RUNNING, vm->object);
	vm_heart_start(vm, control);
	guest_pool_open(&vm->pool, true);
	vm_notify_ready(vm);
	flatten_consider(vm);
}

static void on_identity(void *arg, const struct hutch_error *err, const uint8_t *payload,
			size_t len)
{
	struct vm_boot *boot = arg;
	struct hutch_error bad;
	char text[600];

	boot->call = NULL;
	if (boot->vm->boot != boot)
		return;
	hutch_error_clear(&bad);
	if (!err && vm_identity_confirmed(boot->vm, payload, len, &bad) < 0)
		err = &bad;
	if (!err) {
		boot->vm->r.identity_us = clock_us() - boot->hello_us;
		succeed(boot);
		return;
	}
	snprintf(text, sizeof(text), "identity%s%s: %.500s", err->stage[0] ? ", stage " : "",
		 err->stage, err->message);
	vm_boot_fail(boot, HUTCH_E_BOOT_FAILED, err->errnum, text);
}

void vm_boot_identity(struct vm_boot *boot)
{
	vm_boot_stage(boot, "identity");
	boot->call = vm_identity_give(boot->vm, boot->control, on_identity, boot);
	if (!boot->call)
		vm_boot_fail(boot, HUTCH_E_INTERNAL, errno, "cannot make its identity");
}

void vm_boot_fail_err(struct vm_boot *boot, const struct hutch_error *err)
{
	vm_boot_fail(boot, HUTCH_E_BOOT_FAILED, err->errnum, err->message);
}

static void on_control_ready(void *arg, struct guest_link *g)
{
	(void)arg;
	(void)g;
}

static void on_control_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct vm_boot *boot = arg;

	(void)g;
	boot->control = NULL;
	vm_boot_fail(boot, HUTCH_E_BOOT_FAILED, err->errnum, err->message);
}

static const struct link_owner control_owner = {.ready = on_control_ready, .lost = on_control_lost};

static void on_grown(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (!vm->boot)
		return;
	if (err)
		vm_boot_fail_err(vm->boot, err);
	else
		vm_boot_identity(vm->boot);
}

static void on_hello(void *arg, struct guest_link *g)
{
	struct vm_boot *boot = arg;
	struct vm *vm = boot->vm;

	boot->hello_us = clock_us();
	vm->r.hello_us = boot->hello_us - boot->up_us;
	snprintf(vm->r.agent_name, sizeof(vm->r.agent_name), "%s", g->hello.name);
	snprintf(vm->r.agent_boot_id, sizeof(vm->r.agent_boot_id), "%s", g->hello.boot_id);
	log_info(vm->object, "hello from %s, boot %s", g->hello.name, g->hello.boot_id);
	tell_accel(boot, true);
	vm_boot_unwatch(boot);
	if (vm->r.zygote)
		zygote_served(vm);
	guest_link_set_owner(g, &control_owner, boot);
	boot->control = g;
	hello_close(&boot->port);
	if (vm->kind == VM_POOLED)
		vm_boot_warm(boot);
	else if (vm->disk_grows)
		vmm_disk_grow(vm->vmm, vm->r.disk_top, (uint64_t)vm->r.disk_mib << 20, on_grown,
			      vm);
	else
		vm_boot_identity(boot);
}

void vm_boot_spawned(struct vm *vm)
{
	vm->r.step = vm->boot->wakes ? STEP_WAKING : STEP_BOOTING;
	if (vm_save(vm) < 0)
		vm_boot_fail(vm->boot, HUTCH_E_IO, errno, "its record cannot be written");
	else
		vm_boot_stage(vm->boot, vm->boot->origin.im ? "restore" : "qmp");
}

void vm_boot_up(struct vm *vm)
{
	struct vm_boot *boot = vm->boot;

	if (!boot->wakes)
		vm_state_set(&vm->state, VM_BOOTING, vm->object);
	vm_boot_stage(boot, "hello");
	boot->up_us = clock_us();
	hello_accept(&boot->port);
	vm_boot_watch(boot);
}

void vm_boot_failed(struct vm *vm, const struct hutch_error *err)
{
	struct hutch_error named = *err;

	tell_accel(vm->boot, false);
	hutch_error_prefix(&named, "VM %s did not come up", vm->r.id);
	if (!named.stage[0])
		memcpy(named.stage, vm->boot->stage, sizeof(vm->boot->stage));
	give_up(vm->boot, &named);
}

static void fill_config(struct vmm_config *c, const struct vm *vm, uint64_t left)
{
	*c = (struct vmm_config){.rundir_fd = vm->rundir_fd,
				 .tpl = &vm->boot->tpl,
				 .accel = vm->r.accel,
				 .memory_mib = vm->r.memory_mib,
				 .vcpus = vm->r.vcpus,
				 .cid = vm->r.cid,
				 .forkable = vm->kind == VM_ZYGOTE,
				 .start = vm->r.start,
				 .uid = vm->r.vmm_uid,
				 .deadline_ms = left + VM_GRACE_MS,
				 .qmp_timeout_ms = left};
	memcpy(c->id, vm->r.id, sizeof(c->id));
}

/* What it is given, with its disk. NULL with err. */
static struct vmm *start_with_disk(struct vm_boot *boot, struct vmm_config *config,
				   const struct image_fds *fds, struct hutch_error *err)
{
	struct vm *vm = boot->vm;
	struct vm_disk disk;
	struct vmm *vmm;

	if (!vm->r.disk_mib)
		return vmm_start(vm->b->loop.base, vm->b->launcher, config, &vm_vmm_callbacks, vm,
				 err);
	if (vm_disk_open(vm, &boot->tpl, boot->origin.im, fds, &disk, err) < 0)
		return NULL;
	config->disk = &disk.d;
	vmm = vmm_start(vm->b->loop.base, vm->b->launcher, config, &vm_vmm_callbacks, vm, err);
	vm_disk_close(&disk);
	return vmm;
}

static void spawn(struct vm_boot *boot, struct vmm_config *config, struct hutch_error *err)
{
	bool reload = false;
	struct vm *zygote = boot->restores ? NULL : zygote_for(boot->vm, &boot->origin, &reload);
	struct vmm_restore restore;
	struct image_fds fds;

	boot->vm->r.zygote = zygote != NULL;
	if (zygote) {
		config->fork_of = zygote->vmm;
		/* With memory and devices of the zygote, it is the next generation of that one. */
		if (!reload)
			boot->vm->r.generation = zygote->r.generation + 1;
	}
	if (boot->origin.im && (!zygote || reload)) {
		if (image_open(boot->origin.im, boot->origin.dirfd, &fds, err) < 0) {
			vm_boot_fail_origin(boot, err);
			hutch_error_clear(err);
			return;
		}
		restore = (struct vmm_restore){.base_fd = fds.memory,
					       .device_fd = fds.device,
					       .nlayers = fds.nlayers,
					       .layers = fds.layers};
		config->restore = &restore;
	}
	boot->vm->vmm = start_with_disk(boot, config, &fds, err);
	if (config->restore)
		image_close(&fds);
	config->restore = NULL;
}

/* The VMM inherits the image's descriptors: they are open only during its start. */
void vm_boot_spawn(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;
	struct vmm_config config;
	struct hutch_error err;

	hutch_error_clear(&err);
	vm_boot_stage(boot, "spawn");
	if (hello_open(&boot->port) < 0) {
		vm_boot_fail(boot, HUTCH_E_START_FAILED, errno, "cannot bind its hello port");
		return;
	}
	fill_config(&config, vm, left_ms(boot));
	spawn(boot, &config, &err);
	if (err.kind && !vm_boot_unforked(vm, err.message))
		vm_boot_failed(vm, &err);
}

struct vm_boot *vm_boot_new(struct vm *vm, uint64_t timeout_ms, struct hutch_error *err)
{
	struct vm_boot *boot = calloc(1, sizeof(*boot));

	if (!boot) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a VM");
		return NULL;
	}
	boot->vm = vm;
	boot->begun_us = clock_us();
	boot->timeout_ms = timeout_ms;
	boot->origin = VM_ORIGIN_NONE;
	hello_init(&boot->port, &vm->b->loop, vm->rundir_fd, vm->object, on_hello, boot);
	event_assign(&boot->deadline, vm->b->loop.base, -1, 0, on_deadline, boot);
	loop_timer(&boot->deadline, timeout_ms);
	vm->boot = boot;
	return boot;
}
