/* SPDX-License-Identifier: Apache-2.0 */
/* From a CALL to its handler. A new method is one row. */
#include "host/hutchd/dispatch.h"

#include <string.h>

#include "host/hutchd/api.h"
#include "host/hutchd/log.h"
#include "host/hutchd/relay.h"
#include "host/hutchd/rouse.h"
#include "host/hutchd/share.h"

static const struct method methods[] = {
	{"ping", METHOD_EITHER, METHOD_REPEAT, api_ping},

	{"broker.info", METHOD_BROKER, 0, api_broker_info},
	{"broker.limits", METHOD_BROKER, 0, api_broker_limits},
	{"vm.create", METHOD_BROKER, 0, api_vm_create},
	{"vm.info", METHOD_BROKER, METHOD_NEEDS_VM | METHOD_SHARED, api_vm_info},
	{"vm.list", METHOD_BROKER, 0, api_vm_list},
	{"vm.wait", METHOD_BROKER, METHOD_NEEDS_VM | METHOD_SHARED, api_vm_wait},
	{"vm.kill", METHOD_BROKER, 0, api_vm_kill}, /* needs one unless "all" */
	{"vm.set_ttl", METHOD_BROKER, METHOD_NEEDS_VM, api_vm_set_ttl},
	{"vm.fork", METHOD_BROKER, METHOD_NEEDS_VM | METHOD_WAKES, api_vm_fork},
	{"vm.pause", METHOD_BROKER, METHOD_NEEDS_VM | METHOD_WAKES, api_vm_pause},
	{"vm.resume", METHOD_BROKER, METHOD_NEEDS_VM | METHOD_WAKES, api_vm_resume},
	{"vm.park", METHOD_BROKER, METHOD_NEEDS_VM, api_vm_park},
	{"vm.set_idle", METHOD_BROKER, METHOD_NEEDS_VM, api_vm_set_idle},
	{"snapshot.create", METHOD_BROKER, METHOD_NEEDS_VM | METHOD_WAKES, api_snapshot_create},
	{"snapshot.info", METHOD_BROKER, 0, api_snapshot_info},
	{"snapshot.list", METHOD_BROKER, 0, api_snapshot_list},
	{"snapshot.delete", METHOD_BROKER, 0, api_snapshot_delete},
	{"snapshot.verify", METHOD_BROKER, 0, api_snapshot_verify},
	{"pool.set", METHOD_BROKER, 0, api_pool_set},
	{"pool.list", METHOD_BROKER, 0, api_pool_list},
	{"template.snapshot", METHOD_BROKER, 0, api_template_snapshot},
	{"template.list", METHOD_BROKER, 0, api_template_list},
	{"template.remove", METHOD_BROKER, 0, api_template_remove},

	{"exec.start", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT | METHOD_START, NULL},
	{"exec.attach", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT | METHOD_ATTACH, NULL},
	{"exec.wait", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT, NULL},
	{"exec.list", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT, NULL},
	{"exec.kill", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT, NULL},
	{"exec.resize", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT, NULL},
	{"exec.close_stdin", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT, NULL},
	{"agent.info", METHOD_RELAY, METHOD_NEEDS_VM | METHOD_REPEAT, NULL},
	{"agent.", METHOD_RELAY, METHOD_PREFIX | METHOD_REFUSED, NULL},
	{"exec.", METHOD_RELAY, METHOD_PREFIX | METHOD_NEEDS_VM, NULL},
	{"fs.", METHOD_RELAY, METHOD_PREFIX | METHOD_NEEDS_VM, NULL},
};

const struct method *method_find(const char *name)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		const struct method *m = &methods[i];

		if (m->flags & METHOD_PREFIX ? strncmp(name, m->name, strlen(m->name)) == 0
					     : strcmp(name, m->name) == 0)
			return m;
	}
	return NULL;
}

/* Told once for each VM that a connection turns to: the lines of its calls name the client. */
static void note_member(struct client *c, const struct vm *vm)
{
	if (c->member_of == vm->r.cid)
		return;
	c->member_of = vm->r.cid;
	log_info(vm->object, "used by %s, as a member of group %u", c->object,
		 (unsigned)vm->r.share_gid);
}

/* One that the client may see, or that is shared with it and may be used so. */
static struct vm *find_vm(struct client *c, const struct method *m, const struct msg_call *call,
			  struct hutch_error *err)
{
	struct vm *vm = vm_find(c->b, c->uid, call->vm, err);

	if (vm || err->kind != HUTCH_E_NOT_FOUND)
		return vm;
	vm = vm_find_id(c->b, call->vm);
	if (!vm || !share_allows(c, vm))
		return NULL;
	hutch_error_clear(err);
	if (m->where == METHOD_BROKER && !(m->flags & METHOD_SHARED)) {
		hutch_error_set(err, HUTCH_E_DENIED, 0,
				"%s: VM %s is shared; that is its owner's, uid %u", call->method,
				vm->r.id, (unsigned)vm->r.owner_uid);
		return NULL;
	}
	note_member(c, vm);
	return vm;
}

/* What the row asks for, before anything acts. */
static int check(struct client *c, const struct method *m, const struct msg_call *call,
		 struct vm **vm, struct hutch_error *err)
{
	*vm = NULL;
	if (!m)
		return hutch_error_set(err, HUTCH_E_UNKNOWN_METHOD, 0, "there is no method '%s'",
				       call->method);
	if (m->flags & METHOD_REFUSED)
		return hutch_error_set(err, HUTCH_E_DENIED, 0, "%s is the broker's own",
				       call->method);
	if (!call->vm[0]) {
		if (m->flags & METHOD_NEEDS_VM)
			return hutch_error_set(err, HUTCH_E_INVALID, 0, "%s: 'vm' is missing",
					       call->method);
		return 0;
	}
	*vm = find_vm(c, m, call, err);
	if (!*vm)
		return -1;
	return m->where == METHOD_RELAY ? limits_check_call(c, err) : 0;
}

static bool is_relayed(const struct method *m, const struct vm *vm)
{
	return m->where == METHOD_RELAY || (m->where == METHOD_EITHER && vm);
}

void dispatch_run(struct client *c, const struct method *m, const struct msg_call *call,
		  struct vm *vm, unsigned flags)
{
	if (is_relayed(m, vm))
		relay_start(c, m, call, vm, flags);
	else
		m->run(c, call, vm);
}

void dispatch_call(struct client *c, const struct frame *f, const uint8_t *payload)
{
	struct hutch_error err;
	struct msg_call call;
	const struct method *m;
	struct vm *vm;

	hutch_error_clear(&err);
	if (msg_call_decode(&call, payload, f->length, &err) < 0) {
		if (err.kind == HUTCH_E_PROTOCOL)
			client_fault(c, err.message);
		else
			client_error(c, &err);
		return;
	}
	m = method_find(call.method);
	if (check(c, m, &call, &vm, &err) < 0) {
		client_error(c, &err);
		return;
	}
	log_debug(c->object, "%s %s", call.method, call.vm);
	if (vm && vm_is_asleep(vm) && (is_relayed(m, vm) || m->flags & METHOD_WAKES))
		rouse_start(c, m, vm, f, payload);
	else
		dispatch_run(c, m, &call, vm, f->flags);
}
