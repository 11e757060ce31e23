/* SPDX-License-Identifier: Apache-2.0 */
/* ping and broker.info, and what is told about accelerator, isolation and ceilings. */
#include <string.h>
#include <unistd.h>

#include "host/hutchd/api.h"

void api_ping(struct client *c, const struct msg_call *call, struct vm *vm)
{
	(void)call;
	(void)vm;
	client_reply_empty(c);
}

void api_put_isolation(struct mp_buf *b, uint32_t level, uint32_t missing, const char *reason)
{
	mp_map_begin(b);
	mp_kv_str(b, "level", jail_level_name((enum jail_level)level));
	mp_key(b, "missing");
	mp_array_begin(b);
	for (unsigned i = 0; i < JAIL_MISSING_BITS; i++)
		if (missing & 1u << i)
			mp_put_str(b, jail_missing_name(1u << i));
	mp_array_end(b);
	if (reason[0])
		mp_kv_str(b, "reason", reason);
	mp_map_end(b);
}

void api_put_ceilings(struct mp_buf *b, uint32_t kind, uint32_t has, const char *reason)
{
	mp_map_begin(b);
	mp_kv_str(b, "by", cgroup_kind_name(kind));
	mp_key(b, "of");
	mp_array_begin(b);
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (has & 1u << i)
			mp_put_str(b, cgroup_controller_name(i));
	mp_array_end(b);
	if (reason[0])
		mp_kv_str(b, "reason", reason);
	mp_map_end(b);
}

static void put_ceilings(struct mp_buf *b, const struct cgroup_report *cgroup)
{
	mp_key(b, "ceilings");
	api_put_ceilings(b, cgroup->kind, cgroup->has, cgroup->reason);
}

static void put_isolation(struct mp_buf *b, const struct jail_report *jail)
{
	mp_key(b, "isolation");
	api_put_isolation(b, jail->level, jail->missing, jail->reason);
}

static void put_accel(struct mp_buf *b, const struct broker *broker)
{
	struct accel_status s = accel_status(broker->accel);

	mp_map_begin(b);
	mp_kv_str(b, "mode", vmm_accel_name(s.mode));
	mp_kv_str(b, "verdict", s.verdict == ACCEL_AUTO ? "unknown" : vmm_accel_name(s.verdict));
	mp_kv_str(b, "reason", s.reason ? s.reason : "");
	mp_kv_uint(b, "checked_ms", s.checked_ms);
	mp_map_end(b);
}

static void put_vmm(struct mp_buf *b, const struct broker *broker)
{
	const struct launcher *l = broker->launcher;

	mp_map_begin(b);
	mp_kv_str(b, "driver", launcher_driver(l));
	mp_kv_str(b, "path", launcher_vmm_path(l));
	mp_kv_str(b, "version", launcher_vmm_version(l));
	mp_map_end(b);
}

/* Of somebody's, or of the broker's own: those of its pools, zygotes, a template that is being booted. */
static unsigned count_vms(const struct broker *broker, bool of_users)
{
	const struct vm *vm;
	unsigned n = 0;

	TAILQ_FOREACH(vm, &broker->vms, next)
		n += (vm->kind == VM_USERS) == of_users;
	return n;
}

void api_broker_info(struct client *c, const struct msg_call *call, struct vm *vm)
{
	const struct broker *broker = c->b;
	struct mp_buf b;

	(void)call;
	(void)vm;
	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_str(&b, "name", "hutchd/" HUTCH_VERSION);
	mp_kv_uint(&b, "proto", HUTCH_PROTO_VERSION);
	mp_kv_uint(&b, "pid", (uint64_t)getpid());
	mp_kv_uint(&b, "uid", broker->uid);
	mp_kv_uint(&b, "uptime_ms", (clock_us() - broker->started_us) / 1000);
	mp_kv_str(&b, "socket", broker->config->socket);
	mp_kv_str(&b, "state_dir", broker->config->state);
	mp_kv_str(&b, "template_dir", broker->config->template_dir);
	mp_kv_uint(&b, "vms", count_vms(broker, true));
	mp_kv_uint(&b, "own_vms", count_vms(broker, false));
	mp_key(&b, "accel");
	put_accel(&b, broker);
	mp_key(&b, "vmm");
	put_vmm(&b, broker);
	put_isolation(&b, launcher_jail(broker->launcher));
	put_ceilings(&b, launcher_cgroup(broker->launcher));
	mp_map_end(&b);
	client_reply_buf(c, &b);
}

void api_broker_limits(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct mp_buf b;

	(void)call;
	(void)vm;
	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_uint(&b, "uid", c->uid);
	mp_kv_bool(&b, "exempt", c->admin);
	mp_key(&b, "limits");
	limits_put(&b, c->b, c->uid);
	mp_map_end(&b);
	client_reply_buf(c, &b);
}
