/* SPDX-License-Identifier: Apache-2.0 */
/* exec.* and agent.identity: round trips, every refusal in its words, prefixes and mutations. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_exec.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

static int start_text(struct exec_start *m, const char *text, struct hutch_error *err)
{
	size_t len;
	uint8_t *buf = mp_text(text, &len);
	int rc = exec_start_decode(m, buf, len, err);

	free(buf);
	return rc;
}

/* The payload of the frame in b. */
static const uint8_t *payload(const struct mp_buf *b, enum frame_type type, unsigned flags,
			      size_t *len)
{
	struct hutch_error err;
	struct frame f;

	ck_assert_uint_ge(b->len, HUTCH_FRAME_HEADER);
	ck_assert_int_eq(frame_decode(b->data, &f, &err), 0);
	ck_assert_int_eq(f.type, type);
	ck_assert_uint_eq(f.flags, flags);
	*len = f.length;
	ck_assert_uint_eq(*len + HUTCH_FRAME_HEADER, b->len);
	return b->data + HUTCH_FRAME_HEADER;
}

START_TEST(start_defaults)
{
	struct hutch_error err;
	struct exec_start m;

	ck_assert_int_eq(start_text(&m, "{'argv':['true']}", &err), 0);
	ck_assert_uint_eq(m.argc, 1);
	ck_assert_str_eq(m.argv[0], "true");
	ck_assert_ptr_null(m.argv[1]);
	ck_assert_ptr_null(m.env);
	ck_assert_ptr_null(m.cwd);
	ck_assert_ptr_null(m.user);
	ck_assert_ptr_null(m.term);
	ck_assert_uint_eq(m.drain_ms, 50);
	ck_assert(!m.timeout_ms && !m.grace_ms && !m.output_limit && !m.memory_bytes && !m.pids &&
		  !m.cpu_percent && !m.env_pairs);
	ck_assert(!m.shell && !m.clear_env && !m.merge_stderr && !m.detach && !m.resumable &&
		  !m.notify && !m.pty);
	exec_start_free(&m);
	exec_start_free(&m);
}
END_TEST

START_TEST(start_shell_form)
{
	static const char *const texts[] = {"{'shell':'exit 7'}", "{'shell':''}", "{'shell':b''}"};
	struct hutch_error err;
	struct exec_start m;

	ck_assert_int_eq(start_text(&m, texts[_i], &err), 0);
	ck_assert(m.shell);
	ck_assert_uint_eq(m.argc, 3);
	ck_assert_str_eq(m.argv[0], "/bin/sh");
	ck_assert_str_eq(m.argv[1], "-c");
	ck_assert_str_eq(m.argv[2], _i ? "" : "exit 7");
	ck_assert_ptr_null(m.argv[3]);
	exec_start_free(&m);
}
END_TEST

START_TEST(start_pty_defaults)
{
	struct hutch_error err;
	struct exec_start m;

	ck_assert_int_eq(start_text(&m, "{'shell':'','pty':{}}", &err), 0);
	ck_assert(m.pty);
	ck_assert_uint_eq(m.rows, 24);
	ck_assert_uint_eq(m.cols, 80);
	ck_assert_str_eq(m.term, "xterm-256color");
	exec_start_free(&m);
}
END_TEST

#define FULL                                                                                     \
	"{'argv':['/bin/x','','\\xff'],'env':{'A':'1','B':'','C':nil},'clear_env':true,"         \
	"'cwd':'/tmp','user':'u:g','timeout_ms':315360000000,'grace_ms':30000,"                  \
	"'output_limit':9223372036854775807,'merge_stderr':true,'detach':true,'resumable':true," \
	"'notify':true,'drain_ms':0,'memory_bytes':1,'pids':4194304,'cpu_percent':100000,"       \
	"'pty':{'rows':1,'cols':65535,'term':'vt100'}}"

