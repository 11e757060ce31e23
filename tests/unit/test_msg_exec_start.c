/* SPDX-License-Identifier: Apache-2.0 */
/* exec.start: defaults, round trips, every refusal in its words, prefixes and mutations. */
#include <check.h>
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

static int decode_start(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_start m;
	int rc = exec_start_decode(&m, buf, len, err);

	exec_start_free(&m);
	return rc;
}

START_TEST(prefixes_and_mutations)
{
	mp_mutate(FULL, decode_start);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
	Suite *s = suite_create("msg_exec_start");
	TCase *tc = tcase_create("msg_exec_start");
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
	tcase_add_test(tc, prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
