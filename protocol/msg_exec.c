/* SPDX-License-Identifier: Apache-2.0 */
/* exec.* and agent.identity: params, result and events as plain structs. */
#include "protocol/msg_exec.h"

#include <string.h>

#define DEFAULT_ROWS 24u
#define DEFAULT_COLS 80u
#define DEFAULT_TERM "xterm-256color"

static char *doc_copy(struct mp_doc *doc, const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = msgpack_zone_malloc(&doc->zone, n);

	return copy ? memcpy(copy, s, n) : NULL;
}

static void set_shell_argv(struct exec_start *m, struct mp_reader *r, char *text)
{
	char **v = msgpack_zone_malloc(&m->doc.zone, 4 * sizeof(*v));

	if (v) {
		v[0] = doc_copy(&m->doc, "/bin/sh");
		v[1] = doc_copy(&m->doc, "-c");
		v[2] = text;
		v[3] = NULL;
	}
	if (!v || !v[0] || !v[1]) {
		hutch_error_set(r->err, HUTCH_E_INTERNAL, 0,
				"exec.start: no memory for the command");
		return;
	}
	m->argv = v;
	m->argc = 3;
	m->shell = true;
}

static void get_command(struct exec_start *m, struct mp_reader *r)
{
	bool has_argv = mp_find(r, "argv") != NULL, has_shell = mp_find(r, "shell") != NULL;
	char *text = NULL;

	if (has_argv && has_shell)
		mp_fail(r, "argv and shell are both given; it must be one of them");
	if (!has_argv && !has_shell)
		mp_fail(r, "argv is missing; it, or shell, must say what to run");
	mp_get_strv(r, "argv", HUTCH_MAX_ARGV, &m->argv, &m->argc);
	mp_get_text(r, "shell", HUTCH_MAX_CALL, &text);
	if (!mp_ok(r))
		return;
	if (has_shell)
		set_shell_argv(m, r, text);
	else if (m->argc == 0)
		mp_fail(r, "argv is empty; it must have 1 to %u entries", HUTCH_MAX_ARGV);
	else if (!m->argv[0][0])
		mp_fail(r, "argv[0] is empty; it must name a program");
}

static void get_env(struct exec_start *m, struct mp_reader *r)
{
	mp_get_strmap(r, "env", HUTCH_MAX_ENV, &m->env, &m->env_pairs);
	for (size_t i = 0; mp_ok(r) && i < m->env_pairs; i++) {
		const char *name = m->env[2 * i];

		if (!name[0])
			mp_fail(r, "env has an empty name; names must not be empty");
		else if (strchr(name, '='))
			mp_fail(r, "env has the name \"%.80s\"; names must not hold =", name);
	}
	mp_get_bool(r, "clear_env", &m->clear_env);
}

static void refuse_empty(struct mp_reader *r, const char *key, const char *value)
{
	if (value && !value[0])
		mp_fail(r, "%s is empty; leave it out for the default", key);
}

static void get_limits(struct exec_start *m, struct mp_reader *r)
{
	mp_get_uint(r, "timeout_ms", 0, HUTCH_MAX_TIMEOUT_MS, &m->timeout_ms);
	mp_get_u32(r, "grace_ms", 0, HUTCH_MAX_GRACE_MS, &m->grace_ms);
	mp_get_uint(r, "output_limit", 0, HUTCH_MAX_UINT, &m->output_limit);
	mp_get_u32(r, "drain_ms", 0, HUTCH_MAX_DRAIN_MS, &m->drain_ms);
	mp_get_uint(r, "memory_bytes", 0, HUTCH_MAX_UINT, &m->memory_bytes);
	mp_get_u32(r, "pids", 0, HUTCH_MAX_PIDS, &m->pids);
	mp_get_u32(r, "cpu_percent", 0, HUTCH_MAX_CPU_PERCENT, &m->cpu_percent);
}