static void check_full(const struct exec_start *m)
{
	ck_assert_uint_eq(m->argc, 3);
	ck_assert_str_eq(m->argv[0], "/bin/x");
	ck_assert_str_eq(m->argv[1], "");
	ck_assert_str_eq(m->argv[2], "\xff");
	ck_assert_ptr_null(m->argv[3]);
	ck_assert_uint_eq(m->env_pairs, 3);
	ck_assert_str_eq(m->env[0], "A");
	ck_assert_str_eq(m->env[1], "1");
	ck_assert_str_eq(m->env[3], "");
	ck_assert_str_eq(m->env[4], "C");
	ck_assert_ptr_null(m->env[5]);
	ck_assert_ptr_null(m->env[6]);
	ck_assert_str_eq(m->cwd, "/tmp");
	ck_assert_str_eq(m->user, "u:g");
	ck_assert_uint_eq(m->timeout_ms, HUTCH_MAX_TIMEOUT_MS);
	ck_assert_uint_eq(m->grace_ms, 30000);
	ck_assert_uint_eq(m->output_limit, HUTCH_MAX_UINT);
	ck_assert_uint_eq(m->drain_ms, 0);
	ck_assert_uint_eq(m->memory_bytes, 1);
	ck_assert_uint_eq(m->pids, 4194304);
	ck_assert_uint_eq(m->cpu_percent, 100000);
	ck_assert(m->clear_env && m->merge_stderr && m->detach && m->resumable && m->notify);
	ck_assert(m->pty && !m->shell);
	ck_assert_uint_eq(m->rows, 1);
	ck_assert_uint_eq(m->cols, 65535);
	ck_assert_str_eq(m->term, "vt100");
}

START_TEST(start_round_trip)
{
	struct exec_start m, again;
	struct hutch_error err;
	struct mp_buf b = {0};

	ck_assert_int_eq(start_text(&m, FULL, &err), 0);
	check_full(&m);
	exec_start_encode_params(&b, &m);
	ck_assert(!b.failed);
	exec_start_free(&m);
	ck_assert_int_eq(exec_start_decode(&again, b.data, b.len, &err), 0);
	check_full(&again);
	exec_start_free(&again);
	mp_buf_free(&b);
}
END_TEST

START_TEST(start_round_trip_of_defaults)
{
	static const char want_argv[] = "\xde\x00\x01\xa4"
					"argv\xdc\x00\x01\xa4"
					"true";
	static const char want_shell[] = "\xde\x00\x01\xa5shell\xa2ls";
	const char *want = _i ? want_shell : want_argv;
	size_t want_len = _i ? sizeof(want_shell) - 1 : sizeof(want_argv) - 1;
	struct hutch_error err;
	struct mp_buf b = {0};
	struct exec_start m;

	ck_assert_int_eq(start_text(&m, _i ? "{'shell':'ls'}" : "{'argv':['true']}", &err), 0);
	exec_start_encode_params(&b, &m);
	ck_assert_uint_eq(b.len, want_len);
	ck_assert_mem_eq(b.data, want, want_len);
	exec_start_free(&m);
	mp_buf_free(&b);
}
END_TEST

