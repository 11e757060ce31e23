/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO, the CALL envelope, ERROR: round trips, refusals in words, prefixes and mutations. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg.h"
#include "tests/unit/mp_frame.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

#define BOOT_ID "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"

START_TEST(hello_round_trip)
{
	static const struct msg_hello cases[] = {
		{.proto = 1, .role = ROLE_CLIENT, .name = "hutch 0.1"},
		{.proto = 1, .role = ROLE_BROKER},
		{.proto = 1,
		 .role = ROLE_AGENT,
		 .name = "hutch-agent 0.1",
		 .boot_id = BOOT_ID,
		 .generation = HUTCH_MAX_UINT,
		 .pid1 = true,
		 .held = true},
	};
	struct hutch_error err;
	struct mp_buf b = {0};
	struct msg_hello got;
	const uint8_t *p;
	size_t len;

	ck_assert_int_eq(msg_hello_encode(&b, &cases[_i]), 0);
	p = only_payload(&b, FRAME_HELLO, 0, &len);
	memset(&got, 0xff, sizeof(got));
	ck_assert_int_eq(msg_hello_decode(&got, p, len, &err), 0);
	ck_assert_uint_eq(got.proto, 1);
	ck_assert_int_eq(got.role, cases[_i].role);
	ck_assert_str_eq(got.name, cases[_i].name);
	ck_assert_str_eq(got.boot_id, cases[_i].boot_id);
	ck_assert_uint_eq(got.generation, cases[_i].generation);
	ck_assert(got.pid1 == cases[_i].pid1);
	ck_assert(got.held == cases[_i].held);
	mp_buf_free(&b);
}
END_TEST

START_TEST(hello_without_a_role_is_not_sent)
{
	struct msg_hello m = {.proto = 1};
	struct mp_buf b = {0};

	ck_assert_int_eq(msg_hello_encode(&b, &m), -1);
	ck_assert_uint_eq(b.len, 0);
	mp_buf_free(&b);
}
END_TEST

START_TEST(hello_is_refused)
{
	static const struct {
		const char *text;
		enum hutch_error_kind kind;
		const char *message;
	} cases[] = {
		{"{}", HUTCH_E_PROTOCOL, "HELLO: proto is missing"},
		{"{'proto':2}", HUTCH_E_UNSUPPORTED, "HELLO: proto is 2; this side speaks 1"},
		{"{'proto':0,'role':7}", HUTCH_E_UNSUPPORTED,
		 "HELLO: proto is 0; this side speaks 1"},
		{"{'proto':'1'}", HUTCH_E_PROTOCOL,
		 "HELLO: proto is a text; it must be an integer"},
		{"{'proto':-1}", HUTCH_E_PROTOCOL,
		 "HELLO: proto is -1; it must be 0 to 4294967295"},
		{"{'proto':1}", HUTCH_E_PROTOCOL, "HELLO: role is missing"},
		{"{'proto':1,'role':'root'}", HUTCH_E_PROTOCOL,
		 "HELLO: role is \"root\"; it must be client, broker or agent"},
		{"{'proto':1,'role':''}", HUTCH_E_PROTOCOL,
		 "HELLO: role is \"\"; it must be client, broker or agent"},
		{"{'proto':1,'role':'client','name':"
		 "'0123456789012345678901234567890123456789012345678901234567890123x'}",
		 HUTCH_E_PROTOCOL, "HELLO: name is 65 bytes long; it must be at most 64"},
		{"{'proto':1,'role':'agent','boot_id':'0b1c'}", HUTCH_E_PROTOCOL,
		 "HELLO: boot_id is \"0b1c\"; it must be a UUID of 36 bytes"},
		{"{'proto':1,'role':'agent','generation':-5}", HUTCH_E_PROTOCOL,
		 "HELLO: generation is -5; it must be 0 to 9223372036854775807"},
		{"{'proto':1,'role':'agent','pid1':1}", HUTCH_E_PROTOCOL,
		 "HELLO: pid1 is an integer; it must be a boolean"},
		{"{'proto':1,'proto':1,'role':'agent'}", HUTCH_E_PROTOCOL,
		 "payload: key \"proto\" is there twice"},
	};
	struct hutch_error err;
	struct msg_hello m;
	size_t len;
	uint8_t *buf = mp_text(cases[_i].text, &len);

	ck_assert_int_eq(msg_hello_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, cases[_i].kind);
	ck_assert_str_eq(err.message, cases[_i].message);
	free(buf);
}
END_TEST

