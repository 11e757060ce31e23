/* SPDX-License-Identifier: Apache-2.0 */
/* Shell patterns, against fnmatch(3). */
#include <check.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "guest/glob.h"

static void same(const char *pattern, const char *s)
{
	ck_assert_msg(glob_match(pattern, s) == (fnmatch(pattern, s, 0) == 0), "%s against %s",
		      pattern, s);
}

START_TEST(known)
{
	static const char *const patterns[] = {"",	 "*",	  "?",	      "*.c",	"a*b*c",
					       "**a",	 "[abc]", "[!abc]",   "[a-c]x", "[]a]",
					       "[!]a]",	 "[a",	  "a[",	      "\\*",	"\\a",
					       "[\\]]",	 "a?c",	  "*a*a*a*b", ".*",	"a/b",
					       "a/*",	 "*/b",	  "[a-]",     "[-a]",	"x[b-a]",
					       "[a-c-e]"};
	static const char *const texts[] = {"",	  "a",	"b",   "c",    "x.c",  "abc", "aXbXc",
					    "]",  "*",	"\\a", "a/b",  ".x",   "[a",  "a[",
					    "ax", "bx", "-",   "aaaa", "aaab", "d",   "e",
					    "x-", "xb", "xa",  "xx",   "a/b/c"};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		for (size_t j = 0; j < sizeof(texts) / sizeof(*texts); j++)
			same(patterns[i], texts[j]);
}
END_TEST

START_TEST(random_ones)
{
	/* No '[': what fnmatch makes of sets that do not end differs between C libraries. */
	static const char letters[] = "ab*?/.";
	unsigned seed = 78;

	for (int i = 0; i < 200000; i++) {
		char pattern[12], s[12];
		size_t n = (unsigned)rand_r(&seed) % 10, m = (unsigned)rand_r(&seed) % 10;

		for (size_t k = 0; k < n; k++)
			pattern[k] = letters[(unsigned)rand_r(&seed) % 6];
		for (size_t k = 0; k < m; k++)
			s[k] = letters[(unsigned)rand_r(&seed) % 2];
		pattern[n] = s[m] = '\0';
		same(pattern, s);
	}
}
END_TEST

START_TEST(hostile)
{
	char pattern[4096], s[4096];

	for (size_t i = 0; i < sizeof(pattern) - 2; i++)
		pattern[i] = i % 2 ? 'a' : '*';
	strcpy(pattern + sizeof(pattern) - 2, "b");
	memset(s, 'a', sizeof(s) - 1);
	s[sizeof(s) - 1] = '\0';
	ck_assert(!glob_match(pattern, s)); /* in time */
	ck_assert(!glob_match("[", ""));
	ck_assert(!glob_match("[a-", "b"));
	ck_assert(!glob_match("[!", "b"));
	ck_assert(!glob_match("[\\", "b"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("glob");
	TCase *t = tcase_create("glob");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, known);
	tcase_add_test(t, random_ones);
	tcase_add_test(t, hostile);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
