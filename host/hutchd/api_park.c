/* SPDX-License-Identifier: Apache-2.0 */
/* vm.park and vm.set_idle. */
#include "host/hutchd/api.h"
#include "host/hutchd/log.h"

void api_vm_park(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;

	(void)call;
	hutch_error_clear(&err);
	if (vm->state >= VM_STOPPING)
		vm_died_error(vm, &err);
	else
		vm_park(vm, false, &err);
	if (err.kind)
		client_error(c, &err);
	else
		api_wait_parked(c, vm);
}

void api_vm_set_idle(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;
	struct vm_idle idle = {.pause_after_ms = 0};

	hutch_error_clear(&err);
	if (vm->state >= VM_STOPPING)
		vm_died_error(vm, &err);
	else
		vm_set_idle_decode(&idle, call->params, call->params_len, &err);
	if (err.kind) {
		client_error(c, &err);
		return;
	}
	vm->r.idle = idle;
	vm_idle_begin(vm);
	vm_save(vm);
	log_info(vm->object, "idle policy set by %s: pause after %llu ms, park after %llu ms",
		 c->object, (unsigned long long)idle.pause_after_ms,
		 (unsigned long long)idle.park_after_ms);
	client_reply_empty(c);
}
