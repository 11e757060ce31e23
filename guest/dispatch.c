/* SPDX-License-Identifier: Apache-2.0 */
/* From a CALL to the method's function: what each method needs is data in one table, checked here. */
#include <string.h>

#include "guest/agent.h"
#include "guest/calls.h"
#include "guest/conn.h"
#include "protocol/msg_fs.h"

struct method {
	const char *name;
	call_fn *start;
	bool before_identity; /* answered while the agent has no identity, or is held */
	bool pid1_only;
	bool needs_id;
};

static const struct method methods[] = {
	{.name = "ping", .start = call_ping, .before_identity = true},
	{.name = "agent.info", .start = call_agent_info, .before_identity = true},
	{.name = "agent.identity", .start = call_agent_identity, .before_identity = true},
	{.name = "agent.warm", .start = call_agent_warm, .before_identity = true},
	{.name = "snapshot.resume", .start = call_snapshot_resume, .before_identity = true},
	{.name = "snapshot.prepare", .start = call_snapshot_prepare},
	{.name = "agent.shutdown", .start = call_agent_shutdown, .pid1_only = true},
	{.name = "exec.start", .start = call_exec_start},
	{.name = "exec.attach", .start = call_exec_attach, .needs_id = true},
	{.name = "exec.wait", .start = call_exec_wait, .needs_id = true},
	{.name = "exec.signal", .start = call_exec_signal, .needs_id = true},
	{.name = "exec.kill", .start = call_exec_kill, .needs_id = true},
	{.name = "exec.resize", .start = call_exec_resize, .needs_id = true},
	{.name = "exec.stdin", .start = call_exec_stdin, .needs_id = true},
	{.name = "exec.close_stdin", .start = call_exec_close_stdin, .needs_id = true},
	{.name = "exec.list", .start = call_exec_list},
};

/* fs.*: msg_fs.h has the names. */
static const struct method files = {.start = call_fs};

static const struct method *find(const char *name)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		if (strcmp(methods[i].name, name) == 0)
			return &methods[i];
	return fs_method_find(name) >= 0 ? &files : NULL;
}

int dispatch_call(struct conn *c, const uint8_t *payload, size_t n, struct hutch_error *err)
{
	const struct method *m;
	struct msg_call call;

	if (msg_call_decode(&call, payload, n, err) < 0)
		return -1;
	m = find(call.method);
	if (!m)
		return hutch_error_set(err, HUTCH_E_UNKNOWN_METHOD, 0,
				       "this agent has no method \"%s\"", call.method);
	if ((agent.needs_identity || agent.held) && !m->before_identity && !c->warm)
		return hutch_error_set(err, HUTCH_E_STATE, 0, "%s is not answered before %s",
				       call.method,
				       agent.held ? "snapshot.resume or agent.identity"
						  : "agent.identity");
	if (m->pid1_only && agent.mode != AGENT_PID1)
		return hutch_error_set(err, HUTCH_E_UNSUPPORTED, 0,
				       "%s needs an agent that is PID 1", call.method);
	if (m->needs_id && !call.id[0])
		return hutch_error_set(err, HUTCH_E_INVALID, 0, "%s needs an exec's id",
				       call.method);
	return m->start(c, &call, err);
}
