/* SPDX-License-Identifier: Apache-2.0 */
/* Calls between a client and an agent: envelopes, both ENDs, back-pressure, and every way in which one side goes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/broker_rig.h"

#define RESULT     \
	"\x81\xa9" \
	"exit_code\7"

static struct rig *rig;
static struct vm *vm;
static int listen_fd, client, agent;

static void setup(void)
{
	rig = rig_new();
	vm = rig_vm(rig, 1000, "box", &listen_fd);
	client = rig_client_open(rig, 1000);
	agent = -1;
}

static void teardown(void)
{
	close(client);
	if (agent >= 0)
		close(agent);
	close(listen_fd);
	rig_free(rig);
}

static struct msg_call exec_call(void)
{
	/* {argv: ["x"], detach: nil} */
	static const uint8_t params[] = "\x82\xa4"
					"argv\x91\xa1x\xa6"
					"detach\xc0";
	struct msg_call call = {.method = "exec.start",
				.vm = "box",
				.params = params,
				.params_len = 17};

	return call;
}

static void read_call(int fd, struct msg_call *call, unsigned flags, struct peer_frame *frame)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	peer_expect(rig, fd, FRAME_CALL, flags, frame);
	ck_assert_int_eq(msg_call_decode(call, frame->payload, frame->f.length, &err), 0);
}

/* The client has sent an exec.start: connect as the agent and read it. */
static void begin(const struct msg_call *call, unsigned flags, struct msg_call *got)
{
	struct peer_frame frame;

	peer_call(client, call, flags);
	agent = rig_agent(rig, listen_fd);
	ck_assert_int_ge(agent, 0);
	read_call(agent, got, flags, &frame);
	free(frame.payload);
	got->params = NULL;
}

static void finish(void)
{
	peer_send(agent, FRAME_RESULT, FRAME_END, RESULT, sizeof(RESULT) - 1);
	peer_expect(rig, client, FRAME_RESULT, FRAME_END, NULL);
}

/* Leave one link in the pool. */
static void warm(void)
{
	struct msg_call call = exec_call(), got;

	begin(&call, FRAME_END, &got);
	finish();
	ck_assert_uint_eq(vm->pool.idle.count, 1);
}

START_TEST(envelope)
{
	struct msg_call call = exec_call(), got;
	struct peer_frame frame;

	peer_call(client, &call, FRAME_END);
	agent = rig_agent(rig, listen_fd);
	read_call(agent, &got, FRAME_END, &frame);
	ck_assert_str_eq(got.method, "exec.start");
	ck_assert_str_eq(got.vm, "");
	ck_assert_uint_eq(strlen(got.id), HUTCH_UUID_LEN);
	ck_assert_uint_eq(strlen(got.key), HUTCH_UUID_LEN);
	ck_assert_uint_eq(got.params_len, call.params_len);
	ck_assert_mem_eq(got.params, call.params, call.params_len);
	free(frame.payload);
	finish();
}
END_TEST

START_TEST(envelope_keeps_what_the_client_chose)
{
	struct msg_call call = exec_call(), got;

	strcpy(call.id, "my-id");
	strcpy(call.key, "my-key");
	begin(&call, FRAME_END, &got);
	ck_assert_str_eq(got.id, "my-id");
	ck_assert_str_eq(got.key, "my-key");
	finish();
}
END_TEST

START_TEST(frames_both_ways)
{
	struct msg_call call = exec_call(), got;
	struct peer_frame frame;

	begin(&call, 0, &got);
	peer_send(client, FRAME_STDIN, 0, "in", 2);
	peer_send(client, FRAME_EVENT, 0, "\x80", 1);
	peer_send(client, FRAME_STDIN, FRAME_END, NULL, 0);
	peer_expect(rig, agent, FRAME_STDIN, 0, &frame);
	ck_assert_mem_eq(frame.payload, "in", 2);
	free(frame.payload);
	peer_expect(rig, agent, FRAME_EVENT, 0, NULL);
	peer_expect(rig, agent, FRAME_STDIN, FRAME_END, NULL);
	peer_send(agent, FRAME_EVENT, 0, "\x80", 1);
	peer_send(agent, FRAME_STDOUT, 0, "out", 3);
	peer_send(agent, FRAME_STDERR, 0, "err", 3);
	peer_expect(rig, client, FRAME_EVENT, 0, NULL);
	peer_expect(rig, client, FRAME_STDOUT, 0, NULL);
	peer_expect(rig, client, FRAME_STDERR, 0, NULL);
	finish();
	ck_assert_uint_eq(vm->pool.idle.count, 1);
}
END_TEST