static void get_pty(struct exec_start *m, struct mp_reader *r)
{
	const msgpack_object *map = NULL;
	struct mp_reader pty;

	mp_get_map(r, "pty", &map);
	if (!map)
		return;
	mp_reader_init(&pty, r->doc, map, "exec.start: pty.", r->err);
	m->pty = true;
	m->rows = DEFAULT_ROWS;
	m->cols = DEFAULT_COLS;
	m->term = DEFAULT_TERM;
	mp_get_u32(&pty, "rows", 1, UINT16_MAX, &m->rows);
	mp_get_u32(&pty, "cols", 1, UINT16_MAX, &m->cols);
	mp_get_str(&pty, "term", HUTCH_MAX_TERM, &m->term);
	refuse_empty(&pty, "term", m->term);
}

int exec_start_decode(struct exec_start *m, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	m->drain_ms = HUTCH_DEFAULT_DRAIN_MS;
	if (mp_params_open(&m->doc, &r, params, len, "exec.start", err) < 0)
		return -1;
	get_command(m, &r);
	get_env(m, &r);
	mp_get_str(&r, "cwd", HUTCH_MAX_PATH, &m->cwd);
	refuse_empty(&r, "cwd", m->cwd);
	mp_get_str(&r, "user", HUTCH_MAX_USER, &m->user);
	refuse_empty(&r, "user", m->user);
	get_limits(m, &r);
	mp_get_bool(&r, "merge_stderr", &m->merge_stderr);
	mp_get_bool(&r, "detach", &m->detach);
	mp_get_bool(&r, "resumable", &m->resumable);
	mp_get_bool(&r, "notify", &m->notify);
	get_pty(m, &r);
	return mp_ok(&r) ? 0 : -1;
}

void exec_start_free(struct exec_start *m)
{
	mp_doc_free(&m->doc);
	memset(m, 0, sizeof(*m));
}

static void kv_uint_if(struct mp_buf *b, const char *key, uint64_t v, uint64_t dflt)
{
	if (v != dflt)
		mp_kv_uint(b, key, v);
}

static void kv_true(struct mp_buf *b, const char *key, bool v)
{
	if (v)
		mp_kv_bool(b, key, true);
}

static void kv_text(struct mp_buf *b, const char *key, const char *s)
{
	if (s && s[0])
		mp_kv_str(b, key, s);
}

static void put_command(struct mp_buf *out, const struct exec_start *m)
{
	if (m->shell && m->argc == 3) {
		mp_kv_str(out, "shell", m->argv[2]);
		return;
	}
	mp_key(out, "argv");
	mp_array_begin(out);
	for (size_t i = 0; i < m->argc; i++)
		mp_put_str(out, m->argv[i]);
	mp_array_end(out);
}

static void put_env(struct mp_buf *out, const struct exec_start *m)
{
	if (m->env_pairs > 0) {
		mp_key(out, "env");
		mp_map_begin(out);
		for (size_t i = 0; i < m->env_pairs; i++)
			mp_kv_str(out, m->env[2 * i], m->env[2 * i + 1]);
		mp_map_end(out);
	}
	kv_true(out, "clear_env", m->clear_env);
}

static void put_pty(struct mp_buf *out, const struct exec_start *m)
{
	if (!m->pty)
		return;
	mp_key(out, "pty");
	mp_map_begin(out);
	mp_kv_uint(out, "rows", m->rows ? m->rows : DEFAULT_ROWS);
	mp_kv_uint(out, "cols", m->cols ? m->cols : DEFAULT_COLS);
	kv_text(out, "term", m->term);
	mp_map_end(out);
}

void exec_start_encode_params(struct mp_buf *out, const struct exec_start *m)
{
	mp_map_begin(out);
	put_command(out, m);
	put_env(out, m);
	kv_text(out, "cwd", m->cwd);
	kv_text(out, "user", m->user);
	kv_uint_if(out, "timeout_ms", m->timeout_ms, 0);
	kv_uint_if(out, "grace_ms", m->grace_ms, 0);
	kv_uint_if(out, "output_limit", m->output_limit, 0);
	kv_uint_if(out, "drain_ms", m->drain_ms, HUTCH_DEFAULT_DRAIN_MS);
	kv_uint_if(out, "memory_bytes", m->memory_bytes, 0);
	kv_uint_if(out, "pids", m->pids, 0);
	kv_uint_if(out, "cpu_percent", m->cpu_percent, 0);
	kv_true(out, "merge_stderr", m->merge_stderr);
	kv_true(out, "detach", m->detach);
	kv_true(out, "resumable", m->resumable);
	kv_true(out, "notify", m->notify);
	put_pty(out, m);
	mp_map_end(out);
}

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
	kv_text(out, "errno_name", name);
	kv_text(out, "stage", m->start_error.stage);
	kv_text(out, "path", m->start_error.path);
	kv_text(out, "message", m->start_error.message);
	mp_map_end(out);
}

