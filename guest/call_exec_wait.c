/* SPDX-License-Identifier: Apache-2.0 */
/* exec.* methods that stay for something other than output: wait, kill, stdin, close_stdin. */
#include <string.h>

#include "guest/attach.h"
#include "guest/calls.h"
#include "guest/exec.h"

static void over(struct conn *c, bool lost)
{
	exec_unlink(&c->x, lost);
}

static void begin(struct conn *c, struct exec *e, const struct call_ops *ops)
{
	memset(&c->x, 0, sizeof(c->x));
	list_init(&c->x.link);
	c->ops = ops;
	exec_link(e, &c->x);
	conn_wake(c);
}

/* exec.wait */

static bool holds_output(const struct exec *e)
{
	return e->out[0].ring.start < e->out[0].ring.end ||
	       e->out[1].ring.start < e->out[1].ring.end;
}

/* Whoever waits sees no output: it stays for exec.attach, and with it the record. */
static bool wait_pump(struct conn *c)
{
	const struct exec *e = c->x.exec;

	if (e->state != EXEC_ENDED)
		return false;
	attach_answer(c, e);
	if (holds_output(e))
		c->answered = 0;
	return false;
}

static const struct call_ops wait_ops = {.pump = wait_pump, .over = over};

static void wait_due(struct loop_timer *t)
{
	struct conn *c = container_of(t, struct conn, timer);
	struct hutch_error err;

	if (c->x.exec->state == EXEC_ENDED)
		return; /* its answer is on the way */
	hutch_error_set(&err, HUTCH_E_TIMEOUT, 0, "exec \"%s\" still runs", c->x.exec->id);
	conn_fail(c, &err);
}

int call_exec_wait(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);
	uint64_t timeout_ms = 0;

	if (!e || msg_timeout_decode(&timeout_ms, call->params, call->params_len, err) < 0)
		return -1;
	begin(c, e, &wait_ops);
	if (timeout_ms) {
		c->timer.due = wait_due;
		loop_timer_after_ms(&c->timer, timeout_ms);
	}
	return 0;
}

/* exec.kill */

static bool kill_pump(struct conn *c)
{
	const struct exec *e = c->x.exec;

	/* not ENDED: the output that is left does not matter to who kills */
	if (!e->killing && e->state != EXEC_RUNNING) {
		conn_answer(c, NULL, 0);
	}
	return false;
}

static const struct call_ops kill_ops = {.pump = kill_pump, .over = over};

int call_exec_kill(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);
	uint32_t grace_ms;

	if (!e || msg_grace_decode(&grace_ms, e->grace_ms, call->params, call->params_len, err) < 0)
		return -1;
	begin(c, e, &kill_ops);
	exec_cancel(e, grace_ms);
	return 0;
}

/* exec.stdin */

static size_t stdin_data(struct conn *c, const uint8_t *p, size_t n)
{
	size_t taken;

	if (c->x.exec->in.fd < 0)
		return n;
	taken = exec_input(c->x.exec, p, n);
	c->x.taken += taken;
	if (taken < n)
		exec_input_wait(&c->x);
	return taken;
}

static bool stdin_end(struct conn *c)
{
	if (c->x.close_stdin && !exec_input_end(c->x.exec)) {
		exec_input_wait(&c->x);
		return false;
	}
	conn_answer(c, "bytes", c->x.taken);
	return true;
}

static const struct call_ops stdin_ops = {.data = stdin_data, .end = stdin_end, .over = over};

static int need_input(const struct exec *e, struct hutch_error *err)
{
	if (e->in.fd >= 0)
		return 0;
	return hutch_error_set(err, HUTCH_E_STATE, 0, "exec \"%s\" takes no input%s", e->id,
			       e->state == EXEC_RUNNING ? "" : ", it has ended");
}

int call_exec_stdin(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);
	bool close = false;

	if (!e || msg_close_decode(&close, call->params, call->params_len, err) < 0 ||
	    need_input(e, err) < 0)
		return -1;
	begin(c, e, &stdin_ops);
	c->x.close_stdin = close;
	if (c->caller_end && !stdin_end(c)) {
		c->caller_end = false;
		c->end_due = c->stopped = true;
	}
	return 0;
}

/* exec.close_stdin */

static bool close_pump(struct conn *c)
{
	if (!exec_input_end(c->x.exec)) {
		exec_input_wait(&c->x);
		return false;
	}
	conn_answer(c, NULL, 0);
	return false;
}

static const struct call_ops close_ops = {.pump = close_pump, .over = over};

int call_exec_close_stdin(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);

	if (!e)
		return -1;
	begin(c, e, &close_ops);
	return 0;
}
