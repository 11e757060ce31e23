/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers of a chain become one. */
#include "host/hutchd/flatten.h"

#include <check.h>
#include <stdlib.h>

#define MANY 32u

static unsigned choose(const uint64_t *sizes, unsigned count, unsigned *first)
{
	*first = 1000;
	return flatten_choose(sizes, count, first);
}

START_TEST(a_short_chain_stays)
{
	const uint64_t sizes[FLATTEN_AT - 1] = {1, 1, 1, 1, 1, 1, 1};
	unsigned first;

	ck_assert_uint_eq(choose(sizes, 0, &first), 0);
	ck_assert_uint_eq(choose(sizes, FLATTEN_AT - 1, &first), 0);
}
END_TEST

START_TEST(equal_layers_become_one)
{
	const uint64_t sizes[] = {5, 5, 5, 5, 5, 5, 5, 5};
	unsigned first;

	ck_assert_uint_eq(choose(sizes, 8, &first), 8);
	ck_assert_uint_eq(first, 0);
}
END_TEST

START_TEST(a_large_one_below_stays)
{
	const uint64_t sizes[] = {1000, 10, 10, 10, 10, 10, 10, 10};
	unsigned first;

	ck_assert_uint_eq(choose(sizes, 8, &first), 7);
	ck_assert_uint_eq(first, 1);
}
END_TEST

/* Or the chain would not become shorter. */
START_TEST(some_are_taken_in_any_case)
{
	const uint64_t sizes[] = {1u << 30, 1u << 27, 1u << 24, 1u << 21,
				  1u << 18, 1u << 15, 1u << 12, 1};
	unsigned first;

	ck_assert_uint_eq(choose(sizes, 8, &first), 4);
	ck_assert_uint_eq(first, 4);
}
END_TEST

START_TEST(a_very_long_chain_becomes_one)
{
	uint64_t sizes[MANY];
	unsigned first;

	for (unsigned i = 0; i < MANY; i++)
		sizes[i] = 1ull << (MANY - i);
	ck_assert_uint_eq(choose(sizes, MANY, &first), MANY);
	ck_assert_uint_eq(first, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("flatten");
	TCase *tc = tcase_create("flatten");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, a_short_chain_stays);
	tcase_add_test(tc, equal_layers_become_one);
	tcase_add_test(tc, a_large_one_below_stays);
	tcase_add_test(tc, some_are_taken_in_any_case);
	tcase_add_test(tc, a_very_long_chain_becomes_one);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
