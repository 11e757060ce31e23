/* SPDX-License-Identifier: Apache-2.0 */
/* ping and the agent.* methods (wire.md section 3). */
#include <fcntl.h>
#include <string.h>

#include "guest/agent.h"
#include "guest/boot.h"
#include "guest/calls.h"
#include "guest/cgroup.h"
#include "guest/exec_table.h"
#include "guest/identity.h"
#include "guest/lines.h"
#include "guest/power.h"
#include "guest/snapshot.h"
#include "protocol/msg_exec.h"

int call_ping(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	(void)call;
	(void)err;
	conn_answer(c, NULL, 0);
	return 0;
}

/*
 * Resident memory of the agent. /proc/self/statm lags behind by up to 64 pages per kind (kernels before 6.2), which is as much
 * as there is; smaps_rollup (proc(5)) counts.
 */
static uint64_t rss_kib(void)
{
	uint64_t kib = 0;
	struct lines l;

	if (!lines_open(&l, AT_FDCWD, "/proc/self/smaps_rollup"))
		return 0;
	while (lines_next(&l)) {
		const char *p = l.line + 4;

		if (strncmp(l.line, "Rss:", 4) == 0 && next_number(&p, &kib))
			break;
	}
	lines_close(&l);
	return kib;
}

int call_agent_info(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct mp_buf *b = conn_out(c);
	size_t start = mp_frame_begin(b);

	(void)call;
	(void)err;
	mp_map_begin(b);
	mp_kv_str(b, "name", AGENT_NAME);
	mp_kv_str(b, "boot_id", agent.boot_id);
	mp_kv_uint(b, "generation", agent.generation);
	mp_kv_bool(b, "pid1", agent.mode == AGENT_PID1);
	mp_kv_uint(b, "uptime_ms", (loop_now() - agent.started_ns) / 1000000u);
	mp_kv_uint(b, "rss_kib", rss_kib());
	mp_kv_uint(b, "execs", exec_living());
	mp_kv_bool(b, "busy", exec_living() > 0 || cgroup_busy());
	mp_kv_uint(b, "connections", conn_count());
	mp_key(b, "failures");
	mp_array_begin(b);
	for (unsigned i = 0; boot_failure(i); i++)
		mp_put_str(b, boot_failure(i));
	mp_array_end(b);
	mp_map_end(b);
	mp_frame_finish(b, start, FRAME_RESULT, FRAME_END);
	conn_answered(c);
	return 0;
}

int call_agent_identity(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct agent_identity id;
	int ret = agent_identity_decode(&id, call->params, call->params_len, err);

	if (ret == 0)
		ret = c->warm ? identity_rehearse(&id, err) : identity_set(&id, err);
	if (ret == 0 && agent.held && !c->warm)
		snapshot_copied(id.keep_keys);
	agent_identity_free(&id);
	if (ret == 0)
		conn_answer(c, "generation", agent.generation);
	return ret;
}

int call_agent_shutdown(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	uint32_t grace_ms;

	if (msg_grace_decode(&grace_ms, POWER_GRACE_MS, call->params, call->params_len, err) < 0)
		return -1;
	conn_answer(c, NULL, 0);
	power_down(grace_ms);
	return 0;
}
