/* SPDX-License-Identifier: Apache-2.0 */
/* The output ring: offsets, floors, growth, the common budget. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "guest/limits.h"
#include "guest/ring.h"

/* The byte that belongs to an offset. */
static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 8));
}

static int put(struct ring *r, size_t n, uint64_t floor, size_t history)
{
	uint8_t *bytes = malloc(n ? n : 1);
	int ret;

	for (size_t i = 0; i < n; i++)
		bytes[i] = byte_at(r->end + i);
	ret = ring_put(r, bytes, n, floor, history);
	free(bytes);
	return ret;
}

static void check_held(const struct ring *r, uint64_t from)
{
	struct ring_span s[2];
	size_t n = ring_peek(r, from, SIZE_MAX, s);

	ck_assert_uint_eq(n, r->end - from);
	ck_assert_uint_eq(s[0].len + s[1].len, n);
	for (size_t i = 0; i < n; i++) {
		uint8_t b = i < s[0].len ? s[0].p[i] : s[1].p[i - s[0].len];

		if (b != byte_at(from + i))
			ck_abort_msg("the byte at offset %llu is wrong",
				     (unsigned long long)(from + i));
	}
}

START_TEST(test_nothing_costs_nothing)
{
	struct ring r = {0};
	struct ring_span s[2];

	ck_assert_uint_eq(ring_total(), 0);
	ck_assert_uint_eq(ring_room(&r, 0), RING_MAX);
	ck_assert_uint_eq(ring_peek(&r, 0, 100, s), 0);
	ck_assert_int_eq(ring_put(&r, "", 0, 0, RING_HISTORY), 0);
	ring_drop(&r);
	ck_assert_uint_eq(ring_total(), 0);
}
END_TEST

START_TEST(test_history_is_bounded_and_the_newest)
{
	struct ring r = {0};

	for (int i = 0; i < 500; i++) {
		ck_assert_int_eq(put(&r, 1 + (size_t)i * 7 % 3000, r.end, RING_HISTORY), 0);
		check_held(&r, r.start);
	}
	ck_assert_uint_eq(r.end - r.start, RING_HISTORY);
	ck_assert_uint_eq(ring_total(), RING_HISTORY);
	ring_drop(&r);
	ck_assert_uint_eq(r.start, r.end);
}
END_TEST

START_TEST(test_floor_is_never_passed)
{
	struct ring r = {0};
	uint64_t floor = 0;

	srand(7);
	for (int i = 0; i < 1000; i++) {
		size_t room = ring_room(&r, floor);
		size_t n = (size_t)rand() % 9000;

		if (n > room)
			n = room;
		ck_assert_int_eq(put(&r, n, floor, RING_HISTORY), 0);
		ck_assert_uint_le(r.start, floor);
		check_held(&r, floor);
		floor += (uint64_t)rand() % (r.end - floor + 1);
	}
	while (ring_room(&r, floor))
		ck_assert_int_eq(put(&r, ring_room(&r, floor), floor, RING_HISTORY), 0);
	ck_assert_uint_eq(r.end - floor, RING_MAX);
	ring_drop(&r);
}
END_TEST

static size_t asked;

static void on_pressure(size_t missing)
{
	asked = missing;
}

START_TEST(test_budget_leaves_everyone_a_floor)
{
	enum { COUNT = 600 };
	static struct ring rings[COUNT];
	struct ring late = {0};

	asked = 0;
	ring_on_pressure(on_pressure);
	for (int i = 0; i < COUNT; i++)
		while (ring_room(&rings[i], 0))
			ck_assert_int_eq(put(&rings[i], ring_room(&rings[i], 0), 0, RING_MAX), 0);
	ck_assert_uint_gt(asked, 0);
	ck_assert_uint_le(ring_total(), RING_TOTAL + COUNT * RING_FLOOR);
	ck_assert_uint_eq(ring_room(&late, 0), RING_FLOOR);
	ck_assert_int_eq(put(&late, 100, 0, RING_MAX), 0);
	check_held(&late, 0);
	for (int i = 0; i < COUNT; i++) {
		check_held(&rings[i], 0);
		ring_drop(&rings[i]);
	}
	ring_drop(&late);
	ck_assert_uint_eq(ring_total(), 0);
}
END_TEST

START_TEST(test_offsets_go_on_after_a_drop)
{
	struct ring r = {0};

	put(&r, 5000, 0, RING_HISTORY);
	ring_drop(&r);
	ck_assert_uint_eq(r.end, 5000);
	put(&r, 70000, r.end, RING_HISTORY);
	ck_assert_uint_eq(r.end, 75000);
	check_held(&r, r.start);
	ring_drop(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_ring");
	TCase *t = tcase_create("ring");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, test_nothing_costs_nothing);
	tcase_add_test(t, test_history_is_bounded_and_the_newest);
	tcase_add_test(t, test_floor_is_never_passed);
	tcase_add_test(t, test_budget_leaves_everyone_a_floor);
	tcase_add_test(t, test_offsets_go_on_after_a_drop);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