/* The next call goes over the same connection. */
START_TEST(connection_is_reused)
{
	struct msg_call call = exec_call(), got;
	struct peer_frame frame;

	warm();
	for (int i = 0; i < 10; i++) {
		peer_call(client, &call, FRAME_END);
		read_call(agent, &got, FRAME_END, &frame);
		free(frame.payload);
		finish();
	}
	ck_assert_int_eq(rig_accept(rig, listen_fd), -1);
}
END_TEST

/* The answer frees the guest connection although the client's input is open. */
START_TEST(answer_before_the_callers_end)
{
	struct msg_call call = exec_call(), got;
	struct peer_frame frame;

	begin(&call, 0, &got);
	peer_send(client, FRAME_STDIN, 0, "in", 2);
	peer_expect(rig, agent, FRAME_STDIN, 0, NULL);
	finish();
	peer_expect(rig, agent, FRAME_STDIN, FRAME_END, NULL);
	ck_assert_uint_eq(vm->pool.idle.count, 1);
	peer_send(client, FRAME_STDIN, 0, "more", 4);
	peer_send(client, FRAME_STDIN, FRAME_END, "end", 3);
	peer_call(client, &call, FRAME_END);
	read_call(agent, &got, FRAME_END, &frame);
	free(frame.payload);
	finish();
}
END_TEST

static void expect_kill(const char *id)
{
	struct msg_call got;
	struct peer_frame frame;
	int other = rig_agent(rig, listen_fd);

	ck_assert_int_ge(other, 0);
	read_call(other, &got, FRAME_END, &frame);
	ck_assert_str_eq(got.method, "exec.kill");
	ck_assert_str_eq(got.id, id);
	free(frame.payload);
	peer_send(other, FRAME_RESULT, FRAME_END, "\x80", 1);
	rig_turn(rig);
	close(other);
}

START_TEST(client_goes_before_the_answer)
{
	struct msg_call call = exec_call(), got;

	begin(&call, _i ? FRAME_END : 0, &got);
	close(client);
	rig_turn(rig);
	peer_expect_end(rig, agent);
	expect_kill(got.id);
	client = rig_client_open(rig, 1000);
}
END_TEST

/* Also while it is not read, for the guest does not take its input. */
START_TEST(client_goes_while_paused)
{
	static uint8_t data[60000];
	struct msg_call call = exec_call(), got;
	struct client *c = TAILQ_FIRST(&rig->b.clients);

	begin(&call, 0, &got);
	while (!c->s.paused) {
		peer_send(client, FRAME_STDIN, 0, data, sizeof(data));
		rig_turn(rig);
	}
	close(client);
	rig_turn(rig);
	expect_kill(got.id);
	client = rig_client_open(rig, 1000);
}
END_TEST

START_TEST(detached_exec_outlives_its_client)
{
	static const uint8_t params[] = "\x82\xa4"
					"argv\x91\xa1x\xa6"
					"detach\xc3";
	struct msg_call call = exec_call(), got;

	call.params = params;
	begin(&call, FRAME_END, &got);
	close(client);
	rig_turn(rig);
	peer_expect_end(rig, agent);
	ck_assert_int_eq(rig_accept(rig, listen_fd), -1);
	client = rig_client_open(rig, 1000);
}
END_TEST

START_TEST(client_that_breaks_the_protocol_is_canceled)
{
	struct msg_call call = exec_call(), got;

	begin(&call, 0, &got);
	peer_send(client, FRAME_STDOUT, 0, "x", 1);
	ck_assert_int_eq(peer_expect_error(rig, client, NULL), HUTCH_E_PROTOCOL);
	peer_expect_end(rig, client);
	expect_kill(got.id);
}
END_TEST

START_TEST(vm_ends_during_a_call)
{
	struct msg_call call = exec_call(), got;
	struct hutch_error said;

	begin(&call, 0, &got);
	vm_end(vm, "killed");
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_VM_DIED);
	ck_assert_ptr_nonnull(strstr(said.message, "killed"));
	peer_send(client, FRAME_STDIN, FRAME_END, NULL, 0);
	peer_call(client, &call, FRAME_END);
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_VM_DIED);
}
END_TEST

