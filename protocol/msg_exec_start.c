/* SPDX-License-Identifier: Apache-2.0 */
/* exec.start: the parameters of a command. */
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
	mp_kv_true(out, "clear_env", m->clear_env);
}

static void put_pty(struct mp_buf *out, const struct exec_start *m)
{
	if (!m->pty)
		return;
	mp_key(out, "pty");
	mp_map_begin(out);
	mp_kv_uint(out, "rows", m->rows ? m->rows : DEFAULT_ROWS);
	mp_kv_uint(out, "cols", m->cols ? m->cols : DEFAULT_COLS);
	mp_kv_text(out, "term", m->term);
	mp_map_end(out);
}

void exec_start_encode_params(struct mp_buf *out, const struct exec_start *m)
{
	mp_map_begin(out);
	put_command(out, m);
	put_env(out, m);
	mp_kv_text(out, "cwd", m->cwd);
	mp_kv_text(out, "user", m->user);
	mp_kv_uint_unless(out, "timeout_ms", m->timeout_ms, 0);
	mp_kv_uint_unless(out, "grace_ms", m->grace_ms, 0);
	mp_kv_uint_unless(out, "output_limit", m->output_limit, 0);
	mp_kv_uint_unless(out, "drain_ms", m->drain_ms, HUTCH_DEFAULT_DRAIN_MS);
	mp_kv_uint_unless(out, "memory_bytes", m->memory_bytes, 0);
	mp_kv_uint_unless(out, "pids", m->pids, 0);
	mp_kv_uint_unless(out, "cpu_percent", m->cpu_percent, 0);
	mp_kv_true(out, "merge_stderr", m->merge_stderr);
	mp_kv_true(out, "detach", m->detach);
	mp_kv_true(out, "resumable", m->resumable);
	mp_kv_true(out, "notify", m->notify);
	put_pty(out, m);
	mp_map_end(out);
}
