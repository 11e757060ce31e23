/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's side of a client's connection: HELLO, calls, ENDs, and what a client may do wrong. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/broker_rig.h"

static struct rig *rig;

static void setup(void)
{
	rig = rig_new();
}

static void teardown(void)
{
	rig_free(rig);
}

static const struct msg_call ping = {.method = "ping"};

static size_t encode_hello(uint8_t *out)
{
	const struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION,
					.role = ROLE_CLIENT,
					.name = "test/1"};
	struct mp_buf b;
	size_t n;

	mp_buf_init(&b, HUTCH_MAX_HELLO);
	ck_assert_int_eq(msg_hello_encode(&b, &hello), 0);
	n = b.len;
	memcpy(out, b.data, n);
	mp_buf_free(&b);
	return n;
}

static size_t encode_ping(uint8_t *out, unsigned flags)
{
	struct mp_buf b;
	size_t n;

	mp_buf_init(&b, 256);
	ck_assert_int_eq(msg_call_encode(&b, &ping, flags), 0);
	n = b.len;
	memcpy(out, b.data, n);
	mp_buf_free(&b);
	return n;
}

/* HELLO and CALL behind it without waiting, cut in two at every byte. */
START_TEST(pipelined_and_split)
{
	uint8_t bytes[512];
	size_t n = encode_hello(bytes);

	n += encode_ping(bytes + n, FRAME_END);
	for (size_t cut = 0; cut <= n; cut++) {
		int fd = rig_client(rig, 1000);

		peer_raw(fd, bytes, cut);
		rig_turn(rig);
		peer_raw(fd, bytes + cut, n - cut);
		peer_expect(rig, fd, FRAME_HELLO, 0, NULL);
		peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
		close(fd);
	}
	rig_turn(rig);
	ck_assert_uint_eq(rig->b.client_count, 0);
}
END_TEST

START_TEST(many_calls_in_turn)
{
	int fd = rig_client_open(rig, 1000);

	for (int i = 0; i < 100; i++) {
		peer_call(fd, &ping, FRAME_END);
		peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
	}
	close(fd);
}
END_TEST

/* The answer may come before the caller's END; what follows is dropped, and the next call is served. */
START_TEST(input_behind_the_answer)
{
	int fd = rig_client_open(rig, 1000);

	peer_call(fd, &ping, 0);
	peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
	peer_send(fd, FRAME_STDIN, 0, "abc", 3);
	peer_send(fd, FRAME_EVENT, 0, "\x80", 1);
	peer_send(fd, FRAME_STDIN, FRAME_END, NULL, 0);
	peer_call(fd, &ping, FRAME_END);
	peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
	close(fd);
}
END_TEST

START_TEST(call_before_the_end_of_the_last)
{
	int fd = rig_client_open(rig, 1000);

	peer_call(fd, &ping, 0);
	peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
	peer_call(fd, &ping, FRAME_END);
	ck_assert_int_eq(peer_expect_error(rig, fd, NULL), HUTCH_E_PROTOCOL);
	peer_expect_end(rig, fd);
	close(fd);
}
END_TEST

struct bytes {
	const char *what;
	const char *data;
	size_t len;
};

#define BYTES(what, text)                    \
	{                                    \
		what, text, sizeof(text) - 1 \
	}
/* Each instead of a CALL, on a connection of its own. */
static const struct bytes faults[] = {
	BYTES("unknown type", "\0\0\0\0\x63\0\0\0"),
	BYTES("reserved", "\0\0\0\1\2\1\1\0\x80"),
	BYTES("flag", "\0\0\0\1\2\x81\0\0\x80"),
	BYTES("length", "\0\x20\0\0\2\1\0\0"),
	BYTES("HELLO again", "\0\0\0\1\1\0\0\0\x80"),
	BYTES("STDIN without CALL", "\0\0\0\1\x10\1\0\0x"),
	BYTES("RESULT", "\0\0\0\1\3\1\0\0\x80"),
	BYTES("not a map", "\0\0\0\1\2\1\0\0\x90"),
	BYTES("trailing byte", "\0\0\0\2\2\1\0\0\x80\x80"),
	BYTES("array bomb", "\0\0\0\5\2\1\0\0\xdd\xff\xff\xff\xff"),
	BYTES("map bomb", "\0\0\0\5\2\1\0\0\xdf\xff\xff\xff\xff"),
	BYTES("bin bomb", "\0\0\0\5\2\1\0\0\xc6\xff\xff\xff\xff"),
	BYTES("empty payload", "\0\0\0\0\2\1\0\0"),
};

