/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that find their VM asleep, and what those get that were open when it was parked. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/broker_rig.h"

#define CLIENTS 3

static struct rig *rig;
static struct vm *vm;
static int listen_fd, client, agent;

static void setup(void)
{
	rig = rig_new();
	vm = rig_vm(rig, 1000, "box", &listen_fd);
	vm->up = true;
	client = rig_client_open(rig, 1000);
	agent = -1;
}

static void teardown(void)
{
	if (client >= 0)
		close(client);
	if (agent >= 0)
		close(agent);
	close(listen_fd);
	rig_free(rig);
}

/* It stays so until the test says otherwise: nothing is waited for but that. */
static void fall_asleep(void)
{
	vm->park = (struct vm_park *)(void *)vm;
	ck_assert(vm_is_asleep(vm));
}

static void wake_up(void)
{
	vm->park = NULL;
	vm_notify_ready(vm);
}

static void send_ping(int fd)
{
	const struct msg_call call = {.method = "ping", .vm = "box"};

	peer_call(fd, &call, FRAME_END);
	rig_turn(rig);
}

static void expect_at_agent(enum frame_type type, unsigned flags)
{
	if (agent < 0)
		agent = rig_agent(rig, listen_fd);
	ck_assert_int_ge(agent, 0);
	peer_expect(rig, agent, type, flags, NULL);
}

static void answer_empty(void)
{
	peer_send(agent, FRAME_RESULT, FRAME_END, "\x80", 1);
	peer_expect(rig, client, FRAME_RESULT, FRAME_END, NULL);
}

/* Its input is not lost, and comes after it. */
START_TEST(a_call_waits_with_its_input)
{
	static const uint8_t params[] = "\x81\xa4"
					"argv\x91\xa3"
					"cat";
	const struct msg_call call = {.method = "exec.start",
				      .vm = "box",
				      .params = params,
				      .params_len = 11};

	fall_asleep();
	peer_call(client, &call, 0);
	peer_send(client, FRAME_STDIN, 0, "early", 5);
	rig_turn(rig);
	peer_send(client, FRAME_STDIN, FRAME_END, "late", 4);
	rig_turn(rig);
	ck_assert_int_lt(rig_accept(rig, listen_fd), 0);
	ck_assert_uint_eq(vm->calls, 1);
	wake_up();
	expect_at_agent(FRAME_CALL, 0);
	expect_at_agent(FRAME_STDIN, 0);
	expect_at_agent(FRAME_STDIN, FRAME_END);
	answer_empty();
	ck_assert_uint_eq(vm->calls, 0);
}
END_TEST

START_TEST(many_wait_for_one_wake)
{
	int fds[CLIENTS];

	fall_asleep();
	for (int i = 0; i < CLIENTS; i++) {
		fds[i] = rig_client_open(rig, 1000);
		send_ping(fds[i]);
	}
	ck_assert_uint_eq(vm->calls, CLIENTS);
	wake_up();
	/* The first connection serves them all. */
	for (int i = 0; i < CLIENTS; i++) {
		expect_at_agent(FRAME_CALL, FRAME_END);
		peer_send(agent, FRAME_RESULT, FRAME_END, "\x80", 1);
	}
	for (int i = 0; i < CLIENTS; i++) {
		peer_expect(rig, fds[i], FRAME_RESULT, FRAME_END, NULL);
		close(fds[i]);
	}
}
END_TEST

START_TEST(a_wake_that_fails_is_told)
{
	struct hutch_error err, said;

	fall_asleep();
	send_ping(client);
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_BUSY, 0, "no room");
	vm_notify_not_ready(vm, &err);
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_BUSY);
	ck_assert_str_eq(said.message, "no room");
	ck_assert_uint_eq(vm->calls, 0);
	/* The connection is as good as before. */
	wake_up();
	send_ping(client);
	expect_at_agent(FRAME_CALL, FRAME_END);
	answer_empty();
}
END_TEST

START_TEST(a_client_that_goes_while_it_waits)
{
	fall_asleep();
	send_ping(client);
	ck_assert(vm_is_awaited(vm));
	close(client);
	client = -1;
	rig_turn(rig);
	ck_assert(!vm_is_awaited(vm));
	ck_assert_uint_eq(vm->calls, 0);
	wake_up();
	ck_assert_int_lt(rig_accept(rig, listen_fd), 0);
}
END_TEST

START_TEST(a_vm_that_ends_while_it_is_waited_for)
{
	struct hutch_error said;

	fall_asleep();
	send_ping(client);
	vm->park = NULL;
	vm_end(vm, "killed");
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_VM_DIED);
}
END_TEST

/* What needs no guest is answered at once. */
START_TEST(what_does_not_wake_it)
{
	const struct msg_call call = {.method = "vm.set_idle", .vm = "box"};

	fall_asleep();
	peer_call(client, &call, FRAME_END);
	peer_expect(rig, client, FRAME_RESULT, FRAME_END, NULL);
	ck_assert(!vm_is_awaited(vm));
	vm->park = NULL;
}
END_TEST

/* One was sent and may have been done; the other was not. */
START_TEST(calls_that_are_open_when_it_is_parked)
{
	struct hutch_error err, said;
	int other = rig_client_open(rig, 1000);

	send_ping(client);
	expect_at_agent(FRAME_CALL, FRAME_END);
	send_ping(other); /* nobody accepts its connection */
	ck_assert_uint_eq(vm->calls, 2);
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_OUTCOME_UNKNOWN, 0, "VM box was parked");
	guest_pool_end(&vm->pool, &err);
	ck_assert_int_eq(peer_expect_error(rig, client, &said), HUTCH_E_OUTCOME_UNKNOWN);
	ck_assert_ptr_nonnull(strstr(said.message, "was parked"));
	ck_assert_int_eq(peer_expect_error(rig, other, &said), HUTCH_E_NOT_DISPATCHED);
	ck_assert_uint_eq(vm->calls, 0);
	close(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rouse");
	TCase *t = tcase_create("asleep");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_call_waits_with_its_input);
	tcase_add_test(t, many_wait_for_one_wake);
	tcase_add_test(t, a_wake_that_fails_is_told);
	tcase_add_test(t, a_client_that_goes_while_it_waits);
	tcase_add_test(t, a_vm_that_ends_while_it_is_waited_for);
	tcase_add_test(t, what_does_not_wake_it);
	tcase_add_test(t, calls_that_are_open_when_it_is_parked);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