int exec_result_encode(struct mp_buf *out, const struct exec_result *m)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	kv_text(out, "id", m->id);
	kv_uint_if(out, "pid", m->pid, 0);
	mp_kv_bool(out, "started", m->started);
	mp_kv_uint(out, "exit_code", m->exit_code);
	kv_uint_if(out, "signal", m->signal, 0);
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

int msg_timeout_decode(uint64_t *timeout_ms, const void *params, size_t len,
		       struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*timeout_ms = 0;
	if (mp_params_open(&doc, &r, params, len, "params", err) < 0)
		return -1;
	mp_get_uint(&r, "timeout_ms", 0, HUTCH_MAX_TIMEOUT_MS, timeout_ms);
	return mp_close(&r);
}

int msg_grace_decode(uint32_t *grace_ms, uint32_t dflt, const void *params, size_t len,
		     struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*grace_ms = dflt;
	if (mp_params_open(&doc, &r, params, len, "params", err) < 0)
		return -1;
	mp_get_u32(&r, "grace_ms", 0, HUTCH_MAX_GRACE_MS, grace_ms);
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

static const char event_names[][16] = {
	[EXEC_EVENT_STARTED] = "started", [EXEC_EVENT_STDIN_CLOSED] = "stdin_closed",
	[EXEC_EVENT_GAP] = "gap",	  [EXEC_EVENT_ATTACHED] = "attached",
	[EXEC_EVENT_ACK] = "ack",
};

static enum exec_event_type event_type(const char *name)
{
	for (unsigned i = EXEC_EVENT_STARTED; i <= EXEC_EVENT_ACK; i++)
		if (strcmp(name, event_names[i]) == 0)
			return (enum exec_event_type)i;
	return EXEC_EVENT_OTHER;
}

static void get_gap(struct exec_event *m, struct mp_reader *r)
{
	char stream[16] = "";

	mp_require(r, "stream");
	mp_get_strbuf(r, "stream", stream, sizeof(stream));
	m->stderr_stream = strcmp(stream, "stderr") == 0;
	if (!m->stderr_stream && strcmp(stream, "stdout") != 0)
		mp_fail(r, "stream is \"%s\"; it must be stdout or stderr", stream);
	mp_get_uint(r, "from", 0, HUTCH_MAX_UINT, &m->from);
	mp_get_uint(r, "to", 0, HUTCH_MAX_UINT, &m->to);
	if (m->to < m->from)
		mp_fail(r, "to is less than from; it must not be");
}

static void get_event_fields(struct exec_event *m, struct mp_reader *r)
{
	switch (m->type) {
	case EXEC_EVENT_ATTACHED:
		mp_get_uint(r, "stdout_offset", 0, HUTCH_MAX_UINT, &m->stdout_offset);
		mp_get_uint(r, "stderr_offset", 0, HUTCH_MAX_UINT, &m->stderr_offset);
		mp_get_u32(r, "rows", 0, UINT16_MAX, &m->rows);
		mp_get_u32(r, "cols", 0, UINT16_MAX, &m->cols);
		/* fall through */
	case EXEC_EVENT_STARTED:
		mp_get_name(r, "id", HUTCH_MAX_ID, m->id, sizeof(m->id));
		mp_get_uint(r, "pid", 0, INT32_MAX, &m->pid);
		break;
	case EXEC_EVENT_GAP:
		get_gap(m, r);
		break;
	case EXEC_EVENT_ACK:
		mp_get_uint(r, "stdout", 0, HUTCH_MAX_UINT, &m->stdout_offset);
		mp_get_uint(r, "stderr", 0, HUTCH_MAX_UINT, &m->stderr_offset);
		break;
	case EXEC_EVENT_STDIN_CLOSED:
	case EXEC_EVENT_OTHER:
		break;
	}
}

int exec_event_decode(struct exec_event *m, const void *payload, size_t len,
		      struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;
	const char *name = "";

	memset(m, 0, sizeof(*m));
	if (mp_doc_parse(&doc, payload, len, err) < 0)
		return -1;
	mp_reader_init(&r, &doc, &doc.root, "EVENT", err);
	mp_require(&r, "event");
	mp_get_str(&r, "event", HUTCH_MAX_EVENT, &name);
	m->type = event_type(name);
	get_event_fields(m, &r);
	return msg_close(&r);
}

static void put_event_fields(struct mp_buf *out, const struct exec_event *m)
{
	switch (m->type) {
	case EXEC_EVENT_STARTED:
	case EXEC_EVENT_ATTACHED:
		kv_text(out, "id", m->id);
		kv_uint_if(out, "pid", m->pid, 0);
		if (m->type == EXEC_EVENT_STARTED)
			break;
		mp_kv_uint(out, "stdout_offset", m->stdout_offset);
		mp_kv_uint(out, "stderr_offset", m->stderr_offset);
		kv_uint_if(out, "rows", m->rows, 0);
		kv_uint_if(out, "cols", m->cols, 0);
		break;
	case EXEC_EVENT_GAP:
		mp_kv_str(out, "stream", m->stderr_stream ? "stderr" : "stdout");
		mp_kv_uint(out, "from", m->from);
		mp_kv_uint(out, "to", m->to);
		break;
	case EXEC_EVENT_ACK:
		mp_kv_uint(out, "stdout", m->stdout_offset);
		mp_kv_uint(out, "stderr", m->stderr_offset);
		break;
	case EXEC_EVENT_STDIN_CLOSED:
		break;
	case EXEC_EVENT_OTHER:
		out->failed = true;
		break;
	}
}

int exec_event_encode(struct mp_buf *out, const struct exec_event *m)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_str(out, "event", event_names[m->type]);
	put_event_fields(out, m);
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_EVENT, 0);
}