START_TEST(protocol_faults)
{
	const struct bytes *b = &faults[_i];
	int fd = rig_client_open(rig, 1000), other = rig_client_open(rig, 1000);

	peer_raw(fd, b->data, b->len);
	ck_assert_msg(peer_expect_error(rig, fd, NULL) == HUTCH_E_PROTOCOL, "%s", b->what);
	peer_expect_end(rig, fd);
	peer_call(other, &ping, FRAME_END);
	peer_expect(rig, other, FRAME_RESULT, FRAME_END, NULL);
	close(fd);
	close(other);
}
END_TEST

START_TEST(first_frame_is_no_hello)
{
	int fd = rig_client(rig, 1000);

	peer_call(fd, &ping, FRAME_END);
	peer_expect(rig, fd, FRAME_HELLO, 0, NULL);
	ck_assert_int_eq(peer_expect_error(rig, fd, NULL), HUTCH_E_PROTOCOL);
	peer_expect_end(rig, fd);
	close(fd);
}
END_TEST

START_TEST(hello_of_another_role)
{
	int fd = rig_client(rig, 1000);

	peer_hello_as(fd, ROLE_AGENT);
	peer_expect(rig, fd, FRAME_HELLO, 0, NULL);
	ck_assert_int_eq(peer_expect_error(rig, fd, NULL), HUTCH_E_PROTOCOL);
	peer_expect_end(rig, fd);
	close(fd);
}
END_TEST

START_TEST(hello_of_another_version)
{
	const uint8_t hello[] = "\0\0\0\x14\1\0\0\0\x82\xa5proto\x07\xa4role\xa6"
				"client";
	int fd = rig_client(rig, 1000);

	peer_raw(fd, hello, sizeof(hello) - 1);
	peer_expect(rig, fd, FRAME_HELLO, 0, NULL);
	ck_assert_int_eq(peer_expect_error(rig, fd, NULL), HUTCH_E_UNSUPPORTED);
	peer_expect_end(rig, fd);
	close(fd);
}
END_TEST

START_TEST(half_close_between_calls)
{
	int fd = rig_client_open(rig, 1000);

	peer_call(fd, &ping, FRAME_END);
	shutdown(fd, SHUT_WR);
	peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
	peer_expect_end(rig, fd);
	ck_assert_uint_eq(rig->b.client_count, 0);
	close(fd);
}
END_TEST

/* An answer is still awaited when the sending half is closed: it comes. */
START_TEST(half_close_during_a_call)
{
	int listen_fd, fd = rig_client_open(rig, 1000);
	struct vm *vm = rig_vm(rig, 1000, "", &listen_fd);
	struct msg_call wait = {.method = "vm.wait"};

	strcpy(wait.vm, vm->r.id);
	peer_call(fd, &wait, FRAME_END);
	shutdown(fd, SHUT_WR);
	rig_turn(rig);
	ck_assert_uint_eq(rig->b.client_count, 1);
	close(fd);
	rig_turn(rig);
	ck_assert_uint_eq(rig->b.client_count, 0);
	close(listen_fd);
}
END_TEST

START_TEST(methods_are_checked)
{
	static const struct {
		const char *method, *vm;
		enum hutch_error_kind kind;
	} calls[] = {
		{"nope", "", HUTCH_E_UNKNOWN_METHOD},
		{"vm.nope", "", HUTCH_E_UNKNOWN_METHOD},
		{"vm.info", "", HUTCH_E_INVALID},
		{"vm.info", "nobody", HUTCH_E_NOT_FOUND},
		{"vm.kill", "", HUTCH_E_INVALID},
		{"exec.start", "", HUTCH_E_INVALID},
		{"exec.start", "nobody", HUTCH_E_NOT_FOUND},
		{"agent.identity", "nobody", HUTCH_E_DENIED},
		{"agent.shutdown", "nobody", HUTCH_E_DENIED},
		{"agent.anything", "nobody", HUTCH_E_DENIED},
		{"fs.read", "", HUTCH_E_INVALID},
		{"ping", "nobody", HUTCH_E_NOT_FOUND},
	};
	int fd = rig_client_open(rig, 1000);

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct msg_call call = {.params = NULL};

		strcpy(call.method, calls[i].method);
		strcpy(call.vm, calls[i].vm);
		peer_call(fd, &call, FRAME_END);
		ck_assert_msg(peer_expect_error(rig, fd, NULL) == calls[i].kind, "%s %s",
			      calls[i].method, calls[i].vm);
	}
	close(fd);
}
END_TEST

/* What comes of a call whose params say {timeout_ms: 1}. */
static enum hutch_error_kind ask(int fd, const char *method, const char *id)
{
	struct msg_call call = {.params = (const uint8_t *)"\x81\xaatimeout_ms\1",
				.params_len = 13};

