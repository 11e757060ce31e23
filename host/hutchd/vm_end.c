/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a VM, and waiting for it or for its readiness. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"
#include "host/hutchd/warm_pool.h"
#include "host/hutchd/zygote.h"

#define CONSOLE_TAIL 1200u

void vm_died_error(const struct vm *vm, struct hutch_error *err)
{
	hutch_error_clear(err);
	hutch_error_set(err, HUTCH_E_VM_DIED, 0, "VM %s ended: %s", vm->r.id,
			vm->reason[0] ? vm->reason : "unknown");
}

void vm_abort_all(struct vm *vm)
{
	vm_boot_abort(vm);
	vm_rejoin_abort(vm);
	vm_thaw_abort(vm);
	capture_abort(vm);
	vm_idle_stop(vm); /* after all that may begin its time anew */
	guest_link_close(vm->held);
	vm->held = NULL;
	vm_heart_stop(vm);
}

/* Nobody gets anything from it any more. */
static void close_guest_side(struct vm *vm)
{
	struct hutch_error err;

	if (vm->kind == VM_ZYGOTE)
		zygote_lost(vm);
	vm_abort_all(vm);
	vm_died_error(vm, &err);
	guest_pool_end(&vm->pool, &err);
}

void vm_end(struct vm *vm, const char *reason)
{
	if (vm->state >= VM_STOPPING)
		return;
	snprintf(vm->reason, sizeof(vm->reason), "%.500s", reason);
	log_info(vm->object, "ends: %s", vm->reason);
	vm_state_set(&vm->state, VM_STOPPING, vm->object);
	if (vm->kind == VM_POOLED)
		warm_pool_lost(vm);
	vm->r.step = STEP_STOPPING;
	vm_save(vm);
	close_guest_side(vm);
	if (vm->vmm)
		vmm_kill(vm->vmm);
	else
		vm_bury(vm);
}

void vm_fail(struct vm *vm, const struct hutch_error *err)
{
	char tail[CONSOLE_TAIL];

	if (vm->state >= VM_STOPPING)
		return;
	vm->failure = malloc(sizeof(*vm->failure));
	if (vm->failure) {
		*vm->failure = *err;
		if (vm->vmm && vmm_console_tail(vm->vmm, tail, sizeof(tail)) > 0)
			hutch_error_set(vm->failure, err->kind, err->errnum,
					"%.700s; the console ends with:\n%s", err->message, tail);
		memcpy(vm->failure->stage, err->stage, sizeof(err->stage));
	}
	vm_end(vm, err->message);
}

static void on_tomb(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	vm_free(arg);
}

/* It stays for vm.info and vm.wait; one that never ran frees its name and key for the next attempt. */
static void entomb(struct vm *vm)
{
	const struct timeval tv = {.tv_sec = VM_TOMB_MS / 1000};
	struct broker *b = vm->b;

	TAILQ_REMOVE(&b->vms, vm, next);
	b->vm_count--;
	if (vm->failure)
		vm->r.key[0] = '\0';
	TAILQ_INSERT_TAIL(&b->tombs, vm, next);
	b->tomb_count++;
	event_assign(&vm->tomb, b->loop.base, -1, 0, on_tomb, vm);
	event_add(&vm->tomb, &tv);
	if (b->tomb_count > VM_TOMBS)
		vm_free(TAILQ_FIRST(&b->tombs));
}

static void notify_end(struct vm *vm)
{
	struct vm_waiter *w;
	struct hutch_error err, died;

	hutch_error_clear(&err);
	if (vm->failure)
		err = *vm->failure;
	else
		hutch_error_set(&err, HUTCH_E_CANCELED, 0,
				"VM %s was ended before it was ready: %s", vm->r.id, vm->reason);
	vm_died_error(vm, &died);
	while ((w = TAILQ_FIRST(&vm->waiters)) != NULL) {
		vm_unwait(w);
		w->done(w, w->for_ready ? &err : w->for_park ? &died : NULL);
	}
}

void vm_bury(struct vm *vm)
{
	struct broker *b = vm->b;

	if (vm->state == VM_DEAD)
		return;
	close_guest_side(vm);
	if (vm->vmm)
		vmm_free(vm->vmm);
	vm->vmm = NULL;
	fd_close(&vm->rundir_fd);
	if (tree_remove(b->vms_fd, vm->r.id) < 0)
		log_errno(LOG_LEVEL_ERROR, vm->object, "cannot remove its run directory");
	vm_state_set(&vm->state, VM_DEAD, vm->object);
	log_info(vm->object, "gone: %s", vm->reason);
	entomb(vm);
	vm_ttl_rearm(b);
	notify_end(vm);
}

bool vm_was_ready(const struct vm *vm)
{
	return vm->state >= VM_RUNNING && vm->state < VM_STOPPING;
}

static bool is_so(const struct vm *vm, const struct vm_waiter *w)
{
	if (vm->state == VM_DEAD)
		return true;
	if (w->for_ready)
		return vm->state == VM_RUNNING && !vm_is_asleep(vm);
	return w->for_park && vm_rests(vm);
}

bool vm_wait(struct vm *vm, struct vm_waiter *w)
{
	if (is_so(vm, w))
		return false;
	w->vm = vm;
	TAILQ_INSERT_TAIL(&vm->waiters, w, next);
	return true;
}

void vm_unwait(struct vm_waiter *w)
{
	if (!w->vm)
		return;
	TAILQ_REMOVE(&w->vm->waiters, w, next);
	w->vm = NULL;
}

bool vm_is_awaited(const struct vm *vm)
{
	const struct vm_waiter *w;

	TAILQ_FOREACH(w, &vm->waiters, next)
		if (w->for_ready)
			return true;
	return false;
}

/* A waiter's callback may add or remove others: start over after each. */
static void notify(struct vm *vm, bool ready, const struct hutch_error *err)
{
	struct vm_waiter *w;

	do {
		TAILQ_FOREACH(w, &vm->waiters, next)
			if (ready ? w->for_ready : w->for_park)
				break;
		if (w) {
			vm_unwait(w);
			w->done(w, err);
		}
	} while (w);
}

void vm_notify_ready(struct vm *vm)
{
	vm_idle_begin(vm);
	notify(vm, true, NULL);
}

void vm_notify_parked(struct vm *vm)
{
	notify(vm, false, NULL);
}

void vm_notify_not_ready(struct vm *vm, const struct hutch_error *err)
{
	notify(vm, true, err);
}

void vm_notify_not_parked(struct vm *vm, const struct hutch_error *err)
{
	notify(vm, false, err);
}
