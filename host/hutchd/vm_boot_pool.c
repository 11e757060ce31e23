/* SPDX-License-Identifier: Apache-2.0 */
/* A VM of a pool: from the hello to where it waits, and on from there when it is taken. */
#include <errno.h>

#include "host/hutchd/log.h"
#include "host/hutchd/vm_boot_priv.h"
#include "host/hutchd/warm_pool.h"

/*
 * A VM of a pool waits from here on, without a deadline but its lease. It is not stopped: its users' processes are frozen, its
 * agent is held, and an idle guest costs less than letting it go on would cost whoever takes it.
 */
static void rest(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;

	guest_pool_shut(&vm->pool);
	event_del(&boot->deadline);
	vm_boot_stage(boot, "pool");
	warm_pool_ready(vm);
}

static void on_ahead(struct guest_waiter *w, struct guest_link *g)
{
	struct vm_boot *boot = container_of(w, struct vm_boot, ahead);

	guest_link_move(g, &boot->vm->pool.idle);
	rest(boot);
}

/* Then its first call connects. */
static void on_no_ahead(struct guest_waiter *w, const struct hutch_error *err)
{
	struct vm_boot *boot = container_of(w, struct vm_boot, ahead);

	log_debug(boot->vm->object, "no connection ahead: %s", err->message);
	if (boot->vm->boot == boot)
		rest(boot);
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

void vm_boot_give(struct vm *vm, uint64_t timeout_ms)
{
	struct vm_boot *boot = vm->boot;

	boot->begun_us = boot->hello_us = clock_us();
	boot->timeout_ms = timeout_ms;
	loop_timer(&boot->deadline, timeout_ms);
	vm_boot_identity(boot);
}