START_TEST(vm_ends_while_a_call_waits_for_a_link)
{
	struct msg_call call = exec_call();

	peer_call(client, &call, FRAME_END);
	rig_turn(rig);
	vm_end(vm, "killed");
	ck_assert_int_eq(peer_expect_error(rig, client, NULL), HUTCH_E_VM_DIED);
}
END_TEST

/* The connection breaks a moment before the process is found dead. */
START_TEST(loss_then_death)
{
	struct msg_call call = exec_call(), got;
	struct hutch_error said;

	begin(&call, FRAME_END, &got);
	close(agent);
	agent = -1;
	rig_turn(rig);
	vm_end(vm, "the guest powered off");
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_VM_DIED);
	ck_assert_ptr_nonnull(strstr(said.message, "powered off"));
}
END_TEST

START_TEST(loss_alone)
{
	struct msg_call call = exec_call(), got;
	struct hutch_error said;

	begin(&call, FRAME_END, &got);
	peer_send(agent, FRAME_STDOUT, 0, "part", 4);
	close(agent);
	agent = -1;
	peer_expect(rig, client, FRAME_STDOUT, 0, NULL);
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_OUTCOME_UNKNOWN);
	ck_assert_ptr_nonnull(strstr(said.message, vm->r.id));
}
END_TEST

/* A used connection that is lost without a byte of an answer: once more, with the same id and key. */
START_TEST(stale_connection_is_repeated_once)
{
	struct msg_call call = exec_call(), first, second;
	struct peer_frame frame;
	int other;

	warm();
	peer_call(client, &call, FRAME_END);
	read_call(agent, &first, FRAME_END, &frame);
	free(frame.payload);
	close(agent);
	other = rig_agent(rig, listen_fd);
	ck_assert_int_ge(other, 0);
	read_call(other, &second, FRAME_END, &frame);
	free(frame.payload);
	ck_assert_str_eq(first.key, second.key);
	ck_assert_str_eq(first.id, second.id);
	agent = other;
	close(agent); /* and not twice */
	agent = -1;
	ck_assert_int_eq(peer_expect_error(rig, client, NULL), HUTCH_E_OUTCOME_UNKNOWN);
}
END_TEST

/* Nothing is sent twice where that could do something twice. */
START_TEST(not_repeated)
{
	struct msg_call call = exec_call();
	struct peer_frame frame;

	warm();
	if (_i == 0) {
		strcpy(call.method, "exec.signal");
		strcpy(call.id, "x");
	}
	peer_call(client, &call, _i == 0 ? FRAME_END : 0);
	peer_expect(rig, agent, FRAME_CALL, _i == 0 ? FRAME_END : 0, &frame);
	free(frame.payload);
	if (_i == 1) { /* input went along */
		peer_send(client, FRAME_STDIN, 0, "in", 2);
		peer_expect(rig, agent, FRAME_STDIN, 0, NULL);
	}
	if (_i == 2) { /* the answer had begun */
		peer_send(agent, FRAME_STDOUT, 0, "x", 1);
		peer_expect(rig, client, FRAME_STDOUT, 0, NULL);
	}
	close(agent);
	agent = -1;
	ck_assert_int_eq(peer_expect_error(rig, client, NULL), HUTCH_E_OUTCOME_UNKNOWN);
}
END_TEST

/* The client is told, keeps its connection, and others on the VM are unharmed. */
START_TEST(hostile_agent)
{
	static const char bad[] = "\0\0\0\0\x63\0\0\0";
	struct msg_call call = exec_call(), got;
	struct hutch_error said;
	struct peer_frame frame;
	int other_client = rig_client_open(rig, 1000), other_agent;

	begin(&call, FRAME_END, &got);
	peer_call(other_client, &call, FRAME_END);
	other_agent = rig_agent(rig, listen_fd);
	read_call(other_agent, &got, FRAME_END, &frame);
	free(frame.payload);
	peer_raw(agent, bad, sizeof(bad) - 1);
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_INTERNAL);
	ck_assert_ptr_nonnull(strstr(said.message, vm->r.id));
	peer_expect_end(rig, agent);
	close(agent);
	agent = other_agent;
	peer_send(agent, FRAME_RESULT, FRAME_END, RESULT, sizeof(RESULT) - 1);
	peer_expect(rig, other_client, FRAME_RESULT, FRAME_END, NULL);
	peer_call(client, &call, FRAME_END);
	read_call(agent, &got, FRAME_END, &frame);
	free(frame.payload);
	finish();
	close(other_client);
}
END_TEST