START_TEST(an_empty_payload_is_no_message)
{
	struct hutch_error err, e;
	struct msg_hello hello;
	struct msg_call call;

	ck_assert_int_eq(msg_hello_decode(&hello, NULL, 0, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_int_eq(msg_call_decode(&call, "", 0, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_int_eq(msg_error_decode(&e, "", 0, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
}
END_TEST

START_TEST(call_round_trip)
{
	static const uint8_t params[] = {0x81, 0xa1, 'k', 0x93, 1, 2, 0x80};
	const struct msg_call cases[] = {
		{.method = "ping"},
		{.method = "exec.start",
		 .vm = "my-vm",
		 .id = "x.1",
		 .key = "k_2",
		 .params = params,
		 .params_len = sizeof(params)},
	};
	const struct msg_call *m = &cases[_i];
	struct hutch_error err;
	struct mp_buf b = {0};
	struct msg_call got;
	const uint8_t *p;
	size_t len;

	ck_assert_int_eq(msg_call_encode(&b, m, _i ? 0 : FRAME_END), 0);
	p = only_payload(&b, FRAME_CALL, _i ? 0 : FRAME_END, &len);
	memset(&got, 0xff, sizeof(got));
	ck_assert_int_eq(msg_call_decode(&got, p, len, &err), 0);
	ck_assert_str_eq(got.method, m->method);
	ck_assert_str_eq(got.vm, m->vm);
	ck_assert_str_eq(got.id, m->id);
	ck_assert_str_eq(got.key, m->key);
	ck_assert_uint_eq(got.params_len, m->params_len);
	if (m->params) {
		ck_assert_mem_eq(got.params, m->params, m->params_len);
		ck_assert(got.params > p && got.params + got.params_len <= p + len);
	} else {
		ck_assert_ptr_null(got.params);
	}
	mp_buf_free(&b);
}
END_TEST

/* {method: "m", params: {k: bin}} with params of params_len bytes. */
static uint8_t *large_call(size_t params_len, size_t *len)
{
	static const char head[] = "\x82\xa6method\xa1m\xa6params\x81\xa1k\xc6";
	const size_t at = sizeof(head) - 1, n = params_len - 8;
	uint8_t *buf = malloc(at + 4 + n);

	ck_assert_ptr_nonnull(buf);
	memcpy(buf, head, at);
	for (unsigned i = 0; i < 4; i++)
		buf[at + i] = (uint8_t)(n >> (24 - 8 * i));
	memset(buf + at + 4, 'x', n);
	*len = at + 4 + n;
	return buf;
}

/* A relay reads an envelope and writes another, longer one around the largest params. */
START_TEST(the_largest_params_can_be_relayed)
{
	struct hutch_error err;
	struct mp_buf b = {0};
	struct msg_call m;
	size_t len;
	uint8_t *buf = large_call(HUTCH_MAX_PARAMS, &len);

	ck_assert_int_eq(msg_call_decode(&m, buf, len, &err), 0);
	ck_assert_uint_eq(m.params_len, HUTCH_MAX_PARAMS);
	memset(m.method, 'm', HUTCH_MAX_METHOD);
	memset(m.vm, 'v', HUTCH_MAX_VM_NAME);
	memset(m.id, 'i', HUTCH_MAX_ID);
	memset(m.key, 'k', HUTCH_MAX_KEY);
	ck_assert_int_eq(msg_call_encode(&b, &m, 0), 0);
	mp_buf_free(&b);
	free(buf);
	buf = large_call(HUTCH_MAX_PARAMS + 1, &len);
	ck_assert_int_eq(msg_call_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_TOO_LARGE);
	ck_assert_str_eq(err.message,
			 "CALL: params is 1047553 bytes long; it must be at most 1047552");
	free(buf);
}
END_TEST

START_TEST(call_is_refused)
{
	static const struct {
		const char *text;
		enum hutch_error_kind kind;
		const char *message;
	} cases[] = {
		{"{}", HUTCH_E_INVALID, "CALL: method is missing"},
		{"{'method':nil}", HUTCH_E_INVALID, "CALL: method is missing"},
		{"{'method':''}", HUTCH_E_INVALID,
		 "CALL: method is empty; it must be family.verb or ping"},
		{"{'method':7}", HUTCH_E_INVALID, "CALL: method is an integer; it must be a text"},
		{"{'method':'a\\x00'}", HUTCH_E_INVALID,
		 "CALL: method holds a NUL byte; it must not"},
		{"{'method':'0123456789012345678901234567890123456789012345678901234567890123'}",
		 HUTCH_E_INVALID, "CALL: method is 64 bytes long; it must be at most 63"},
		{"{'method':'ping','id':'../x'}", HUTCH_E_INVALID,
		 "CALL: id is \"../x\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . "
		 "or -"},
		{"{'method':'ping','id':''}", HUTCH_E_INVALID,
		 "CALL: id is \"\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -"},
		{"{'method':'ping','key':'a b'}", HUTCH_E_INVALID,
		 "CALL: key is \"a b\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . "
		 "or -"},
		{"{'method':'ping','vm':'-rf'}", HUTCH_E_INVALID,
		 "CALL: vm is \"-rf\"; it must be 1 to 128 of A-Z a-z 0-9 . _ -, not starting with . or "
		 "-"},
		{"{'method':'ping','params':[]}", HUTCH_E_INVALID,
		 "CALL: params is not a map; it must be one"},
		{"{'method':'ping','params':7}", HUTCH_E_INVALID,
		 "CALL: params is not a map; it must be one"},
		{"{'method':'ping','params':{'a':1,'a':2}}", HUTCH_E_PROTOCOL,
		 "payload: key \"a\" is there twice"},
		{"{'method':'ping','params':{7:1}}", HUTCH_E_PROTOCOL,
		 "payload: byte 25 of 27: a map's key is not a str"},
	};
	struct hutch_error err;
	struct msg_call m;
	size_t len;
	uint8_t *buf = mp_text(cases[_i].text, &len);

	ck_assert_int_eq(msg_call_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, cases[_i].kind);
	ck_assert_str_eq(err.message, cases[_i].message);
	free(buf);
}
END_TEST

START_TEST(unknown_keys_and_order_mean_nothing)
{
	struct hutch_error err;
	struct msg_call m;
	size_t len;
	uint8_t *buf =
		mp_text("{'later':[{'method':1}],'id':b'i','params':{},'vm':nil,'method':'x.y',"
			"'':''}",
			&len);

	ck_assert_int_eq(msg_call_decode(&m, buf, len, &err), 0);
	ck_assert_str_eq(m.method, "x.y");
	ck_assert_str_eq(m.id, "i");
	ck_assert_str_eq(m.vm, "");
	ck_assert_uint_eq(m.params_len, 3);
	free(buf);
}
END_TEST

START_TEST(error_round_trip)
{
	struct hutch_error err, e, got;
	struct mp_buf b = {0};
	const uint8_t *p;
	size_t len;

	for (int k = HUTCH_OK + 1; k < HUTCH_E_COUNT; k++) {
		hutch_error_set(&e, (enum hutch_error_kind)k, k % 2 ? ENOENT : 0, "what %d", k);
		strcpy(e.stage, k % 3 ? "" : "boot");
		strcpy(e.path, k % 4 ? "" : "/a/\xff");
		e.retryable = k % 5 == 0;
		ck_assert_int_eq(msg_error_encode(&b, &e), 0);
		p = only_payload(&b, FRAME_ERROR, FRAME_END, &len);
		memset(&got, 0xff, sizeof(got));
		ck_assert_int_eq(msg_error_decode(&got, p, len, &err), 0);
		ck_assert_int_eq(got.kind, e.kind);
		ck_assert_int_eq(got.errnum, e.errnum);
		ck_assert_str_eq(got.message, e.message);
		ck_assert_str_eq(got.stage, e.stage);
		ck_assert_str_eq(got.path, e.path);
		ck_assert(got.retryable == e.retryable);
		mp_buf_reset(&b);
	}
	mp_buf_free(&b);
}
END_TEST

START_TEST(error_carries_the_name_of_its_errno)
{
	struct hutch_error e;
	struct mp_buf b = {0};

	hutch_error_set(&e, HUTCH_E_IO, EACCES, "x");
	ck_assert_int_eq(msg_error_encode(&b, &e), 0);
	ck_assert_ptr_nonnull(memmem(b.data, b.len, "EACCES", 6));
	mp_buf_reset(&b);
	e.errnum = 4000;
	ck_assert_int_eq(msg_error_encode(&b, &e), 0);
	ck_assert_ptr_null(memmem(b.data, b.len, "errno_name", 10));
	mp_buf_free(&b);
}
END_TEST

/* An error that was never set must still reach the other side as one. */
START_TEST(error_without_a_kind_is_internal)
{
	struct hutch_error err, e = {0}, got;
	struct mp_buf b = {0};
	const uint8_t *p;
	size_t len;

	ck_assert_int_eq(msg_error_encode(&b, &e), 0);
	p = only_payload(&b, FRAME_ERROR, FRAME_END, &len);
	ck_assert_int_eq(msg_error_decode(&got, p, len, &err), 0);
	ck_assert_int_eq(got.kind, HUTCH_E_INTERNAL);
	mp_buf_free(&b);
}
END_TEST

START_TEST(error_of_a_stranger)
{
	struct hutch_error err, e;
	size_t len;
	uint8_t *buf = mp_text("{'kind':'from_the_future','message':'a\\x1b[2J\\xff','stage':"
			       "'a stage that is longer than what there is room for'}",
			       &len);

	ck_assert_int_eq(msg_error_decode(&e, buf, len, &err), 0);
	ck_assert_int_eq(e.kind, HUTCH_E_INTERNAL);
	ck_assert_str_eq(e.message, "a?[2J?");
	ck_assert_str_eq(e.stage, "a stage that is longer than wha");
	free(buf);
	buf = mp_text("{'message':'x'}", &len);
	ck_assert_int_eq(msg_error_decode(&e, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_str_eq(err.message, "ERROR: kind is missing");
	free(buf);
}
END_TEST

START_TEST(empty_result)
{
	static const uint8_t want[] = {0, 0, 0, 3, FRAME_RESULT, FRAME_END, 0, 0, 0xde, 0, 0};
	struct mp_buf b = {0};

	ck_assert_int_eq(msg_empty_result_encode(&b), 0);
	ck_assert_uint_eq(b.len, sizeof(want));
	ck_assert_mem_eq(b.data, want, sizeof(want));
	mp_buf_free(&b);
}
END_TEST

static int decode_hello(const void *buf, size_t len, struct hutch_error *err)
{
	struct msg_hello m;

	return msg_hello_decode(&m, buf, len, err);
}

static int decode_call(const void *buf, size_t len, struct hutch_error *err)
{
	struct msg_call m;

	return msg_call_decode(&m, buf, len, err);
}

static int decode_error(const void *buf, size_t len, struct hutch_error *err)
{
	struct hutch_error e;

	return msg_error_decode(&e, buf, len, err);
}

START_TEST(prefixes_and_mutations)
{
	mp_mutate("{'proto':1,'role':'agent','name':'x','boot_id':'" BOOT_ID
		  "','generation':300,'pid1':true}",
		  decode_hello);
	mp_mutate("{'method':'exec.start','vm':'v','id':'i','key':'k','params':{'argv':['a',{}]}}",
		  decode_call);
	mp_mutate(
		"{'kind':'io','message':'m','errno':2,'errno_name':'ENOENT','stage':'s','path':'/p',"
		"'retryable':false}",
		decode_error);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("msg");
	TCase *tc = tcase_create("msg");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, hello_round_trip, 0, 3);
	tcase_add_test(tc, hello_without_a_role_is_not_sent);
	tcase_add_loop_test(tc, hello_is_refused, 0, 13);
	tcase_add_test(tc, an_empty_payload_is_no_message);
	tcase_add_loop_test(tc, call_round_trip, 0, 2);
	tcase_add_test(tc, the_largest_params_can_be_relayed);
	tcase_add_loop_test(tc, call_is_refused, 0, 14);
	tcase_add_test(tc, unknown_keys_and_order_mean_nothing);
	tcase_add_test(tc, error_round_trip);
	tcase_add_test(tc, error_carries_the_name_of_its_errno);
	tcase_add_test(tc, error_without_a_kind_is_internal);
	tcase_add_test(tc, error_of_a_stranger);
	tcase_add_test(tc, empty_result);
	tcase_add_test(tc, prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
