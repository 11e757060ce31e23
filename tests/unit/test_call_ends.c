/* SPDX-License-Identifier: Apache-2.0 */
/* The END rules of wire.md section 2: every order of frames of one call, and what breaks them. */
#include <check.h>
#include <stdlib.h>

#include "host/hutchd/call_ends.h"

static struct frame frame(enum frame_type type, unsigned flags)
{
	return (struct frame){.type = type, .flags = (uint8_t)flags, .length = 0};
}

static enum call_verdict caller(struct call_ends *c, enum frame_type type, unsigned flags)
{
	const struct frame f = frame(type, flags);
	const char *why = NULL;
	enum call_verdict v = call_from_caller(c, &f, &why);

	ck_assert((v == CALL_FAULT) == (why != NULL));
	return v;
}

static enum call_verdict callee(struct call_ends *c, enum frame_type type, unsigned flags)
{
	const struct frame f = frame(type, flags);
	const char *why = NULL;
	enum call_verdict v = call_from_callee(c, &f, &why);

	ck_assert((v == CALL_FAULT) == (why != NULL));
	return v;
}

START_TEST(call_without_input)
{
	struct call_ends c = {.open = false};

	ck_assert_int_eq(caller(&c, FRAME_CALL, FRAME_END), CALL_TAKE);
	ck_assert_int_eq(callee(&c, FRAME_STDOUT, 0), CALL_TAKE);
	ck_assert_int_eq(callee(&c, FRAME_RESULT, FRAME_END), CALL_TAKE);
	ck_assert(!c.open);
	ck_assert_int_eq(caller(&c, FRAME_CALL, FRAME_END), CALL_TAKE);
}
END_TEST

START_TEST(callers_end_first)
{
	struct call_ends c = {.open = false};

	ck_assert_int_eq(caller(&c, FRAME_CALL, 0), CALL_TAKE);
	ck_assert_int_eq(caller(&c, FRAME_STDIN, 0), CALL_TAKE);
	ck_assert_int_eq(caller(&c, FRAME_EVENT, 0), CALL_TAKE);
	ck_assert_int_eq(callee(&c, FRAME_EVENT, 0), CALL_TAKE);
	ck_assert_int_eq(caller(&c, FRAME_STDIN, FRAME_END), CALL_TAKE);
	ck_assert(c.open && c.caller_ended && !c.callee_ended);
	ck_assert_int_eq(callee(&c, FRAME_ERROR, FRAME_END), CALL_TAKE);
	ck_assert(!c.open);
}
END_TEST

START_TEST(callees_end_first)
{
	struct call_ends c = {.open = false};

	ck_assert_int_eq(caller(&c, FRAME_CALL, 0), CALL_TAKE);
	ck_assert_int_eq(callee(&c, FRAME_RESULT, FRAME_END), CALL_TAKE);
	ck_assert(c.open && c.callee_ended);
	ck_assert_int_eq(caller(&c, FRAME_STDIN, 0), CALL_DISCARD);
	ck_assert_int_eq(caller(&c, FRAME_EVENT, 0), CALL_DISCARD);
	ck_assert_int_eq(caller(&c, FRAME_STDIN, FRAME_END), CALL_DISCARD);
	ck_assert(!c.open);
}
END_TEST

START_TEST(caller_faults)
{
	struct call_ends c = {.open = false};

	ck_assert_int_eq(caller(&c, FRAME_STDIN, FRAME_END), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_EVENT, 0), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_HELLO, 0), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_RESULT, FRAME_END), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_STDOUT, 0), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_CALL, 0), CALL_TAKE);
	ck_assert_int_eq(caller(&c, FRAME_CALL, 0), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_EVENT, FRAME_END), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_STDIN, FRAME_END), CALL_TAKE);
	ck_assert_int_eq(caller(&c, FRAME_STDIN, 0), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_CALL, FRAME_END), CALL_FAULT);
	ck_assert(c.open);
}
END_TEST

START_TEST(callee_faults)
{
	struct call_ends c = {.open = false};

	ck_assert_int_eq(callee(&c, FRAME_RESULT, FRAME_END), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_STDOUT, 0), CALL_FAULT);
	ck_assert_int_eq(caller(&c, FRAME_CALL, 0), CALL_TAKE);
	ck_assert_int_eq(callee(&c, FRAME_RESULT, 0), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_ERROR, 0), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_STDERR, FRAME_END), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_STDIN, 0), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_HELLO, 0), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_RESULT, FRAME_END), CALL_TAKE);
	ck_assert_int_eq(callee(&c, FRAME_RESULT, FRAME_END), CALL_FAULT);
	ck_assert_int_eq(callee(&c, FRAME_STDOUT, 0), CALL_FAULT);
}
END_TEST

/* Every sequence of four frames from either side: whatever is taken leaves a state that makes sense. */
START_TEST(all_orders)
{
	static const enum frame_type types[] = {FRAME_CALL,   FRAME_STDIN,  FRAME_EVENT,
						FRAME_STDOUT, FRAME_RESULT, FRAME_HELLO};
	const unsigned kinds = 6 * 2 * 2;
	unsigned total = 1, wrong = 0;

	for (int i = 0; i < 4; i++)
		total *= kinds;
	for (unsigned n = 0; n < total; n++) {
		struct call_ends c = {.open = false};
		unsigned code = n;

		for (int i = 0; i < 4; i++, code /= kinds) {
			unsigned k = code % kinds;
			const struct frame f = frame(types[k / 4], k & 1 ? FRAME_END : 0);
			const char *why = NULL;

			if (k & 2)
				call_from_caller(&c, &f, &why);
			else
				call_from_callee(&c, &f, &why);
			wrong += !c.open && (c.caller_ended || c.callee_ended);
			wrong += c.caller_ended && c.callee_ended;
		}
	}
	ck_assert_uint_eq(wrong, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("call_ends");
	TCase *t = tcase_create("rules");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, call_without_input);
	tcase_add_test(t, callers_end_first);
	tcase_add_test(t, callees_end_first);
	tcase_add_test(t, caller_faults);
	tcase_add_test(t, callee_faults);
	tcase_add_test(t, all_orders);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