START_TEST(result_twice)
{
	struct msg_call call = exec_call(), got;
	static const char twice[] = "\0\0\0\1\3\1\0\0\x80\0\0\0\1\3\1\0\0\x80";

	begin(&call, FRAME_END, &got);
	peer_raw(agent, twice, sizeof(twice) - 1);
	peer_expect(rig, client, FRAME_RESULT, FRAME_END, NULL);
	rig_turn(rig);
	peer_expect_end(rig, agent);
	ck_assert_uint_eq(vm->pool.idle.count, 0);
}
END_TEST

/* A client that does not read stops its own guest connection, and the broker holds little for it. */
START_TEST(slow_client)
{
	static uint8_t data[HUTCH_MAX_DATA];
	struct msg_call call = exec_call(), got;
	struct client *c = TAILQ_FIRST(&rig->b.clients);
	const struct frame f = {.type = FRAME_STDOUT, .length = sizeof(data)};
	uint8_t header[HUTCH_FRAME_HEADER];
	unsigned sent = 0, left;

	frame_encode(header, &f);
	begin(&call, FRAME_END, &got);
	while (sent < 1000) {
		if (send(agent, header, sizeof(header), MSG_NOSIGNAL) != sizeof(header))
			break;
		for (size_t at = 0; at < sizeof(data);) {
			ssize_t n = send(agent, data + at, sizeof(data) - at, MSG_NOSIGNAL);

			if (n < 0)
				rig_turn(rig);
			else
				at += (size_t)n;
			if (n < 0 && c->s.out.len > STREAM_HIGH)
				goto full;
		}
		sent++;
		rig_turn(rig);
	}
full:
	ck_assert_uint_lt(sent, 100);
	rig_turn(rig);
	ck_assert_uint_le(stream_queued(&c->s), STREAM_HIGH + sizeof(data) + HUTCH_FRAME_HEADER);
	for (left = sent; left > 0; left--)
		peer_expect(rig, client, FRAME_STDOUT, 0, NULL);
	close(agent);
	agent = -1;
}
END_TEST

/* A guest that does not take input stops its own client. */
START_TEST(slow_guest)
{
	static uint8_t data[HUTCH_MAX_DATA];
	struct msg_call call = exec_call(), got;
	struct client *c = TAILQ_FIRST(&rig->b.clients);
	unsigned sent = 0;

	begin(&call, 0, &got);
	while (!c->s.paused && sent < 100) {
		peer_send(client, FRAME_STDIN, 0, data, sizeof(data));
		rig_turn(rig);
		sent++;
	}
	ck_assert_uint_lt(sent, 100);
	ck_assert_uint_le(stream_queued(&TAILQ_FIRST(&vm->pool.busy.links)->s),
			  STREAM_HIGH + sizeof(data) + HUTCH_FRAME_HEADER);
	for (unsigned i = 0; i < sent; i++)
		peer_expect(rig, agent, FRAME_STDIN, 0, NULL);
	ck_assert(!c->s.paused);
	finish();
	peer_send(client, FRAME_STDIN, FRAME_END, NULL, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("relay");
	TCase *t = tcase_create("relay");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, envelope);
	tcase_add_test(t, envelope_keeps_what_the_client_chose);
	tcase_add_test(t, frames_both_ways);
	tcase_add_test(t, connection_is_reused);
	tcase_add_test(t, answer_before_the_callers_end);
	tcase_add_loop_test(t, client_goes_before_the_answer, 0, 2);
	tcase_add_test(t, client_goes_while_paused);
	tcase_add_test(t, detached_exec_outlives_its_client);
	tcase_add_test(t, client_that_breaks_the_protocol_is_canceled);
	tcase_add_test(t, vm_ends_during_a_call);
	tcase_add_test(t, vm_ends_while_a_call_waits_for_a_link);
	tcase_add_test(t, loss_then_death);
	tcase_add_test(t, loss_alone);
	tcase_add_test(t, stale_connection_is_repeated_once);
	tcase_add_loop_test(t, not_repeated, 0, 3);
	tcase_add_test(t, hostile_agent);
	tcase_add_test(t, result_twice);
	tcase_add_test(t, slow_client);
	tcase_add_test(t, slow_guest);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
