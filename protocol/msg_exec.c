/* SPDX-License-Identifier: Apache-2.0 */
/* exec.*: the result, and the parameters of the smaller methods. */
#include "protocol/msg_exec.h"

#include <string.h>

static void get_rusage(struct exec_result *m, struct mp_reader *r)
{
	const msgpack_object *map = NULL;
	struct mp_reader in;

	mp_get_map(r, "rusage", &map);
	if (!map)
		return;
	mp_reader_init(&in, r->doc, map, "exec result: rusage.", r->err);
	mp_get_uint(&in, "user_us", 0, HUTCH_MAX_UINT, &m->user_us);
	mp_get_uint(&in, "system_us", 0, HUTCH_MAX_UINT, &m->system_us);
	mp_get_uint(&in, "max_rss_kib", 0, HUTCH_MAX_UINT, &m->max_rss_kib);
}

static void get_start_error(struct exec_result *m, struct mp_reader *r)
{
	const msgpack_object *map = NULL;
	struct mp_reader in;
	uint32_t errnum = 0;

	mp_get_map(r, "start_error", &map);
	if (!map)
		return;
	mp_reader_init(&in, r->doc, map, "exec result: start_error.", r->err);
	mp_require(&in, "kind");
	mp_get_strbuf(&in, "kind", m->start_error.kind, sizeof(m->start_error.kind));
	mp_get_u32(&in, "errno", 0, INT32_MAX, &errnum);
	m->start_error.errnum = (int)errnum;
	mp_get_strcut(&in, "stage", m->start_error.stage, sizeof(m->start_error.stage));
	mp_get_strcut(&in, "path", m->start_error.path, sizeof(m->start_error.path));
	mp_get_strcut(&in, "message", m->start_error.message, sizeof(m->start_error.message));
}

int exec_result_decode(struct exec_result *m, const void *payload, size_t len,
		       struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_doc_parse(&doc, payload, len, err) < 0)
		return -1;
	mp_reader_init(&r, &doc, &doc.root, "exec result", err);
	mp_get_name(&r, "id", HUTCH_MAX_ID, m->id, sizeof(m->id));
	mp_get_uint(&r, "pid", 0, INT32_MAX, &m->pid);
	mp_get_bool(&r, "started", &m->started);
	mp_get_u32(&r, "exit_code", 0, UINT8_MAX, &m->exit_code);
	mp_get_u32(&r, "signal", 0, HUTCH_MAX_SIGNAL, &m->signal);
	mp_get_bool(&r, "timed_out", &m->timed_out);
	mp_get_bool(&r, "oom_killed", &m->oom_killed);
	mp_get_bool(&r, "canceled", &m->canceled);
	mp_get_uint(&r, "stdout_bytes", 0, HUTCH_MAX_UINT, &m->stdout_bytes);
	mp_get_uint(&r, "stderr_bytes", 0, HUTCH_MAX_UINT, &m->stderr_bytes);
	mp_get_bool(&r, "stdout_truncated", &m->stdout_truncated);
	mp_get_bool(&r, "stderr_truncated", &m->stderr_truncated);
	mp_get_uint(&r, "duration_us", 0, HUTCH_MAX_UINT, &m->duration_us);
	get_rusage(m, &r);
	get_start_error(m, &r);
	return msg_close(&r);
}

static void put_start_error(struct mp_buf *out, const struct exec_result *m)
{
	const char *name = hutch_errno_name(m->start_error.errnum);

	if (!m->start_error.kind[0])
		return;
	mp_key(out, "start_error");
	mp_map_begin(out);
	mp_kv_str(out, "kind", m->start_error.kind);
	if (m->start_error.errnum > 0)
		mp_kv_uint(out, "errno", (uint64_t)m->start_error.errnum);
	mp_kv_text(out, "errno_name", name);
	mp_kv_text(out, "stage", m->start_error.stage);
	mp_kv_text(out, "path", m->start_error.path);
	mp_kv_text(out, "message", m->start_error.message);
	mp_map_end(out);
}