	strcpy(call.method, method);
	strcpy(call.vm, id);
	peer_call(fd, &call, FRAME_END);
	return peer_expect_error(rig, fd, NULL);
}

/* Whom the kernel calls a member: this process, both ends of whose connection are its own. */
START_TEST(members_of_a_group)
{
	int listen_fd, fd = rig_client_open(rig, 1001);
	struct vm *vm = rig_vm(rig, 1000, "ours", &listen_fd);

	ck_assert_int_eq(ask(fd, "vm.wait", vm->r.id), HUTCH_E_NOT_FOUND);
	vm->r.shared = true;
	vm->r.share_gid = (uint32_t)getegid() + 77;
	ck_assert_int_eq(ask(fd, "vm.wait", vm->r.id), HUTCH_E_NOT_FOUND);
	vm->r.share_gid = UINT32_MAX;
	ck_assert_int_eq(ask(fd, "vm.wait", vm->r.id), HUTCH_E_NOT_FOUND);
	vm->r.share_gid = (uint32_t)getegid();
	ck_assert_int_eq(ask(fd, "vm.wait", vm->r.id), HUTCH_E_TIMEOUT);
	ck_assert_int_eq(ask(fd, "vm.wait", "ours"), HUTCH_E_NOT_FOUND);
	ck_assert_int_eq(ask(fd, "vm.kill", vm->r.id), HUTCH_E_DENIED);
	ck_assert_int_eq(ask(fd, "snapshot.create", vm->r.id), HUTCH_E_DENIED);
	ck_assert_int_eq(ask(fd, "agent.identity", vm->r.id), HUTCH_E_DENIED);
	vm->r.shared = false;
	ck_assert_int_eq(ask(fd, "vm.kill", vm->r.id), HUTCH_E_NOT_FOUND);
	close(fd);
	close(listen_fd);
}
END_TEST

/* A VM is there for its owner, root and admins. */
START_TEST(owners)
{
	int listen_fd;
	struct vm *vm = rig_vm(rig, 1000, "mine", &listen_fd);
	struct msg_call set = {.method = "vm.wait",
			       .params = (const uint8_t *)"\x81\xaatimeout_ms\1",
			       .params_len = 13};
	const uint32_t uids[] = {1000, 0, 7, 1001};

	rig->config.admin_uids[rig->config.admin_count++] = 7;
	for (int i = 0; i < 8; i++) {
		int fd = rig_client_open(rig, uids[i % 4]);

		strcpy(set.vm, i < 4 ? "mine" : vm->r.id);
		peer_call(fd, &set, FRAME_END);
		ck_assert_int_eq(peer_expect_error(rig, fd, NULL),
				 i % 4 == 3 ? HUTCH_E_NOT_FOUND : HUTCH_E_TIMEOUT);
		close(fd);
	}
	close(listen_fd);
}
END_TEST

/* A client that sends calls and reads no answers is not read any more. */
START_TEST(client_that_does_not_read)
{
	int fd = rig_client_open(rig, 1000), small = 4096;
	uint8_t call[128];
	size_t n = encode_ping(call, FRAME_END);
	struct client *c = TAILQ_FIRST(&rig->b.clients);
	unsigned sent = 0;

	setsockopt(c->s.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	while (send(fd, call, n, MSG_NOSIGNAL) == (ssize_t)n && sent < 100000) {
		sent++;
		if (sent % 64 == 0)
			rig_turn(rig);
	}
	ck_assert_uint_lt(sent, 100000);
	ck_assert_uint_le(stream_queued(&c->s), STREAM_HIGH + 64);
	for (unsigned i = 0; i < sent; i++)
		peer_expect(rig, fd, FRAME_RESULT, FRAME_END, NULL);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("broker_client");
	TCase *t = tcase_create("client");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, pipelined_and_split);
	tcase_add_test(t, many_calls_in_turn);
	tcase_add_test(t, input_behind_the_answer);
	tcase_add_test(t, call_before_the_end_of_the_last);
	tcase_add_loop_test(t, protocol_faults, 0, sizeof(faults) / sizeof(faults[0]));
	tcase_add_test(t, first_frame_is_no_hello);
	tcase_add_test(t, hello_of_another_role);
	tcase_add_test(t, hello_of_another_version);
	tcase_add_test(t, half_close_between_calls);
	tcase_add_test(t, half_close_during_a_call);
	tcase_add_test(t, methods_are_checked);
	tcase_add_test(t, owners);
	tcase_add_test(t, members_of_a_group);
	tcase_add_test(t, client_that_does_not_read);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
