/* SPDX-License-Identifier: Apache-2.0 */
/* vm.info's map, and vm.list. */
#include "host/hutchd/api.h"
#include "host/hutchd/share.h"

static void put_metadata(struct mp_buf *b, char *const *pairs)
{
	mp_key(b, "metadata");
	mp_map_begin(b);
	for (; pairs && pairs[0]; pairs += 2)
		mp_kv_str(b, pairs[0], pairs[1]);
	mp_map_end(b);
}

static void put_stages(struct mp_buf *b, const struct vm_record *r)
{
	mp_key(b, "stages");
	mp_map_begin(b);
	mp_kv_uint(b, "spawn_us", r->spawn_us);
	mp_kv_uint(b, "qmp_us", r->qmp_us);
	mp_kv_uint(b, "hello_us", r->hello_us);
	mp_kv_uint(b, "identity_us", r->identity_us);
	mp_kv_uint(b, "total_us", r->total_us);
	mp_map_end(b);
}

static void put_agent(struct mp_buf *b, const struct vm *vm)
{
	mp_key(b, "agent");
	mp_map_begin(b);
	mp_kv_str(b, "name", vm->r.agent_name);
	mp_kv_str(b, "boot_id", vm->r.agent_boot_id);
	mp_kv_uint(b, "generation", vm->r.generation);
	mp_kv_bool(b, "silent", vm->silent);
	mp_map_end(b);
}

static void put_sleep(struct mp_buf *b, const struct vm *vm)
{
	const struct vm_record *r = &vm->r;

	if (vm->state == VM_PAUSED || vm->state == VM_PARKED) {
		mp_key(b, "asleep");
		mp_map_begin(b);
		mp_kv_str(b, "by", r->asleep_by_idle ? "idle" : "call");
		mp_kv_uint_unless(b, "since_ms", r->asleep_ms, 0);
		mp_map_end(b);
	}
	if (r->idle.pause_after_ms || r->idle.park_after_ms) {
		mp_key(b, "idle");
		mp_map_begin(b);
		mp_kv_uint_unless(b, "pause_after_ms", r->idle.pause_after_ms, 0);
		mp_kv_uint_unless(b, "park_after_ms", r->idle.park_after_ms, 0);
		mp_map_end(b);
	}
}

static void put_details(struct mp_buf *b, const struct vm *vm)
{
	const struct vm_record *r = &vm->r;

	put_sleep(b, vm);
	put_metadata(b, r->metadata);
	mp_kv_str(b, "boot_mode", vm_boot_mode_name(r->boot_mode));
	mp_kv_text(b, "cold_reason", r->cold_reason);
	mp_kv_text(b, "snapshot", r->snapshot);
	mp_kv_text(b, "parent", r->parent);
	mp_kv_uint(b, "layers", r->layers);
	mp_kv_bool(b, "secrets", r->secrets);
	mp_kv_bool(b, "zygote", r->zygote);
	mp_kv_str(b, "vmm", launcher_driver(vm->b->launcher));
	mp_kv_str(b, "vmm_version", r->vmm_version);
	mp_kv_str(b, "accel", vmm_accel_name(r->accel));
	mp_kv_str(b, "accel_reason", r->accel_reason);
	mp_key(b, "isolation");
	api_put_isolation(b, r->isolation, r->isolation_missing, "");
	mp_key(b, "ceilings");
	api_put_ceilings(b, r->ceilings, r->ceilings_of, "");
	if (vm_was_ready(vm))
		put_stages(b, r);
	if (r->agent_name[0])
		put_agent(b, vm);
}

void api_put_vm(struct mp_buf *b, const struct vm *vm, bool brief)
{
	const struct vm_record *r = &vm->r;

	mp_map_begin(b);
	mp_kv_str(b, "id", r->id);
	if (r->name[0])
		mp_kv_str(b, "name", r->name);
	mp_kv_str(b, "state", vm_state_name(vm->state));
	mp_kv_str(b, "template", r->template_name);
	mp_kv_uint(b, "memory_mib", r->memory_mib);
	mp_kv_uint(b, "vcpus", r->vcpus);
	mp_kv_uint_unless(b, "disk_mib", r->disk_mib, 0);
	mp_kv_uint(b, "owner_uid", r->owner_uid);
	if (r->shared)
		mp_kv_uint(b, "share_gid", r->share_gid);
	if (r->process.pid > 0 && vm->state != VM_DEAD)
		mp_kv_uint(b, "pid", (uint64_t)r->process.pid);
	mp_kv_uint(b, "cid", r->cid);
	mp_kv_uint(b, "created_ms", r->created_ms);
	if (r->deadline_ms && vm->state != VM_DEAD)
		mp_kv_uint(b, "expires_in_ms", vm_ttl_left(vm));
	if (!brief)
		put_details(b, vm);
	if (vm->state >= VM_STOPPING)
		mp_kv_str(b, "reason", vm->reason);
	mp_map_end(b);
}

/* -1 when the list does not fit in a frame. */
static int put_list(struct mp_buf *b, struct client *c, bool brief)
{
	const struct vm *vm;

	mp_buf_init(b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(b);
	mp_map_begin(b);
	mp_key(b, "vms");
	mp_array_begin(b);
	TAILQ_FOREACH(vm, &c->b->vms, next)
		if (vm_visible(vm, c->uid) || share_allows(c, vm))
			api_put_vm(b, vm, brief);
	mp_array_end(b);
	mp_map_end(b);
	return b->failed ? -1 : 0;
}

void api_vm_list(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct mp_buf b;

	(void)call;
	(void)vm;
	if (put_list(&b, c, false) < 0) {
		mp_buf_free(&b);
		put_list(&b, c, true);
	}
	client_reply_buf(c, &b);
}
