/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The idle policy of a VM: paused, and parked, when nobody has used it for a while.
 *
 * What the broker sees itself is counted: calls that need the guest, and what is done to the VM. When a time is over the agent is
 * asked, once, whether a process of a user lives; where one does the whole time begins anew. One timer a VM, and only where it has a
 * policy: a call moves used_ms and leaves the timer, which looks how much is left when it fires.
 */
#include "host/hutchd/capture.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"

#define ASK_MS 5000u

/* After how long unused something is to be done with it, as it is now; 0: nothing. */
static uint64_t due_after(const struct vm *vm)
{
	const struct vm_idle *i = &vm->r.idle;

	if (vm->kind != VM_USERS)
		return 0;
	if (vm->state == VM_PAUSED)
		return vm->r.asleep_by_idle ? i->park_after_ms : 0;
	if (vm->state != VM_RUNNING)
		return 0;
	if (i->pause_after_ms && (!i->park_after_ms || i->pause_after_ms < i->park_after_ms))
		return i->pause_after_ms;
	return i->park_after_ms;
}

static bool is_used(const struct vm *vm)
{
	return vm->calls > 0 || vm->capture || vm->thaw || vm->rejoin || !vm->up;
}

/* For what is left of the time; false: it is over, or there is none. */
static bool arm_rest(struct vm *vm)
{
	uint64_t after = due_after(vm), unused = clock_boottime_ms() - vm->used_ms;

	if (unused < after)
		loop_timer(&vm->idle_timer, after - unused);
	return unused < after;
}

void vm_idle_begin(struct vm *vm)
{
	vm->used_ms = clock_boottime_ms();
	event_del(&vm->idle_timer);
	arm_rest(vm);
}

static void on_paused(void *arg, const struct hutch_error *err, struct capture *k)
{
	struct vm *vm = arg;

	if (vm->state >= VM_STOPPING)
		return;
	if (err) {
		log_warn(vm->object, "not paused by its idle policy: %s", err->message);
		vm_idle_begin(vm);
		if (vm->state == VM_RUNNING && vm_is_awaited(vm))
			vm_notify_ready(vm);
		return;
	}
	log_info(vm->object, "paused by its idle policy");
	if (!arm_rest(vm) && due_after(vm))
		loop_timer(&vm->idle_timer, 1);
	capture_end(k);
}

/* It is idle, and has been for long enough. */
static void put_to_sleep(struct vm *vm)
{
	uint64_t park = vm->r.idle.park_after_ms;
	struct hutch_error err;
	struct capture *k;

	hutch_error_clear(&err);
	if (park && clock_boottime_ms() - vm->used_ms >= park) {
		vm_park(vm, true, &err);
	} else {
		k = capture_start(vm, CAPTURE_PAUSE, on_paused, vm, &err);
		if (k)
			k->by_idle = true;
	}
	if (!err.kind)
		return;
	log_warn(vm->object, "its idle policy: %s", err.message);
	vm_idle_begin(vm);
}

/* Agents that do not say whether a process lives say how many execs do. */
static bool says_busy(const uint8_t *payload, size_t len)
{
	struct hutch_error err;
	struct mp_reader r;
	struct mp_doc doc;
	uint64_t execs = 0;
	bool busy = false;

	hutch_error_clear(&err);
	if (mp_doc_parse(&doc, payload, len, &err) < 0)
		return true;
	mp_reader_init(&r, &doc, &doc.root, "agent.info", &err);
	mp_get_bool(&r, "busy", &busy);
	mp_get_uint(&r, "execs", 0, HUTCH_MAX_UINT, &execs);
	busy |= execs > 0 || !mp_ok(&r);
	mp_doc_free(&doc);
	return busy;
}

static void on_info(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct vm *vm = arg;

	vm->idle_ask = NULL;
	if (err)
		log_debug(vm->object, "is it idle? %s", err->message);
	if (err || is_used(vm) || says_busy(payload, len))
		vm_idle_begin(vm);
	else if (!arm_rest(vm) && due_after(vm)) /* none came and went meanwhile */
		put_to_sleep(vm);
}

static void ask(struct vm *vm)
{
	static const struct msg_call info = {.method = "agent.info"};

	vm->idle_ask = guest_call_start(&vm->pool, NULL, &info, ASK_MS, on_info, vm);
	if (!vm->idle_ask)
		vm_idle_begin(vm);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct vm *vm = arg;

	(void)fd;
	(void)what;
	if (!due_after(vm) || vm->b->stopping || vm->idle_ask)
		return;
	if (is_used(vm))
		vm->used_ms = clock_boottime_ms();
	if (arm_rest(vm))
		return;
	if (vm->state == VM_PAUSED)
		put_to_sleep(vm);
	else
		ask(vm);
}

void vm_idle_init(struct vm *vm)
{
	event_assign(&vm->idle_timer, vm->b->loop.base, -1, 0, on_timer, vm);
}

void vm_idle_stop(struct vm *vm)
{
	event_del(&vm->idle_timer);
	guest_call_cancel(vm->idle_ask);
	vm->idle_ask = NULL;
}

void vm_use(struct vm *vm)
{
	vm->calls++;
}

void vm_unuse(struct vm *vm)
{
	vm->calls--;
	vm->used_ms = clock_boottime_ms();
}
