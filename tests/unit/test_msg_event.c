/* SPDX-License-Identifier: Apache-2.0 */
/* Events of an exec: round trips, refusals, prefixes and mutations. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_exec.h"
#include "tests/unit/mp_frame.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

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
	{.type = EXEC_EVENT_DETACH},
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
	p = only_payload(&b, FRAME_EVENT, 0, &len);
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

static int decode_event(const void *buf, size_t len, struct hutch_error *err)
{
	struct exec_event m;

	return exec_event_decode(&m, buf, len, err);
}

START_TEST(prefixes_and_mutations)
{
	mp_mutate("{'event':'gap','stream':'stderr','from':1,'to':2}", decode_event);
	mp_mutate("{'event':'attached','id':'x','pid':5,'rows':24}", decode_event);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

int main(void)
{
	Suite *s = suite_create("msg_event");
	TCase *tc = tcase_create("msg_event");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, event_round_trip, 0, COUNT(events));
	tcase_add_test(tc, unknown_events_are_read_but_not_sent);
	tcase_add_loop_test(tc, event_is_refused, 0, 8);
	tcase_add_test(tc, prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
