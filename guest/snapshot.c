/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.prepare and snapshot.resume; see snapshot.h. */
#include "guest/snapshot.h"

#include <errno.h>
#include <stdio.h>

#include "guest/agent.h"
#include "guest/calls.h"
#include "guest/cgroup.h"
#include "guest/exec_table.h"
#include "guest/identity.h"
#include "guest/listen.h"
#include "guest/log.h"
#include "guest/warm.h"
#include "protocol/msg_exec.h"

static struct conn *holder;	    /* the connection of snapshot.prepare; NULL: it was lost */
static void (*holder_closed)(void); /* who else wants to know of its end */
static uint64_t began_ns;
static uint32_t timeout_ms;

static void too_late(struct loop_timer *t);
static struct loop_timer deadline = {.due = too_late, .always = true};

/* Nothing of the users may run before all else is as it has to be. */
static void let_go(bool copy, bool keep_keys)
{
	loop_timer_clear(&deadline);
	agent.held = false;
	if (holder)
		holder->closed = holder_closed;
	holder = NULL;
	listen_hold(false);
	conn_release(copy);
	if (copy)
		exec_all_copied(keep_keys);
	loop_hold_timers(false);
	cgroup_thaw();
	identity_over();
	log_debug("let go as %s", copy ? "a copy" : "what it was");
}

static void holder_lost(void)
{
	holder = NULL;
	if (holder_closed)
		holder_closed();
	if (agent.held)
		dial_renew();
}

/* Lost: before the answer, so nobody took it for frozen. */
static void over(struct conn *c, bool lost)
{
	(void)c;
	if (lost)
		let_go(false, false);
}

static const struct call_ops ops = {.over = over};

static void frozen(void)
{
	const struct agent_prepared m = {.generation = agent.generation,
					 .frozen_us = (loop_now() - began_ns) / 1000};

	loop_timer_clear(&deadline);
	agent_prepared_encode(conn_out(holder), &m);
	conn_answered(holder);
}

static bool find_culprit(struct exec *e, void *arg)
{
	if (!e->tree.cg || cgroup_is_frozen(e->tree.cg))
		return true;
	*(const char **)arg = e->id;
	return false;
}

static void too_late(struct loop_timer *t)
{
	struct conn *c = holder;
	const char *id = "";
	struct hutch_error err;

	(void)t;
	exec_each(find_culprit, &id);
	hutch_error_set(&err, HUTCH_E_TIMEOUT, 0, "exec \"%s\" is not frozen after %u ms", id,
			timeout_ms);
	let_go(false, false);
	conn_fail(c, &err);
}

static int check(struct hutch_error *err)
{
	if (agent.mode != AGENT_PLAIN && !cgroup_ready())
		return hutch_error_set(err, HUTCH_E_UNSUPPORTED, 0,
				       "there are no cgroups to freeze");
	if (!dial_on())
		return hutch_error_set(err, HUTCH_E_UNSUPPORTED, 0, "there is no host to dial");
	if (warm_runs())
		return hutch_error_set(err, HUTCH_E_BUSY, 0, "agent.warm runs");
	return 0;
}

int call_snapshot_prepare(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	if (agent_prepare_decode(&timeout_ms, call->params, call->params_len, err) < 0 ||
	    check(err) < 0)
		return -1;
	agent.held = true;
	began_ns = loop_now();
	holder = c;
	holder_closed = c->closed;
	c->closed = holder_lost;
	c->ops = &ops;
	conn_hold(c);
	listen_hold(true);
	loop_hold_timers(true);
	loop_timer_after_ms(&deadline, timeout_ms);
	if (!cgroup_ready()) {
		frozen();
	} else if (cgroup_freeze(frozen) < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno, "the commands' cgroup cannot be frozen");
		let_go(false, false);
		return -1;
	}
	if (!cgroup_freezes())
		identity_prepare();
	return 0;
}

int call_snapshot_resume(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct agent_resume m;

	if (agent_resume_decode(&m, call->params, call->params_len, err) < 0)
		return -1;
	if (m.generation != agent.generation)
		return hutch_error_set(err, HUTCH_E_STATE, 0, "%llu is in force, not %llu",
				       (unsigned long long)agent.generation,
				       (unsigned long long)m.generation);
	if (agent.held) {
		if (m.realtime_ns && agent.mode == AGENT_PID1 &&
		    identity_set_clock(m.realtime_ns, err) < 0)
			return -1;
		let_go(false, false);
	}
	conn_answer(c, NULL, 0);
	return 0;
}

void snapshot_copied(bool keep_keys)
{
	let_go(true, keep_keys);
}
