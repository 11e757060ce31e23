/* SPDX-License-Identifier: Apache-2.0 */
/* exec.start: its parameters, its result, and running one with callbacks. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_exec.h"
#include "tools/client/client.h"

/* The lists are only read by the encoder, whose struct is made for a decoder and so not const. */
static char **unconst(const char *const *list)
{
	union {
		const char *const *from;
		char **to;
	} u = {.from = list};

	return u.to;
}

static void fill(struct exec_start *m, const struct hutch_exec_options *x)
{
	m->clear_env = x->clear_env;
	m->cwd = x->cwd;
	m->user = x->user;
	m->timeout_ms = x->timeout_ms;
	m->grace_ms = x->grace_ms;
	m->output_limit = x->output_limit;
	m->memory_bytes = x->memory_bytes;
	m->pids = x->pids;
	m->cpu_percent = x->cpu_percent;
	m->merge_stderr = x->merge_stderr;
	m->detach = x->detach;
	m->resumable = x->resumable;
	m->notify = x->notify;
	m->drain_ms = HUTCH_DEFAULT_DRAIN_MS;
	m->pty = x->pty;
	m->rows = x->rows ? x->rows : 24;
	m->cols = x->cols ? x->cols : 80;
	m->term = x->term ? x->term : "xterm-256color";
}

int hutch_start_exec(struct hutch *h, const char *vm, const struct hutch_exec_options *x,
		     struct hutch_failure *why)
{
	const char *const shell[] = {"/bin/sh", "-c", x->shell, NULL};
	struct hutch_call call = {
		.method = "exec.start", .vm = vm, .id = x->id, .key = x->key, .input = x->input};
	struct exec_start m = {0};
	struct mp_buf params;
	int r;

	if ((x->argv == NULL) == (x->shell == NULL))
		return fail_set(why, HUTCH_E_INVALID, 0, "either argv or shell must be given");
	fill(&m, x);
	m.shell = x->shell != NULL;
	m.argv = unconst(m.shell ? shell : x->argv);
	while (m.argv[m.argc] != NULL)
		m.argc++;
	m.env = unconst(x->env);
	while (m.env != NULL && m.env[2 * m.env_pairs] != NULL)
		m.env_pairs++;
	mp_buf_init(&params, HUTCH_MAX_CALL);
	exec_start_encode_params(&params, &m);
	r = call_start(h, &call, &params, why);
	mp_buf_free(&params);
	return r;
}

static int read_result(const struct hutch_doc *doc, bool detached, struct hutch_exec_result *out,
		       struct hutch_failure *why)
{
	struct hutch_error err = {0};
	struct exec_result r;

	static_assert(sizeof(out->id) == sizeof(r.id) &&
			      sizeof(out->start_error) == sizeof(r.start_error),
		      "the public result holds what the protocol's does");
	if (exec_result_decode(&r, doc->payload, doc->len, &err) < 0)
		return fail_from(why, &err);
	/* A status is never made up. */
	if (!detached && hutch_get(&doc->root, "exit_code") == NULL)
		return fail_set(why, HUTCH_E_PROTOCOL, 0,
				"the result of the exec has no exit_code");
	*out = (struct hutch_exec_result){
		.pid = r.pid,
		.started = r.started,
		.timed_out = r.timed_out,
		.oom_killed = r.oom_killed,
		.canceled = r.canceled,
		.exit_code = r.exit_code,
		.signal = r.signal,
		.stdout_bytes = r.stdout_bytes,
		.stderr_bytes = r.stderr_bytes,
		.stdout_truncated = r.stdout_truncated,
		.stderr_truncated = r.stderr_truncated,
		.duration_us = r.duration_us,
		.user_us = r.user_us,
		.system_us = r.system_us,
		.max_rss_kib = r.max_rss_kib,
		.start_error.errnum = r.start_error.errnum,
	};
	memcpy(out->id, r.id, sizeof(out->id));
	memcpy(out->start_error.kind, r.start_error.kind, sizeof(out->start_error.kind));
	memcpy(out->start_error.stage, r.start_error.stage, sizeof(out->start_error.stage));
	memcpy(out->start_error.path, r.start_error.path, sizeof(out->start_error.path));
	memcpy(out->start_error.message, r.start_error.message, sizeof(out->start_error.message));
	return 0;
}

int hutch_exec_result_read(const struct hutch_doc *doc, struct hutch_exec_result *out,
			   struct hutch_failure *why)
{
	return read_result(doc, false, out, why);
}

/* ---- With callbacks ---- */

static int feed(struct hutch *h, const struct hutch_exec_handlers *on)
{
	char buf[16384];
	size_t len = 0;

	if (hutch_send_room(h) < sizeof(buf))
		return 0;
	if (on->on_input != NULL && on->on_input(on->arg, buf, sizeof(buf), &len) != 0)
		return -1;
	if (len > 0)
		hutch_send(h, buf, len);
	else
		hutch_send_end(h);
	return 0;
}

/* What a handler says to an item: 0, or not 0 to abandon the call. */
static int deliver(struct hutch *h, enum hutch_next what, struct hutch_item *item,
		   const struct hutch_exec_handlers *on)
{
	int r = 0;

	if (what == HUTCH_STDOUT && on->on_stdout != NULL)
		return on->on_stdout(on->arg, item->data, item->len);
	if (what == HUTCH_STDERR && on->on_stderr != NULL)
		return on->on_stderr(on->arg, item->data, item->len);
	if (what == HUTCH_EVENT) {
		const struct hutch_value *root = hutch_doc_root(item->doc);

		if (strcmp(hutch_get_text(root, "event", ""), "stdin_closed") == 0)
			hutch_send_end(h);
		if (on->on_event != NULL)
			r = on->on_event(on->arg, root);
		hutch_doc_free(item->doc);
	}
	return r;
}

int hutch_exec(struct hutch *h, const char *vm, const struct hutch_exec_options *options,
	       const struct hutch_exec_handlers *handlers, uint64_t timeout_ms,
	       struct hutch_exec_result *result, struct hutch_failure *why)
{
	uint64_t until = timeout_ms > 0 ? conn_now_ms() + timeout_ms : 0;
	static const struct hutch_exec_handlers none;
	const struct hutch_exec_handlers *on = handlers ? handlers : &none;
	struct hutch_item item;
	enum hutch_next what;
	int r;

	if (hutch_start_exec(h, vm, options, why) < 0)
		return -1;
	for (;;) {
		what = hutch_next(h, &item, why);
		if (what == HUTCH_FAILED)
			return -1;
		if (what == HUTCH_RESULT)
			break;
		r = deliver(h, what, &item, on);
		if (r == 0)
			r = feed(h, on);
		if (r != 0) {
			conn_break(h, HUTCH_E_CANCELED, 0, "the exec was abandoned by the caller");
			if (why != NULL)
				*why = h->broken;
			return -1;
		}
		if (what == HUTCH_AGAIN && hutch_send_room(h) == 0)
			conn_wait(h, until);
	}
	r = read_result(item.doc, options->detach, result, why);
	hutch_doc_free(item.doc);
	return r;
}