int exec_result_encode(struct mp_buf *out, const struct exec_result *m)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_text(out, "id", m->id);
	mp_kv_uint_unless(out, "pid", m->pid, 0);
	mp_kv_bool(out, "started", m->started);
	mp_kv_uint(out, "exit_code", m->exit_code);
	mp_kv_uint_unless(out, "signal", m->signal, 0);
	mp_kv_bool(out, "timed_out", m->timed_out);
	mp_kv_bool(out, "oom_killed", m->oom_killed);
	mp_kv_bool(out, "canceled", m->canceled);
	mp_kv_uint(out, "stdout_bytes", m->stdout_bytes);
	mp_kv_uint(out, "stderr_bytes", m->stderr_bytes);
	mp_kv_bool(out, "stdout_truncated", m->stdout_truncated);
	mp_kv_bool(out, "stderr_truncated", m->stderr_truncated);
	mp_kv_uint(out, "duration_us", m->duration_us);
	mp_key(out, "rusage");
	mp_map_begin(out);
	mp_kv_uint(out, "user_us", m->user_us);
	mp_kv_uint(out, "system_us", m->system_us);
	mp_kv_uint(out, "max_rss_kib", m->max_rss_kib);
	mp_map_end(out);
	put_start_error(out, m);
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_RESULT, FRAME_END);
}

int exec_attach_decode(struct exec_attach *m, const void *params, size_t len,
		       struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, params, len, "exec.attach", err) < 0)
		return -1;
	m->has_stdout_after = mp_find(&r, "stdout_after") != NULL;
	m->has_stderr_after = mp_find(&r, "stderr_after") != NULL;
	mp_get_uint(&r, "stdout_after", 0, HUTCH_MAX_UINT, &m->stdout_after);
	mp_get_uint(&r, "stderr_after", 0, HUTCH_MAX_UINT, &m->stderr_after);
	mp_get_bool(&r, "owner", &m->owner);
	mp_get_bool(&r, "tail", &m->tail);
	if (m->tail && (m->has_stdout_after || m->has_stderr_after))
		mp_fail(&r, "tail and an offset are both given; it must be one of them");
	return mp_close(&r);
}

/* Linux's numbers, the same on all architectures that hutch runs on (signal(7)). */
static int signal_number(const char *name)
{
	static const char names[][8] = {
		"",	  "HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",
		"FPE",	  "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM",
		"STKFLT", "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",
		"XCPU",	  "XFSZ", "VTALRM", "PROF", "WINCH", "IO",   "PWR",  "SYS",
	};

	if (strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name, names[i]) == 0)
			return (int)i;
	return 0;
}

static void get_signal(struct mp_reader *r, int *signal)
{
	const msgpack_object *o = mp_find(r, "signal");
	char name[16] = "";
	uint32_t number = 0;

	mp_require(r, "signal");
	if (o && (o->type == MSGPACK_OBJECT_STR || o->type == MSGPACK_OBJECT_BIN)) {
		mp_get_strbuf(r, "signal", name, sizeof(name));
		number = (uint32_t)signal_number(name);
		if (number == 0)
			mp_fail(r, "signal is \"%s\"; it must be 1 to %u or a name such as TERM",
				name, HUTCH_MAX_SIGNAL);
	} else {
		mp_get_u32(r, "signal", 1, HUTCH_MAX_SIGNAL, &number);
	}
	*signal = (int)number;
}

int exec_signal_decode(struct exec_signal *m, const void *params, size_t len,
		       struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, params, len, "exec.signal", err) < 0)
		return -1;
	get_signal(&r, &m->signal);
	mp_get_bool(&r, "tree", &m->tree);
	return mp_close(&r);
}

int exec_resize_decode(struct exec_resize *m, const void *params, size_t len,
		       struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, params, len, "exec.resize", err) < 0)
		return -1;
	mp_require(&r, "rows");
	mp_require(&r, "cols");
	mp_get_u32(&r, "rows", 1, UINT16_MAX, &m->rows);
	mp_get_u32(&r, "cols", 1, UINT16_MAX, &m->cols);
	return mp_close(&r);
}

int msg_close_decode(bool *close, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*close = false;
	if (mp_params_open(&doc, &r, params, len, "exec.stdin", err) < 0)
		return -1;
	mp_get_bool(&r, "close", close);
	return mp_close(&r);
}
