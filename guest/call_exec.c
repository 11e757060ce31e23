/* SPDX-License-Identifier: Apache-2.0 */
/* exec.* methods that start, follow, list and steer (wire.md section 3). */
#include <signal.h>
#include <string.h>

#include "guest/attach.h"
#include "guest/calls.h"
#include "guest/exec_table.h"
#include "guest/pty.h"

struct exec *call_find_exec(const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = exec_find(call->id);

	if (!e)
		hutch_error_set(err, HUTCH_E_NOT_FOUND, 0, "there is no exec \"%s\"", call->id);
	return e;
}

/* FNV-1a: tells whether a repeated start has the same bytes. */
static uint64_t hash_params(const struct msg_call *call)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < call->params_len; i++)
		h = (h ^ call->params[i]) * 0x100000001b3u;
	return h;
}

static bool in_use(const char *id)
{
	struct exec *e = id[0] ? exec_find(id) : NULL;

	return e && !exec_make_way(e);
}

/*
 * The exec that an earlier start with this key made; NULL: none, or err is set. Its id stays: the repeated
 * call's may have been chosen by somebody on the way.
 */
static struct exec *find_repeated(const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call->key[0] ? exec_find_key(call->key) : NULL;

	if (e && e->params_hash != hash_params(call)) {
		hutch_error_set(err, HUTCH_E_EXISTS, 0,
				"key \"%s\" was used to start exec \"%s\" with other arguments",
				call->key, e->id);
		return NULL;
	}
	if (!e && in_use(call->id))
		hutch_error_set(err, HUTCH_E_EXISTS, 0, "exec id \"%s\" is in use", call->id);
	return e;
}

static int start_new(struct conn *c, const struct msg_call *call, const struct exec_start *m,
		     struct hutch_error *err)
{
	const struct exec_request rq = {
		.start = m,
		.id = call->id,
		.key = call->key,
		.params_hash = call->key[0] ? hash_params(call) : 0,
		.stdin_open = !c->caller_end,
		.apart = c->warm,
	};
	struct exec_result res;
	struct exec *e;
	int ret = exec_start(&rq, &e, &res, err);

	if (ret < 0)
		return -1;
	if (ret > 0) {
		exec_result_encode(conn_out(c), &res);
		conn_answered(c);
	} else if (m->detach) {
		attach_answer_detached(c, e);
	} else {
		attach_started(c, e, rq.stdin_open, m->notify);
	}
	return 0;
}

int call_exec_start(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = find_repeated(call, err);
	struct exec_start m;
	int ret = -1;

	if (err->kind != HUTCH_OK)
		return -1;
	if (exec_start_decode(&m, call->params, call->params_len, err) == 0) {
		ret = 0;
		if (!e)
			ret = start_new(c, call, &m, err);
		else if (m.detach)
			attach_answer_detached(c, e);
		else
			attach_repeated(c, e, !c->caller_end, m.notify);
	}
	exec_start_free(&m);
	return ret;
}

int call_exec_attach(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);
	struct exec_attach a;

	if (!e || exec_attach_decode(&a, call->params, call->params_len, err) < 0)
		return -1;
	attach_to(c, e, &a, !c->caller_end);
	return 0;
}

int call_exec_signal(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);
	struct exec_signal m;

	if (!e || exec_signal_decode(&m, call->params, call->params_len, err) < 0 ||
	    exec_signal(e, m.signal, m.tree, err) < 0)
		return -1;
	conn_answer(c, NULL, 0);
	return 0;
}

int call_exec_resize(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct exec *e = call_find_exec(call, err);
	struct exec_resize m;

	if (!e || exec_resize_decode(&m, call->params, call->params_len, err) < 0 ||
	    exec_resize(e, m.rows, m.cols, err) < 0)
		return -1;
	conn_answer(c, NULL, 0);
	return 0;
}

/* exec.list */

static unsigned attached(const struct exec *e)
{
	unsigned n = 0;

	list_for_each(it, &e->links)
		n++;
	return n;
}

static bool list_one(struct exec *e, void *arg)
{
	struct mp_buf *b = arg;
	struct exec_result res;

	if (e->collected)
		return true; /* whoever asked knows of it */
	mp_map_begin(b);
	mp_kv_str(b, "id", e->id);
	mp_kv_uint(b, "pid", (uint64_t)e->pid);
	mp_kv_str(b, "state", e->state == EXEC_ENDED ? "ended" : "running");
	if (e->argv_len) {
		mp_key(b, "argv");
		mp_put_raw(b, e->argv, e->argv_len);
	}
	mp_kv_uint(b, "started_ms_ago", (loop_now() - e->started_ns) / 1000000u);
	mp_kv_bool(b, "pty", e->pty);
	mp_kv_bool(b, "detached", e->detach);
	mp_kv_uint(b, "attached", attached(e));
	if (e->state == EXEC_ENDED) {
		exec_result(e, &res);
		mp_kv_uint(b, "exit_code", res.exit_code);
	}
	mp_map_end(b);
	return true;
}

int call_exec_list(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct mp_buf *b = conn_out(c);
	size_t start = mp_frame_begin(b);

	(void)call;
	(void)err;
	mp_map_begin(b);
	mp_key(b, "execs");
	mp_array_begin(b);
	exec_each(list_one, b);
	mp_array_end(b);
	mp_map_end(b);
	mp_frame_finish(b, start, FRAME_RESULT, FRAME_END);
	conn_answered(c);
	return 0;
}
