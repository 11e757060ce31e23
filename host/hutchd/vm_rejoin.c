/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent of a VM that was running before this broker, or before it lost its connections, is found again.
 *
 * It is dialled, has to be the one of the record (boot id, generation), and to answer a ping. One that may be held
 * (snapshot.prepare) accepts no connection, but says hello on the host's port since the connection that held it is gone; it is told
 * to go on there. Any process of the guest could say that hello if the agent is not held: it gains nothing but to be
 * told so, for that connection is closed, and only a dialled one counts.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/hello.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"
#include "host/hutchd/vm_identity.h"

struct vm_rejoin {
	struct deferred deferred;
	struct vm *vm;
	struct event deadline;
	struct hello_port port;
	struct guest_link *hello; /* the one that is being told to go on */
	struct guest_call *resume;
	struct guest_waiter waiter;
	struct guest_link *control; /* dialled */
	struct guest_call *ping;
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct vm_rejoin, deferred));
}

void vm_rejoin_abort(struct vm *vm)
{
	struct vm_rejoin *r = vm->rejoin;

	if (!r)
		return;
	vm->rejoin = NULL;
	event_del(&r->deadline);
	hello_close(&r->port);
	guest_call_cancel(r->resume);
	guest_link_close(r->hello);
	guest_pool_cancel(&r->waiter);
	guest_call_cancel(r->ping);
	guest_link_close(r->control);
	loop_defer(&vm->b->loop, &r->deferred, destroy);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct vm_rejoin *r = arg;

	(void)fd;
	(void)what;
	vm_end(r->vm, "its agent did not answer again");
}

static void succeed(struct vm_rejoin *r)
{
	struct vm *vm = r->vm;
	struct guest_link *control = r->control;

	r->control = NULL;
	vm_set_running(vm);
	vm_rejoin_abort(vm);
	if (vm->state != VM_RUNNING)
		vm_state_set(&vm->state, VM_RUNNING, vm->object);
	vm_heart_start(vm, control);
	guest_pool_open(&vm->pool, true);
	vm_notify_ready(vm);
}

static void on_pong(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct vm_rejoin *r = arg;

	(void)payload;
	(void)len;
	r->ping = NULL;
	if (r->vm->rejoin != r)
		return;
	if (err) {
		vm_end(r->vm, err->message);
		return;
	}
	log_info(r->vm->object, "the agent answers");
	succeed(r);
}

static void on_control_ready(void *arg, struct guest_link *g)
{
	(void)arg;
	(void)g;
}

static void on_control_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct vm_rejoin *r = arg;

	(void)g;
	r->control = NULL;
	vm_end(r->vm, err->message);
}

static const struct link_owner control_owner = {.ready = on_control_ready, .lost = on_control_lost};

/* An agent of another boot, or one with another identity, is not the one that the record is about. */
static void check(struct vm_rejoin *r, struct guest_link *g)
{
	static const struct msg_call ping = {.method = "ping"};
	struct vm *vm = r->vm;

	guest_link_move(g, NULL);
	guest_link_set_owner(g, &control_owner, r);
	r->control = g;
	if (g->hello.generation != vm->r.generation ||
	    strcmp(g->hello.boot_id, vm->r.agent_boot_id) != 0) {
		vm_end(vm, "another agent answers than the recorded one");
		return;
	}
	r->ping = guest_call_start(&vm->pool, g, &ping, 0, on_pong, r);
	if (!r->ping)
		vm_end(vm, "out of memory for a ping");
}

static void on_link(struct guest_waiter *w, struct guest_link *g)
{
	check(container_of(w, struct vm_rejoin, waiter), g);
}

static void dial(struct vm_rejoin *r)
{
	struct guest_link *g = guest_pool_get(&r->vm->pool, &r->waiter);

	if (g)
		check(r, g);
}

/* Until the deadline. */
static void on_no_link(struct guest_waiter *w, const struct hutch_error *err)
{
	struct vm_rejoin *r = container_of(w, struct vm_rejoin, waiter);

	if (r->vm->rejoin != r || err->kind == HUTCH_E_VM_DIED)
		return;
	log_warn(r->vm->object, "%s", err->message);
	dial(r);
}

static void on_resumed(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct vm_rejoin *r = arg;

	(void)payload;
	(void)len;
	r->resume = NULL;
	if (err)
		log_warn(r->vm->object, "snapshot.resume: %s", err->message);
	guest_link_close(r->hello);
	r->hello = NULL;
}

static void on_hello_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct vm_rejoin *r = arg;

	(void)g;
	(void)err;
	r->hello = NULL;
}

static const struct link_owner hello_owner = {.ready = on_control_ready, .lost = on_hello_lost};

static void on_hello(void *arg, struct guest_link *g)
{
	struct vm_rejoin *r = arg;

	if (r->hello || !g->hello.held) {
		guest_link_close(g);
		return;
	}
	log_info(r->vm->object, "the agent is held: it is told to go on");
	guest_link_set_owner(g, &hello_owner, r);
	r->hello = g;
	r->resume = vm_identity_resume(r->vm, g, 0, on_resumed, r);
}

int vm_rejoin_start(struct vm *vm, bool held, uint64_t timeout_ms, struct hutch_error *err)
{
	struct vm_rejoin *r = calloc(1, sizeof(*r));

	if (!r)
		return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a VM");
	r->vm = vm;
	r->waiter.got = on_link;
	r->waiter.failed = on_no_link;
	hello_init(&r->port, &vm->b->loop, vm->rundir_fd, vm->object, on_hello, r);
	event_assign(&r->deadline, vm->b->loop.base, -1, 0, on_deadline, r);
	loop_timer(&r->deadline, timeout_ms);
	vm->rejoin = r;
	if (held && hello_open(&r->port) == 0)
		hello_accept(&r->port);
	guest_pool_open(&vm->pool, false);
	dial(r);
	return 0;
}

int vm_adopt(struct vm *vm, struct hutch_error *err)
{
	bool paused = vm->r.step == STEP_PAUSED;
	struct vmm_config config = {.rundir_fd = vm->rundir_fd,
				    .deadline_ms = VM_ADOPT_MS + VM_GRACE_MS,
				    .qmp_timeout_ms = VM_ADOPT_MS,
				    .leave_stopped = paused};

	memcpy(config.id, vm->r.id, sizeof(config.id));
	vm->disk_unsure = vm->r.disk_mib && vm->r.step == STEP_CAPTURING;
	tree_remove(vm->rundir_fd, VM_CAPTURE_DIR);
	vm->vmm = vmm_adopt(vm->b->loop.base, vm->b->launcher, &config, &vm->r.process,
			    &vm_vmm_callbacks, vm, err);
	if (!vm->vmm)
		return -1;
	vm_state_set(&vm->state, paused ? VM_PAUSED : VM_RUNNING, vm->object);
	vm_idle_begin(vm);
	return paused ? 0 : vm_rejoin_start(vm, vm->r.step == STEP_CAPTURING, VM_ADOPT_MS, err);
}
