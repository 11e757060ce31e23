/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: order of timers, tasks of a pass, sources that die while their event is in hand. */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "guest/loop.h"

enum { COUNT = 500 };

static struct loop_timer timers[COUNT];
static unsigned fired;
static uint64_t last_at;

static void in_order(struct loop_timer *t)
{
	ck_assert_uint_ge(t->at_ns, last_at);
	ck_assert_uint_eq(t->slot, 0);
	last_at = t->at_ns;
	if (++fired == COUNT / 2)
		loop_stop();
}

START_TEST(test_timers_fire_in_order)
{
	uint64_t now = loop_now();

	srand(3);
	for (int i = 0; i < COUNT; i++) {
		timers[i].due = in_order;
		loop_timer_set(&timers[i], now + (uint64_t)rand() % 5000000u);
	}
	for (int i = 0; i < COUNT; i++) /* moved, earlier or later */
		loop_timer_set(&timers[i], now + (uint64_t)rand() % 5000000u);
	for (int i = 0; i < COUNT; i += 2)
		loop_timer_clear(&timers[i]);
	loop_run();
	ck_assert_uint_eq(fired, COUNT / 2);
}
END_TEST

static void stop(struct loop_timer *t)
{
	(void)t;
	loop_stop();
}

static int pipes[2][2];
static struct loop_source sources[2];
static unsigned calls;

/* Whichever comes first closes the other, whose event is already there. */
static void close_both(struct loop_source *src, uint32_t events)
{
	(void)src;
	ck_assert_uint_ne(events & EPOLLIN, 0);
	calls++;
	loop_close(&sources[0]);
	loop_close(&sources[1]);
	loop_stop();
}

START_TEST(test_closed_source_gets_no_event)
{
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pipe2(pipes[i], O_CLOEXEC), 0);
		ck_assert_int_eq(write(pipes[i][1], "x", 1), 1);
		loop_source_init(&sources[i], pipes[i][0], close_both);
		ck_assert_int_eq(loop_watch(&sources[i], EPOLLIN), 0);
	}
	loop_run();
	ck_assert_uint_eq(calls, 1);
	close(pipes[0][1]);
	close(pipes[1][1]);
}
END_TEST

static unsigned runs;

static void again(struct loop_task *t)
{
	if (++runs < 3)
		loop_task_queue(t); /* of the next pass */
	else
		loop_stop();
}

static void never(struct loop_task *t)
{
	(void)t;
	ck_abort_msg("a cancelled task ran");
}

START_TEST(test_tasks)
{
	struct loop_task repeated = {.run = again}, cancelled = {.run = never};

	loop_task_queue(&repeated);
	loop_task_queue(&repeated);
	loop_task_queue(&cancelled);
	loop_task_cancel(&cancelled);
	loop_run();
	ck_assert_uint_eq(runs, 3);
}
END_TEST

START_TEST(test_unwatched_source_does_not_spin)
{
	struct loop_timer t = {.due = stop};

	ck_assert_int_eq(pipe2(pipes[0], O_CLOEXEC), 0);
	close(pipes[0][1]); /* EPOLLHUP from now on */
	loop_source_init(&sources[0], pipes[0][0], close_both);
	ck_assert_int_eq(loop_watch(&sources[0], EPOLLIN), 0);
	ck_assert_int_eq(loop_watch(&sources[0], 0), 0);
	loop_timer_after_ms(&t, 20);
	loop_run();
	ck_assert_uint_eq(calls, 0);
	loop_close(&sources[0]);
}
END_TEST

static void setup(void)
{
	ck_assert_int_eq(loop_init(), 0);
}

static unsigned always_fired, others_fired;

static void count_fired(struct loop_timer *t)
{
	always_fired += t->always;
	others_fired += !t->always;
}

/* One in five goes on; the rest keep what was left of their time, also those that are set meanwhile. */
START_TEST(test_held_timers_stand_still)
{
	struct loop_timer end = {.due = stop, .always = true};
	uint64_t start = loop_now(), left[COUNT], at;

	srand(4);
	for (int i = 0; i < COUNT; i++) {
		left[i] = 1000000000u + (uint64_t)rand() % 1000000u;
		if (i == COUNT / 2)
			loop_hold_timers(true);
		timers[i] = (struct loop_timer){.due = count_fired, .always = i % 5 == 0};
		loop_timer_set(&timers[i], start + (timers[i].always ? 0 : left[i]));
	}
	loop_timer_after_ms(&end, 20);
	loop_run();
	ck_assert_uint_eq(always_fired, COUNT / 5);
	at = loop_now();
	loop_hold_timers(false);
	for (int i = 0; i < COUNT; i++) {
		if (timers[i].always)
			continue;
		ck_assert_uint_ge(timers[i].at_ns, start + left[i] + 20000000u);
		ck_assert_uint_le(timers[i].at_ns, loop_now() + left[i]);
		loop_timer_set(&timers[i], at);
	}
	loop_timer_after_ms(&end, 0);
	loop_run();
	ck_assert_uint_eq(others_fired, COUNT - COUNT / 5);
	loop_hold_timers(false); /* nothing to do */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_loop");
	TCase *t = tcase_create("loop");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, loop_exit);
	tcase_add_test(t, test_timers_fire_in_order);
	tcase_add_test(t, test_closed_source_gets_no_event);
	tcase_add_test(t, test_tasks);
	tcase_add_test(t, test_unwatched_source_does_not_spin);
	tcase_add_test(t, test_held_timers_stand_still);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