static const struct {
	const char *text, *message;
} start_refusals[] = {
	{"{}", "argv is missing; it, or shell, must say what to run"},
	{"{'argv':nil,'shell':nil}", "argv is missing; it, or shell, must say what to run"},
	{"{'argv':['x'],'shell':'x'}", "argv and shell are both given; it must be one of them"},
	{"{'argv':[],'shell':''}", "argv and shell are both given; it must be one of them"},
	{"{'argv':[]}", "argv is empty; it must have 1 to 4096 entries"},
	{"{'argv':['']}", "argv[0] is empty; it must name a program"},
	{"{'argv':['','x']}", "argv[0] is empty; it must name a program"},
	{"{'argv':'ls -l'}", "argv is a text; it must be an array of texts"},
	{"{'argv':['ls',7]}", "argv[1] is an integer; it must be a text"},
	{"{'argv':['ls',nil]}", "argv[1] is nil; it must be a text"},
	{"{'argv':['ls','a\\x00b']}", "argv[1] holds a NUL byte; it must not"},
	{"{'shell':['ls']}", "shell is an array; it must be a text"},
	{"{'shell':'a\\x00b'}", "shell holds a NUL byte; it must not"},
	{"{'shell':'','env':{'':'x'}}", "env has an empty name; names must not be empty"},
	{"{'shell':'','env':{'A=B':'x'}}", "env has the name \"A=B\"; names must not hold ="},
	{"{'shell':'','env':{'=':nil}}", "env has the name \"=\"; names must not hold ="},
	{"{'shell':'','env':{'A\\x00':'x'}}", "a name in env holds a NUL byte; it must not"},
	{"{'shell':'','env':{'A':'x\\x00'}}", "env[\"A\"] holds a NUL byte; it must not"},
	{"{'shell':'','env':{'A':1}}", "env[\"A\"] is an integer; it must be a text"},
	{"{'shell':'','env':['A=1']}", "env is an array; it must be a map of texts"},
	{"{'shell':'','clear_env':1}", "clear_env is an integer; it must be a boolean"},
	{"{'shell':'','cwd':''}", "cwd is empty; leave it out for the default"},
	{"{'shell':'','cwd':'/a\\x00'}", "cwd holds a NUL byte; it must not"},
	{"{'shell':'','user':''}", "user is empty; leave it out for the default"},
	{"{'shell':'','user':0}", "user is an integer; it must be a text"},
	{"{'shell':'','timeout_ms':-1}", "timeout_ms is -1; it must be 0 to 315360000000"},
	{"{'shell':'','timeout_ms':315360000001}",
	 "timeout_ms is 315360000001; it must be 0 to 315360000000"},
	{"{'shell':'','timeout_ms':18446744073709551615}",
	 "timeout_ms is 18446744073709551615; it must be 0 to 315360000000"},
	{"{'shell':'','timeout_ms':1.5}", "timeout_ms is a float; it must be an integer"},
	{"{'shell':'','timeout_ms':'5'}", "timeout_ms is a text; it must be an integer"},
	{"{'shell':'','grace_ms':30001}", "grace_ms is 30001; it must be 0 to 30000"},
	{"{'shell':'','output_limit':9223372036854775808}",
	 "output_limit is 9223372036854775808; it must be 0 to 9223372036854775807"},
	{"{'shell':'','output_limit':-9223372036854775808}",
	 "output_limit is -9223372036854775808; it must be 0 to 9223372036854775807"},
	{"{'shell':'','drain_ms':10001}", "drain_ms is 10001; it must be 0 to 10000"},
	{"{'shell':'','memory_bytes':true}", "memory_bytes is a boolean; it must be an integer"},
	{"{'shell':'','pids':4194305}", "pids is 4194305; it must be 0 to 4194304"},
	{"{'shell':'','pids':4294967297}", "pids is 4294967297; it must be 0 to 4194304"},
	{"{'shell':'','cpu_percent':100001}", "cpu_percent is 100001; it must be 0 to 100000"},
	{"{'shell':'','merge_stderr':'yes'}", "merge_stderr is a text; it must be a boolean"},
	{"{'shell':'','detach':{}}", "detach is a map; it must be a boolean"},
	{"{'shell':'','resumable':[]}", "resumable is an array; it must be a boolean"},
	{"{'shell':'','notify':0}", "notify is an integer; it must be a boolean"},
	{"{'shell':'','pty':true}", "pty is a boolean; it must be a map"},
	{"{'shell':'','pty':{'rows':0}}", "pty.rows is 0; it must be 1 to 65535"},
	{"{'shell':'','pty':{'rows':70000}}", "pty.rows is 70000; it must be 1 to 65535"},
	{"{'shell':'','pty':{'cols':65536}}", "pty.cols is 65536; it must be 1 to 65535"},
	{"{'shell':'','pty':{'cols':-80}}", "pty.cols is -80; it must be 1 to 65535"},
	{"{'shell':'','pty':{'term':''}}", "pty.term is empty; leave it out for the default"},
	{"{'shell':'','pty':{'term':'a\\x00'}}", "pty.term holds a NUL byte; it must not"},
	{"{'shell':'','pty':{'term':"
	 "'0123456789012345678901234567890123456789012345678901234567890123x'}}",
	 "pty.term is 65 bytes long; it must be at most 64"},
};