static bool machine_id_valid(const char *s)
{
	return strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

int agent_identity_decode(struct agent_identity *m, const void *params, size_t len,
			  struct hutch_error *err)
{
	static const char *const required[] = {"generation", "hostname", "machine_id",
					       "realtime_ns", "entropy"};
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&m->doc, &r, params, len, "agent.identity", err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
		mp_require(&r, required[i]);
	mp_get_uint(&r, "generation", 1, HUTCH_MAX_UINT, &m->generation);
	mp_get_name(&r, "hostname", HUTCH_MAX_HOSTNAME, m->hostname, sizeof(m->hostname));
	mp_get_strbuf(&r, "machine_id", m->machine_id, sizeof(m->machine_id));
	if (mp_ok(&r) && !machine_id_valid(m->machine_id))
		mp_fail(&r, "machine_id is \"%s\"; it must be 32 lower-case hex digits",
			m->machine_id);
	mp_get_uint(&r, "realtime_ns", 0, HUTCH_MAX_UINT, &m->realtime_ns);
	mp_get_bytes(&r, "entropy", HUTCH_MIN_ENTROPY, HUTCH_MAX_ENTROPY, &m->entropy,
		     &m->entropy_len);
	return mp_ok(&r) ? 0 : -1;
}

void agent_identity_free(struct agent_identity *m)
{
	mp_doc_free(&m->doc);
	memset(m, 0, sizeof(*m));
}

void agent_identity_encode_params(struct mp_buf *out, const struct agent_identity *m)
{
	mp_map_begin(out);
	mp_kv_uint(out, "generation", m->generation);
	mp_kv_str(out, "hostname", m->hostname);
	mp_kv_str(out, "machine_id", m->machine_id);
	mp_kv_uint(out, "realtime_ns", m->realtime_ns);
	mp_key(out, "entropy");
	mp_put_bin(out, m->entropy, m->entropy_len);
	mp_map_end(out);
}
