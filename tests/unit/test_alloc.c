/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's small allocator: contents, alignment, reuse, large blocks, misuse. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "guest/alloc.h"

#define SLOTS 500

struct slot {
	uint8_t *p;
	size_t n;
	uint8_t fill;
};

static void fill(struct slot *s, size_t from)
{
	memset(s->p + from, s->fill, s->n - from);
}

static void verify(const struct slot *s, size_t n)
{
	bool good = true;

	for (size_t i = 0; i < n; i++)
		good &= s->p[i] == s->fill;
	ck_assert(good);
}

static size_t some_size(unsigned *seed)
{
	unsigned kind = (unsigned)rand_r(seed) % 10, r = (unsigned)rand_r(seed);

	return kind < 6 ? r % 200 : kind < 9 ? r % (2 * ALLOC_SMALL) : r % 60000;
}

START_TEST(random_use)
{
	static struct slot slots[SLOTS];
	unsigned seed = 4;

	memset(slots, 0, sizeof(slots));
	for (int i = 0; i < 8000; i++) {
		struct slot *s = &slots[(unsigned)rand_r(&seed) % SLOTS];
		size_t n = some_size(&seed), kept;

		if (!s->p) {
			bool zeroed = rand_r(&seed) & 1;

			s->p = zeroed ? alloc_get_zeroed(n) : alloc_get(n);
			ck_assert_ptr_nonnull(s->p);
			ck_assert_uint_eq((uintptr_t)s->p % 16, 0);
			s->n = n;
			s->fill = 0;
			if (zeroed)
				verify(s, n);
			s->fill = (uint8_t)i;
			fill(s, 0);
		} else if (rand_r(&seed) & 1) {
			verify(s, s->n);
			kept = n < s->n ? n : s->n;
			s->p = alloc_resize(s->p, n ? n : 1);
			ck_assert_ptr_nonnull(s->p);
			s->n = n ? n : 1;
			verify(s, kept);
			fill(s, kept);
		} else {
			verify(s, s->n);
			alloc_put(s->p);
			s->p = NULL;
		}
	}
	for (int i = 0; i < SLOTS; i++)
		alloc_put(slots[i].p);
}
END_TEST

START_TEST(every_size)
{
	for (size_t n = 0; n < 3 * ALLOC_SMALL; n += 1 + n / 64) {
		uint8_t *p = alloc_get(n), *q = alloc_get(n);

		ck_assert_ptr_ne(p, q);
		memset(p, 1, n);
		memset(q, 2, n);
		for (size_t i = 0; i < n; i += 97)
			ck_assert_uint_eq(p[i], 1);
		alloc_put(q);
		alloc_put(p);
		ck_assert_ptr_eq(n <= ALLOC_SMALL ? alloc_get(n) : p,
				 p); /* the one freed last is next */
		if (n <= ALLOC_SMALL)
			alloc_put(p);
	}
}
END_TEST

START_TEST(no_memory)
{
	char *p = alloc_get(10);

	errno = 0;
	ck_assert_ptr_null(alloc_get(SIZE_MAX));
	ck_assert_int_eq(errno, ENOMEM);
	ck_assert_ptr_null(alloc_get(SIZE_MAX / 4));
	ck_assert_ptr_null(alloc_get_zeroed(SIZE_MAX - 8));
	strcpy(p, "kept");
	ck_assert_ptr_null(alloc_resize(p, SIZE_MAX / 4));
	ck_assert_str_eq(p, "kept");
	alloc_put(p);
	alloc_put(NULL);
}
END_TEST

START_TEST(freed_twice)
{
	char *p = alloc_get(10);

	alloc_put(p);
	alloc_put(p); /* ends the process */
}
END_TEST

START_TEST(overrun_backwards)
{
	uint64_t *p = alloc_get(10);

	p[-2] = 0;
	alloc_put(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("alloc");
	TCase *t = tcase_create("alloc");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, random_use);
	tcase_add_test(t, every_size);
	tcase_add_test(t, no_memory);
	tcase_add_test_raise_signal(t, freed_twice, SIGABRT);
	tcase_add_test_raise_signal(t, overrun_backwards, SIGABRT);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