START_TEST(start_is_refused)
{
	char want[256];
	struct hutch_error err;
	struct exec_start m;

	snprintf(want, sizeof(want), "exec.start: %s", start_refusals[_i].message);
	ck_assert_int_eq(start_text(&m, start_refusals[_i].text, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_str_eq(err.message, want);
	exec_start_free(&m);
}
END_TEST

START_TEST(start_without_params)
{
	struct hutch_error err;
	struct exec_start m;

	ck_assert_int_eq(exec_start_decode(&m, NULL, 0, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	exec_start_free(&m);
	ck_assert_int_eq(exec_start_decode(&m, "\x81", 1, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	exec_start_free(&m);
}
END_TEST

static void put_many(struct mp_buf *b, unsigned args, unsigned names)
{
	char name[16];

	mp_map_begin(b);
	mp_key(b, "argv");
	mp_array_begin(b);
	for (unsigned i = 0; i < args; i++)
		mp_put_str(b, "x");
	mp_array_end(b);
	mp_key(b, "env");
	mp_map_begin(b);
	for (unsigned i = 0; i < names; i++) {
		snprintf(name, sizeof(name), "N%u", i);
		mp_kv_str(b, name, "v");
	}
	mp_map_end(b);
	mp_map_end(b);
}

START_TEST(start_limits_of_counts)
{
	static const struct {
		unsigned args, names;
		const char *message;
	} cases[] = {
		{4096, 4096, ""},
		{4097, 0, "exec.start: argv has 4097 entries; it must have at most 4096"},
		{1, 4097, "exec.start: env has 4097 entries; it must have at most 4096"},
	};
	struct hutch_error err;
	struct mp_buf b = {0};
	struct exec_start m;

	put_many(&b, cases[_i].args, cases[_i].names);
	ck_assert(!b.failed);
	ck_assert_int_eq(exec_start_decode(&m, b.data, b.len, &err), _i ? -1 : 0);
	ck_assert_str_eq(err.message, cases[_i].message);
	if (_i == 0) {
		ck_assert_str_eq(m.argv[4095], "x");
		ck_assert_ptr_null(m.argv[4096]);
		ck_assert_str_eq(m.env[8190], "N4095");
		ck_assert_str_eq(m.env[8191], "v");
	}
	exec_start_free(&m);
	mp_buf_free(&b);
}
END_TEST

static const struct exec_result results[] = {
	{.id = "x1", .pid = 77, .started = true, .exit_code = 3, .stdout_bytes = 5},
	{.id = "x2",
	 .pid = INT32_MAX,
	 .started = true,
	 .timed_out = true,
	 .oom_killed = true,
	 .canceled = true,
	 .exit_code = 137,
	 .signal = 9,
	 .stdout_bytes = HUTCH_MAX_UINT,
	 .stderr_bytes = 1,
	 .stdout_truncated = true,
	 .stderr_truncated = true,
	 .duration_us = 1000001,
	 .user_us = 2,
	 .system_us = 3,
	 .max_rss_kib = 4},
	{.id = "x3",
	 .exit_code = 127,
	 .start_error = {.kind = "not_found",
			 .errnum = ENOENT,
			 .stage = "execve",
			 .path = "/no/\xff",
			 .message = "no such program"}},
	{.exit_code = 126, .start_error = {.kind = "io"}},
};

START_TEST(result_round_trip)
{
	const struct exec_result *m = &results[_i];
	struct exec_result got;
	struct hutch_error err;
	struct mp_buf b = {0};
	const uint8_t *p;
	size_t len;

	ck_assert_int_eq(exec_result_encode(&b, m), 0);
	p = payload(&b, FRAME_RESULT, FRAME_END, &len);
	memset(&got, 0xff, sizeof(got));
	ck_assert_int_eq(exec_result_decode(&got, p, len, &err), 0);
	ck_assert_mem_eq(&got, m, sizeof(got));
	mp_buf_free(&b);
}
END_TEST

START_TEST(result_is_refused)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"{'exit_code':256}", "exec result: exit_code is 256; it must be 0 to 255"},
		{"{'exit_code':-1}", "exec result: exit_code is -1; it must be 0 to 255"},
		{"{'signal':65}", "exec result: signal is 65; it must be 0 to 64"},
		{"{'pid':2147483648}",
		 "exec result: pid is 2147483648; it must be 0 to 2147483647"},
		{"{'rusage':7}", "exec result: rusage is an integer; it must be a map"},
		{"{'rusage':{'user_us':-1}}",
		 "exec result: rusage.user_us is -1; it must be 0 to 9223372036854775807"},
		{"{'start_error':{}}", "exec result: start_error.kind is missing"},
		{"{'start_error':{'kind':'0123456789abcdef'}}",
		 "exec result: start_error.kind is 16 bytes long; it must be at most 15"},
		{"{'start_error':'no'}", "exec result: start_error is a text; it must be a map"},
	};
	struct hutch_error err;
	struct exec_result m;
	size_t len;
	uint8_t *buf = mp_text(cases[_i].text, &len);

	ck_assert_int_eq(exec_result_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_str_eq(err.message, cases[_i].message);
	free(buf);
}
END_TEST

START_TEST(result_ignores_what_it_does_not_know)
{
	struct hutch_error err;
	struct exec_result m;
	size_t len;
	uint8_t *buf = mp_text("{'started':true,'new':{'exit_code':9},'rusage':{'new':1}}", &len);

	ck_assert_int_eq(exec_result_decode(&m, buf, len, &err), 0);
	ck_assert(m.started);
	ck_assert_uint_eq(m.exit_code, 0);
	free(buf);
}
END_TEST

/* One call of a small decoder as text, so that a table can show it. */
static int small(const char *method, const void *p, size_t len, char *out, size_t size,
		 struct hutch_error *err)
{
	struct exec_attach attach;
	struct exec_signal sig;
	struct exec_resize resize;
	uint64_t timeout;
	uint32_t grace;
	bool close;
	int rc;

	if (strcmp(method, "attach") == 0) {
		rc = exec_attach_decode(&attach, p, len, err);
		snprintf(out, size, "%d:%llu %d:%llu %d %d", attach.has_stdout_after,
			 (unsigned long long)attach.stdout_after, attach.has_stderr_after,
			 (unsigned long long)attach.stderr_after, attach.owner, attach.tail);
	} else if (strcmp(method, "signal") == 0) {
		rc = exec_signal_decode(&sig, p, len, err);
		snprintf(out, size, "%d %d", sig.signal, sig.tree);
	} else if (strcmp(method, "resize") == 0) {
		rc = exec_resize_decode(&resize, p, len, err);
		snprintf(out, size, "%u %u", resize.rows, resize.cols);
	} else if (strcmp(method, "timeout") == 0) {
		rc = msg_timeout_decode(&timeout, p, len, err);
		snprintf(out, size, "%llu", (unsigned long long)timeout);
	} else if (strcmp(method, "grace") == 0) {
		rc = msg_grace_decode(&grace, 1000, p, len, err);
		snprintf(out, size, "%u", grace);
	} else {
		rc = msg_close_decode(&close, p, len, err);
		snprintf(out, size, "%d", close);
	}
	return rc;
}

static const struct {
	const char *method, *text, *want, *message;
} smalls[] = {
	{"attach", NULL, "0:0 0:0 0 0", NULL},
	{"attach", "{'stdout_after':0,'owner':true}", "1:0 0:0 1 0", NULL},
	{"attach", "{'stdout_after':5,'stderr_after':9223372036854775807}",
	 "1:5 1:9223372036854775807 0 0", NULL},
	{"attach", "{'tail':true}", "0:0 0:0 0 1", NULL},
	{"attach", "{'tail':true,'stdout_after':0}", NULL,
	 "exec.attach: tail and an offset are both given; it must be one of them"},
	{"attach", "{'stdout_after':-1}", NULL,
	 "exec.attach: stdout_after is -1; it must be 0 to 9223372036854775807"},
	{"signal", "{'signal':15}", "15 0", NULL},
	{"signal", "{'signal':64,'tree':true}", "64 1", NULL},
	{"signal", "{'signal':'TERM'}", "15 0", NULL},
	{"signal", "{'signal':b'SIGKILL'}", "9 0", NULL},
	{"signal", "{'signal':'HUP'}", "1 0", NULL},
	{"signal", "{'signal':'SYS'}", "31 0", NULL},
	{"signal", "{'signal':'VTALRM'}", "26 0", NULL},
	{"signal", NULL, NULL, "exec.signal: signal is missing"},
	{"signal", "{'signal':0}", NULL, "exec.signal: signal is 0; it must be 1 to 64"},
	{"signal", "{'signal':65}", NULL, "exec.signal: signal is 65; it must be 1 to 64"},
	{"signal", "{'signal':-9}", NULL, "exec.signal: signal is -9; it must be 1 to 64"},
	{"signal", "{'signal':''}", NULL,
	 "exec.signal: signal is \"\"; it must be 1 to 64 or a name such as TERM"},
	{"signal", "{'signal':'SIG'}", NULL,
	 "exec.signal: signal is \"SIG\"; it must be 1 to 64 or a name such as TERM"},
	{"signal", "{'signal':'term'}", NULL,
	 "exec.signal: signal is \"term\"; it must be 1 to 64 or a name such as TERM"},
	{"signal", "{'signal':'a name that is too long'}", NULL,
	 "exec.signal: signal is 23 bytes long; it must be at most 15"},
	{"signal", "{'signal':[9]}", NULL,
	 "exec.signal: signal is an array; it must be an integer"},
	{"resize", "{'rows':1,'cols':65535}", "1 65535", NULL},
	{"resize", "{'rows':1}", NULL, "exec.resize: cols is missing"},
	{"resize", "{'rows':0,'cols':1}", NULL, "exec.resize: rows is 0; it must be 1 to 65535"},
	{"resize", "{'rows':1,'cols':70000}", NULL,
	 "exec.resize: cols is 70000; it must be 1 to 65535"},
	{"timeout", NULL, "0", NULL},
	{"timeout", "{'timeout_ms':315360000000}", "315360000000", NULL},
	{"timeout", "{'timeout_ms':315360000001}", NULL,
	 "params: timeout_ms is 315360000001; it must be 0 to 315360000000"},
	{"grace", NULL, "1000", NULL},
	{"grace", "{'grace_ms':0}", "0", NULL},
	{"grace", "{'grace_ms':30001}", NULL, "params: grace_ms is 30001; it must be 0 to 30000"},
	{"close", NULL, "0", NULL},
	{"close", "{'close':true}", "1", NULL},
	{"close", "{'close':1}", NULL, "exec.stdin: close is an integer; it must be a boolean"},
};

START_TEST(small_params)
{
	char got[128] = "";
	struct hutch_error err;
	size_t len = 0;
	uint8_t *buf = smalls[_i].text ? mp_text(smalls[_i].text, &len) : NULL;
	int rc = small(smalls[_i].method, buf, len, got, sizeof(got), &err);

	free(buf);
	ck_assert_int_eq(rc, smalls[_i].message ? -1 : 0);
	ck_assert_str_eq(err.message, smalls[_i].message ? smalls[_i].message : "");
	if (!smalls[_i].message)
		ck_assert_str_eq(got, smalls[_i].want);
	else
		ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
}
END_TEST

static const struct exec_event events[] = {
	{.type = EXEC_EVENT_STARTED, .id = "x", .pid = 5},
	{.type = EXEC_EVENT_STDIN_CLOSED},
	{.type = EXEC_EVENT_GAP, .stderr_stream = true, .from = 1, .to = HUTCH_MAX_UINT},
	{.type = EXEC_EVENT_GAP, .from = 7, .to = 7},
	{.type = EXEC_EVENT_ATTACHED,
	 .id = "x",
	 .pid = 5,
	 .stdout_offset = 10,
	 .stderr_offset = 20,
	 .rows = 24,
	 .cols = 80},
	{.type = EXEC_EVENT_ATTACHED, .id = "x"},
	{.type = EXEC_EVENT_ACK, .stdout_offset = 10, .stderr_offset = 20},
};

START_TEST(event_round_trip)
{
	struct hutch_error err;
	struct mp_buf b = {0};
	struct exec_event got;
	const uint8_t *p;
	size_t len;

	ck_assert_int_eq(exec_event_encode(&b, &events[_i]), 0);
	p = payload(&b, FRAME_EVENT, 0, &len);
	memset(&got, 0xff, sizeof(got));
	ck_assert_int_eq(exec_event_decode(&got, p, len, &err), 0);
	ck_assert_mem_eq(&got, &events[_i], sizeof(got));
	mp_buf_free(&b);
}
END_TEST

START_TEST(unknown_events_are_read_but_not_sent)
{
	struct hutch_error err;
	struct exec_event m;
	struct mp_buf b = {0};
	size_t len;
	uint8_t *buf = mp_text("{'event':'of_tomorrow','pid':-1,'stream':[]}", &len);

	ck_assert_int_eq(exec_event_decode(&m, buf, len, &err), 0);
	ck_assert_int_eq(m.type, EXEC_EVENT_OTHER);
	ck_assert_int_eq(exec_event_encode(&b, &m), -1);
	ck_assert_uint_eq(b.len, 0);
	mp_buf_free(&b);
	free(buf);
}
END_TEST

START_TEST(event_is_refused)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"{}", "EVENT: event is missing"},
		{"{'event':7}", "EVENT: event is an integer; it must be a text"},
		{"{'event':'gap'}", "EVENT: stream is missing"},
		{"{'event':'gap','stream':'stdin'}",
		 "EVENT: stream is \"stdin\"; it must be stdout or stderr"},
		{"{'event':'gap','stream':'stdout','from':2,'to':1}",
		 "EVENT: to is less than from; it must not be"},
		{"{'event':'ack','stdout':-1}",
		 "EVENT: stdout is -1; it must be 0 to 9223372036854775807"},
		{"{'event':'started','pid':'1'}", "EVENT: pid is a text; it must be an integer"},
		{"{'event':'attached','rows':70000}",
		 "EVENT: rows is 70000; it must be 0 to 65535"},
	};
	struct hutch_error err;
	struct exec_event m;
	size_t len;
	uint8_t *buf = mp_text(cases[_i].text, &len);

	ck_assert_int_eq(exec_event_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_str_eq(err.message, cases[_i].message);
	free(buf);
}
END_TEST

#define MACHINE_ID "0123456789abcdef0123456789abcdef"
#define ENTROPY	   "0123456789abcdef0123456789abcdef"
#define IDENTITY                                                                        \
	"{'generation':1,'hostname':'h','machine_id':'" MACHINE_ID "','realtime_ns':5," \
	"'entropy':b'" ENTROPY "'}"

START_TEST(identity_round_trip)
{
	static uint8_t entropy[HUTCH_MAX_ENTROPY];
	struct agent_identity m = {
		.generation = HUTCH_MAX_UINT,
		.hostname = "0123456789012345678901234567890123456789012345678901234567890123",
		.machine_id = MACHINE_ID,
		.realtime_ns = 1764446400000000000,
		.entropy = entropy,
		.entropy_len = sizeof(entropy),
	};
	struct agent_identity got;
	struct hutch_error err;
	struct mp_buf b = {0};

	for (size_t i = 0; i < sizeof(entropy); i++)
		entropy[i] = (uint8_t)i;
	agent_identity_encode_params(&b, &m);
	ck_assert(!b.failed);
	ck_assert_int_eq(agent_identity_decode(&got, b.data, b.len, &err), 0);
	ck_assert_uint_eq(got.generation, m.generation);
	ck_assert_str_eq(got.hostname, m.hostname);
	ck_assert_str_eq(got.machine_id, m.machine_id);
	ck_assert_uint_eq(got.realtime_ns, m.realtime_ns);
	ck_assert_uint_eq(got.entropy_len, m.entropy_len);
	ck_assert_mem_eq(got.entropy, m.entropy, m.entropy_len);
	agent_identity_free(&got);
	agent_identity_free(&got);
	mp_buf_free(&b);
}
END_TEST

START_TEST(identity_is_refused)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"{}", "agent.identity: generation is missing"},
		{"{'generation':1,'hostname':'h','machine_id':'" MACHINE_ID "','realtime_ns':5}",
		 "agent.identity: entropy is missing"},
		{"{'generation':0,'hostname':'h','machine_id':'" MACHINE_ID
		 "','realtime_ns':5,'entropy':''}",
		 "agent.identity: generation is 0; it must be 1 to 9223372036854775807"},
		{"{'generation':1,'hostname':'a b','machine_id':'" MACHINE_ID
		 "','realtime_ns':5,'entropy':''}",
		 "agent.identity: hostname is \"a b\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not "
		 "starting with . or -"},
		{"{'generation':1,'hostname':'h','machine_id':'ABC','realtime_ns':5,'entropy':''}",
		 "agent.identity: machine_id is \"ABC\"; it must be 32 lower-case hex digits"},
		{"{'generation':1,'hostname':'h','machine_id':'" MACHINE_ID
		 "','realtime_ns':9223372036854775808,'entropy':''}",
		 "agent.identity: realtime_ns is 9223372036854775808; it must be 0 to "
		 "9223372036854775807"},
		{"{'generation':1,'hostname':'h','machine_id':'" MACHINE_ID
		 "','realtime_ns':5,'entropy':'short'}",
		 "agent.identity: entropy is 5 bytes long; it must be 32 to 512"},
	};
	struct agent_identity m;
	struct hutch_error err;
	size_t len;
	uint8_t *buf = mp_text(cases[_i].text, &len);

	ck_assert_int_eq(agent_identity_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_str_eq(err.message, cases[_i].message);
	agent_identity_free(&m);
	free(buf);
}
END_TEST

