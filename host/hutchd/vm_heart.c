/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control connection and the heartbeat over it: a ping every VM_HEARTBEAT_S. An agent that misses
 * VM_HEARTBEATS_MISSED in a row is called silent, in the log and in vm.info, and is not killed: under load or in a stopped
 * guest it may come back, and its TTL ends it in any case. A lost control connection is dialled again.
 */
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"

static void connect_control(struct vm *vm);

static void on_control_ready(void *arg, struct guest_link *g)
{
	(void)arg;
	(void)g;
}

static void on_control_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct vm *vm = arg;

	(void)g;
	vm->control = NULL;
	log_warn(vm->object, "control connection: %s", err->message);
	connect_control(vm);
}

static const struct link_owner control_owner = {.ready = on_control_ready, .lost = on_control_lost};

static void set_control(struct vm *vm, struct guest_link *g)
{
	guest_link_move(g, NULL);
	guest_link_set_owner(g, &control_owner, vm);
	vm->control = g;
}

static void on_control_got(struct guest_waiter *w, struct guest_link *g)
{
	set_control(container_of(w, struct vm, control_waiter), g);
}

/* The next beat tries again. */
static void on_control_failed(struct guest_waiter *w, const struct hutch_error *err)
{
	struct vm *vm = container_of(w, struct vm, control_waiter);

	log_debug(vm->object, "no control connection: %s", err->message);
}

static void connect_control(struct vm *vm)
{
	struct guest_link *g;

	if (vm->state != VM_RUNNING || vm->control || vm->control_waiter.pool)
		return;
	g = guest_pool_get(&vm->pool, &vm->control_waiter);
	if (g)
		set_control(vm, g);
}

static void on_pong(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct vm *vm = arg;

	(void)payload;
	(void)len;
	vm->ping = NULL;
	if (err) {
		log_warn(vm->object, "heartbeat: %s", err->message);
		if (vm->control && vm->control->state == LINK_DEAD)
			vm->control = NULL;
		connect_control(vm);
		return;
	}
	if (vm->silent)
		log_info(vm->object, "the agent answers again");
	vm->missed = 0;
	vm->silent = false;
}

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
	static const struct msg_call ping = {.method = "ping"};
	struct vm *vm = arg;

	(void)fd;
	(void)what;
	if (vm->state == VM_PAUSED)
		return;
	if (vm->control && !vm->ping) {
		vm->ping = guest_call_start(&vm->pool, vm->control, &ping, 0, on_pong, vm);
		return;
	}
	if (++vm->missed == VM_HEARTBEATS_MISSED) {
		vm->silent = true;
		log_warn(vm->object, "the agent has missed %u heartbeats", vm->missed);
	}
	connect_control(vm);
}

void vm_heart_init(struct vm *vm)
{
	event_assign(&vm->heart, vm->b->loop.base, -1, EV_PERSIST, on_beat, vm);
	vm->control_waiter.got = on_control_got;
	vm->control_waiter.failed = on_control_failed;
}

void vm_heart_start(struct vm *vm, struct guest_link *control)
{
	const struct timeval tv = {.tv_sec = VM_HEARTBEAT_S};

	set_control(vm, control);
	event_add(&vm->heart, &tv);
}

void vm_heart_stop(struct vm *vm)
{
	event_del(&vm->heart);
	guest_pool_cancel(&vm->control_waiter);
	guest_call_cancel(vm->ping);
	vm->ping = NULL;
	guest_link_close(vm->control);
	vm->control = NULL;
}
