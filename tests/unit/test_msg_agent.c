/* SPDX-License-Identifier: Apache-2.0 */
/* agent.identity, snapshot.prepare and resume: round trips, refusals, prefixes and mutations. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_exec.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

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
		.keep_keys = true,
		.disk_bytes = 64ull << 30,
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
	ck_assert(got.keep_keys);
	ck_assert_uint_eq(got.disk_bytes, m.disk_bytes);
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

static int decode_identity(const void *buf, size_t len, struct hutch_error *err)
{
	struct agent_identity m;
	int rc = agent_identity_decode(&m, buf, len, err);

	agent_identity_free(&m);
	return rc;
}

START_TEST(prefixes_and_mutations)
{
	mp_mutate(IDENTITY, decode_identity);
}
END_TEST

START_TEST(snapshot_round_trips)
{
	struct agent_prepared prepared = {.generation = HUTCH_MAX_UINT, .frozen_us = 17}, got;
	struct agent_resume resume = {.generation = 3, .realtime_ns = 1764446400000000000}, again;
	struct hutch_error err;
	struct mp_buf b = {0};
	uint32_t timeout_ms;

	agent_prepare_encode_params(&b, 20);
	ck_assert_int_eq(agent_prepare_decode(&timeout_ms, b.data, b.len, &err), 0);
	ck_assert_uint_eq(timeout_ms, 20);
	ck_assert_int_eq(agent_prepare_decode(&timeout_ms, NULL, 0, &err), 0);
	ck_assert_uint_eq(timeout_ms, HUTCH_MAX_FREEZE_MS);
	mp_buf_reset(&b);
	ck_assert_int_eq(agent_prepared_encode(&b, &prepared), 0);
	ck_assert_int_eq(agent_prepared_decode(&got, b.data + HUTCH_FRAME_HEADER,
					       b.len - HUTCH_FRAME_HEADER, &err),
			 0);
	ck_assert_mem_eq(&got, &prepared, sizeof(got));
	for (int i = 0; i < 2; i++, resume.realtime_ns = 0) {
		mp_buf_reset(&b);
		agent_resume_encode_params(&b, &resume);
		ck_assert_int_eq(agent_resume_decode(&again, b.data, b.len, &err), 0);
		ck_assert_mem_eq(&again, &resume, sizeof(again));
	}
	mp_buf_free(&b);
}
END_TEST

static int decode_prepare(const void *buf, size_t len, struct hutch_error *err)
{
	uint32_t timeout_ms;

	return agent_prepare_decode(&timeout_ms, buf, len, err);
}

static int decode_resume(const void *buf, size_t len, struct hutch_error *err)
{
	struct agent_resume m;

	return agent_resume_decode(&m, buf, len, err);
}

static int decode_prepared(const void *buf, size_t len, struct hutch_error *err)
{
	struct agent_prepared m;

	return agent_prepared_decode(&m, buf, len, err);
}

START_TEST(snapshot_is_refused)
{
	static const struct {
		int (*decode)(const void *buf, size_t len, struct hutch_error *err);
		const char *text, *message;
		enum hutch_error_kind kind;
	} cases[] = {
		{decode_prepare, "{'timeout_ms':0}",
		 "params: timeout_ms is 0; it must be 1 to 1000", HUTCH_E_INVALID},
		{decode_prepare, "{'timeout_ms':1001}",
		 "params: timeout_ms is 1001; it must be 1 to 1000", HUTCH_E_INVALID},
		{decode_resume, "{}", "snapshot.resume: generation is missing", HUTCH_E_INVALID},
		{decode_resume, "{'generation':1,'realtime_ns':0}",
		 "snapshot.resume: realtime_ns is 0; it must be 1 to 9223372036854775807",
		 HUTCH_E_INVALID},
		{decode_prepared, "{'frozen_us':1}", "snapshot.prepare: generation is missing",
		 HUTCH_E_PROTOCOL},
	};
	struct hutch_error err;
	size_t len;
	uint8_t *buf = mp_text(cases[_i].text, &len);

	ck_assert_int_eq(cases[_i].decode(buf, len, &err), -1);
	ck_assert_int_eq(err.kind, cases[_i].kind);
	ck_assert_str_eq(err.message, cases[_i].message);
	free(buf);
}
END_TEST

START_TEST(snapshot_prefixes_and_mutations)
{
	mp_mutate("{'timeout_ms':1000}", decode_prepare);
	mp_mutate("{'generation':1,'frozen_us':70000}", decode_prepared);
	mp_mutate("{'generation':1,'realtime_ns':70000}", decode_resume);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("msg_agent");
	TCase *tc = tcase_create("msg_agent");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, identity_round_trip);
	tcase_add_loop_test(tc, identity_is_refused, 0, 7);
	tcase_add_test(tc, prefixes_and_mutations);
	tcase_add_test(tc, snapshot_round_trips);
	tcase_add_loop_test(tc, snapshot_is_refused, 0, 5);
	tcase_add_test(tc, snapshot_prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
