/* SPDX-License-Identifier: Apache-2.0 */
/* A VM of a pool: from the hello to where it waits, and on from there when it is taken. */
#include <errno.h>

#include "host/hutchd/log.h"
#include "host/hutchd/vm_boot_priv.h"
#include "host/hutchd/warm_pool.h"

/* A VM of a pool waits from here on, stopped, without a deadline but its lease. */
static void on_stopped(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (!vm->boot)
		return;
	if (err) {
		vm_boot_fail_err(vm->boot, err);
		return;
	}
	event_del(&vm->boot->deadline);
	vm_boot_stage(vm->boot, "pool");
	warm_pool_ready(vm);
}

static void stop(struct vm_boot *boot)
{
	guest_pool_shut(&boot->vm->pool);
	vmm_stop(boot->vm->vmm, on_stopped, boot->vm);
}

static void on_ahead(struct guest_waiter *w, struct guest_link *g)
{
	struct vm_boot *boot = container_of(w, struct vm_boot, ahead);

	guest_link_move(g, &boot->vm->pool.idle);
	stop(boot);
}

/* Then its first call connects. */
static void on_no_ahead(struct guest_waiter *w, const struct hutch_error *err)
{
	struct vm_boot *boot = container_of(w, struct vm_boot, ahead);

	log_debug(boot->vm->object, "no connection ahead: %s", err->message);
	if (boot->vm->boot == boot)
		stop(boot);
}

static void connect_ahead(struct vm_boot *boot)
{
	struct guest_pool *p = &boot->vm->pool;

	boot->ahead.got = on_ahead;
	boot->ahead.failed = on_no_ahead;
	guest_pool_open(p, false);
	guest_pool_get(p, &boot->ahead); /* it has none yet */
}

static void on_warm(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct vm_boot *boot = arg;

	(void)payload;
	(void)len;
	boot->call = NULL;
	if (boot->vm->boot != boot)
		return;
	if (err)
		vm_boot_fail_err(boot, err);
	else
		connect_ahead(boot);
}

void vm_boot_warm(struct vm_boot *boot)
{
	static const struct msg_call call = {.method = "agent.warm"};

	vm_boot_stage(boot, "warm");
	boot->call = guest_call_start(&boot->vm->pool, boot->control, &call, 0, on_warm, boot);
	if (!boot->call)
		vm_boot_fail(boot, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
}

static void on_cont(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (err && vm->boot)
		vm_boot_fail_err(vm->boot, err);
}

/* The identity is on its way before the guest goes on, and waits for it in the socket. */
void vm_boot_give(struct vm *vm, uint64_t timeout_ms)
{
	struct vm_boot *boot = vm->boot;

	boot->begun_us = boot->hello_us = clock_us();
	boot->timeout_ms = timeout_ms;
	loop_timer(&boot->deadline, timeout_ms);
	vmm_cont(vm->vmm, on_cont, vm);
	vm_boot_identity(boot);
}
