/* SPDX-License-Identifier: Apache-2.0 */
/* exec.*: the result, and the parameters of the smaller methods. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_exec.h"
#include "tests/unit/mp_frame.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

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
	p = only_payload(&b, FRAME_RESULT, FRAME_END, &len);
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

static int decode_result(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_result m;

	return exec_result_decode(&m, buf, len, err);
}

static int decode_signal(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_signal m;

	return exec_signal_decode(&m, buf, len, err);
}

START_TEST(prefixes_and_mutations)
{
	mp_mutate("{'started':true,'exit_code':3,'rusage':{'user_us':1},'start_error':{'kind':"
		  "'io','errno':5,'path':'/x'},'id':'i','signal':1}",
		  decode_result);
	mp_mutate("{'signal':'TERM','tree':true}", decode_signal);
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
	tcase_add_loop_test(tc, result_round_trip, 0, COUNT(results));
	tcase_add_loop_test(tc, result_is_refused, 0, 9);
	tcase_add_test(tc, result_ignores_what_it_does_not_know);
	tcase_add_loop_test(tc, small_params, 0, COUNT(smalls));
	tcase_add_test(tc, prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