static int decode_start(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_start m;
	int rc = exec_start_decode(&m, buf, len, err);

	exec_start_free(&m);
	return rc;
}

static int decode_result(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_result m;

	return exec_result_decode(&m, buf, len, err);
}

static int decode_event(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_event m;

	return exec_event_decode(&m, buf, len, err);
}

static int decode_identity(const void *buf, size_t len, struct hutch_error *err)
{
	struct agent_identity m;
	int rc = agent_identity_decode(&m, buf, len, err);

	agent_identity_free(&m);
	return rc;
}

static int decode_signal(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_signal m;

	return exec_signal_decode(&m, buf, len, err);
}

START_TEST(prefixes_and_mutations)
{
	switch (_i) {
	case 0:
		mp_mutate(FULL, decode_start);
		break;
	case 1:
		mp_mutate(
			"{'started':true,'exit_code':3,'rusage':{'user_us':1},'start_error':{'kind':"
			"'io','errno':5,'path':'/x'},'id':'i','signal':1}",
			decode_result);
		break;
	case 2:
		mp_mutate("{'event':'gap','stream':'stderr','from':1,'to':2}", decode_event);
		mp_mutate("{'event':'attached','id':'x','pid':5,'rows':24}", decode_event);
		break;
	case 3:
		mp_mutate(IDENTITY, decode_identity);
		break;
	default:
		mp_mutate("{'signal':'TERM','tree':true}", decode_signal);
	}
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
	Suite *s = suite_create("msg_exec");
	TCase *tc = tcase_create("msg_exec");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, start_defaults);
	tcase_add_loop_test(tc, start_shell_form, 0, 3);
	tcase_add_test(tc, start_pty_defaults);
	tcase_add_test(tc, start_round_trip);
	tcase_add_loop_test(tc, start_round_trip_of_defaults, 0, 2);
	tcase_add_loop_test(tc, start_is_refused, 0, COUNT(start_refusals));
	tcase_add_test(tc, start_without_params);
	tcase_add_loop_test(tc, start_limits_of_counts, 0, 3);
	tcase_add_loop_test(tc, result_round_trip, 0, COUNT(results));
	tcase_add_loop_test(tc, result_is_refused, 0, 9);
	tcase_add_test(tc, result_ignores_what_it_does_not_know);
	tcase_add_loop_test(tc, small_params, 0, COUNT(smalls));
	tcase_add_loop_test(tc, event_round_trip, 0, COUNT(events));
	tcase_add_test(tc, unknown_events_are_read_but_not_sent);
	tcase_add_loop_test(tc, event_is_refused, 0, 8);
	tcase_add_test(tc, identity_round_trip);
	tcase_add_loop_test(tc, identity_is_refused, 0, 7);
	tcase_add_loop_test(tc, prefixes_and_mutations, 0, 5);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
