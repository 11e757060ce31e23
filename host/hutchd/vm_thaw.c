/* SPDX-License-Identifier: Apache-2.0 */
/* From paused to running: the VMM goes on, then the agent, which sets the clock before the user's processes run. */
#include <errno.h>
#include <stdlib.h>

#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"
#include "host/hutchd/vm_identity.h"

#define RESUME_MS 10000u /* for the agent to answer; then it is looked for anew */

struct vm_thaw {
	struct deferred deferred;
	struct vm *vm;
	struct guest_call *resume;
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct vm_thaw, deferred));
}

void vm_thaw_abort(struct vm *vm)
{
	struct vm_thaw *t = vm->thaw;

	if (!t)
		return;
	vm->thaw = NULL;
	guest_call_cancel(t->resume);
	loop_defer(&vm->b->loop, &t->deferred, destroy);
}

static void rejoin(struct vm *vm)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	if (vm_rejoin_start(vm, true, VM_ADOPT_MS, &err) < 0)
		vm_end(vm, err.message);
}

static void on_resumed(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct vm_thaw *t = arg;
	struct vm *vm = t->vm;

	(void)payload;
	(void)len;
	t->resume = NULL;
	if (vm->thaw != t)
		return;
	guest_link_close(vm->held);
	vm->held = NULL;
	vm_thaw_abort(vm);
	if (err) {
		log_warn(vm->object, "snapshot.resume: %s", err->message);
		rejoin(vm);
		return;
	}
	vm_set_running(vm);
	vm_state_set(&vm->state, VM_RUNNING, vm->object);
	vm_notify_ready(vm);
}

static void on_cont(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (err && vm->state < VM_STOPPING)
		vm_end(vm, err->message);
}

int vm_thaw_start(struct vm *vm, struct hutch_error *err)
{
	struct vm_thaw *t;

	if (vm->thaw || vm->rejoin)
		return 0;
	vm->thaw_wanted = !vm->up;
	if (vm->thaw_wanted)
		return 0;
	t = calloc(1, sizeof(*t));
	if (!t)
		return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
	t->vm = vm;
	vm->thaw = t;
	vmm_cont(vm->vmm, on_cont, vm);
	if (vm->held)
		t->resume = vm_identity_resume(vm, vm->held, RESUME_MS, on_resumed, t);
	if (!t->resume) {
		vm_thaw_abort(vm);
		rejoin(vm);
	}
	return 0;
}
