/* SPDX-License-Identifier: Apache-2.0 */
/* Error values: names, messages that are cut and made printable, prefixes. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/error.h"

START_TEST(kinds_have_names_and_back)
{
	for (int k = HUTCH_OK + 1; k < HUTCH_E_COUNT; k++) {
		const char *name = hutch_error_kind_name((enum hutch_error_kind)k);

		ck_assert_uint_gt(strlen(name), 1);
		ck_assert_int_eq(hutch_error_kind_from_name(name, strlen(name)), k);
	}
	ck_assert_str_eq(hutch_error_kind_name(HUTCH_E_NOT_FOUND), "not_found");
	ck_assert_str_eq(hutch_error_kind_name(HUTCH_E_OUTCOME_UNKNOWN), "outcome_unknown");
}
END_TEST

START_TEST(unknown_kinds_are_internal)
{
	ck_assert_int_eq(hutch_error_kind_from_name("", 0), HUTCH_E_INTERNAL);
	ck_assert_int_eq(hutch_error_kind_from_name("ok", 2), HUTCH_E_INTERNAL);
	ck_assert_int_eq(hutch_error_kind_from_name("not_foun", 8), HUTCH_E_INTERNAL);
	ck_assert_int_eq(hutch_error_kind_from_name("not_foundX", 10), HUTCH_E_INTERNAL);
	ck_assert_str_eq(hutch_error_kind_name((enum hutch_error_kind)99), "internal");
	ck_assert_str_eq(hutch_error_kind_name(HUTCH_E_COUNT), "internal");
}
END_TEST

START_TEST(errno_names)
{
	ck_assert_str_eq(hutch_errno_name(ENOENT), "ENOENT");
	ck_assert_str_eq(hutch_errno_name(EADDRNOTAVAIL), "EADDRNOTAVAIL");
	ck_assert_str_eq(hutch_errno_name(ECANCELED), "ECANCELED");
	ck_assert_ptr_null(hutch_errno_name(0));
	ck_assert_ptr_null(hutch_errno_name(-2));
	ck_assert_ptr_null(hutch_errno_name(258)); /* ENOENT + 256 */
	ck_assert_ptr_null(hutch_errno_name(4000));
}
END_TEST

START_TEST(set_fills_everything)
{
	struct hutch_error e;

	memset(&e, 0xff, sizeof(e));
	errno = EPIPE;
	ck_assert_int_eq(hutch_error_set(&e, HUTCH_E_IO, ENOENT, "open %s", "/x"), -1);
	ck_assert_int_eq(errno, EPIPE);
	ck_assert_int_eq(e.kind, HUTCH_E_IO);
	ck_assert_int_eq(e.errnum, ENOENT);
	ck_assert(!e.retryable);
	ck_assert_str_eq(e.stage, "");
	ck_assert_str_eq(e.path, "");
	ck_assert_str_eq(e.message, "open /x");
	hutch_error_set(&e, HUTCH_E_BUSY, 0, "x");
	ck_assert(e.retryable);
	hutch_error_set(&e, HUTCH_E_NOT_DISPATCHED, 0, "x");
	ck_assert(e.retryable);
	hutch_error_clear(&e);
	ck_assert_int_eq(e.kind, HUTCH_OK);
	ck_assert_str_eq(e.message, "");
	ck_assert(!e.retryable);
}
END_TEST

START_TEST(nobody_wants_to_know)
{
	ck_assert_int_eq(hutch_error_set(NULL, HUTCH_E_IO, 0, "x"), -1);
	hutch_error_prefix(NULL, "x");
	hutch_error_clear(NULL);
}
END_TEST

/* Lengths around the limit, with a character of 1 to 4 bytes repeated: never half a character. */
START_TEST(long_messages_are_cut_at_a_character)
{
	static const char *const chars[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x87"};
	const char *c = chars[_i];
	size_t width = strlen(c), count = 3000 / width;
	char *text = malloc(count * width + 1);
	struct hutch_error e;

	ck_assert_ptr_nonnull(text);
	for (size_t pad = 0; pad < 4; pad++) {
		for (size_t i = 0; i < count; i++)
			memcpy(text + i * width, c, width);
		text[count * width] = '\0';
		hutch_error_set(&e, HUTCH_E_IO, 0, "%.*s%s", (int)pad, "aaaa", text);
		ck_assert_uint_le(strlen(e.message), sizeof(e.message) - 1);
		ck_assert_uint_gt(strlen(e.message), sizeof(e.message) - 1 - width);
		ck_assert_uint_eq((strlen(e.message) - pad) % width, 0);
		ck_assert_ptr_null(strchr(e.message, '?'));
	}
	free(text);
}
END_TEST

START_TEST(messages_are_printable)
{
	struct hutch_error e;

	hutch_error_set(&e, HUTCH_E_IO, 0, "%s",
			"a\xff"
			"b\x1b[2J\x07\n\tc\x7f\xc3");
	ck_assert_str_eq(e.message, "a?b?[2J?\n\tc??");
	hutch_error_set(&e, HUTCH_E_IO, 0, "%s",
			"\xc2\x9b"
			"2J \xed\xa0\x80 \xc0\xaf \xe2\x82\xac");
	ck_assert_str_eq(e.message, "??2J ??? ?? \xe2\x82\xac");
}
END_TEST

START_TEST(utf8_characters)
{
	static const struct {
		const char *s;
		size_t len, want;
	} cases[] = {
		{"", 0, 0},
		{"a", 1, 1},
		{"\0", 1, 1},
		{"\x80", 1, 0},
		{"\xc1\xbf", 2, 0},
		{"\xc2\x80", 2, 2},
		{"\xc2", 1, 0},
		{"\xc2\x41", 2, 0},
		{"\xe0\x9f\xbf", 3, 0},
		{"\xe0\xa0\x80", 3, 3},
		{"\xed\x9f\xbf", 3, 3},
		{"\xed\xa0\x80", 3, 0},
		{"\xef\xbf\xbf", 3, 3},
		{"\xf0\x8f\xbf\xbf", 4, 0},
		{"\xf0\x90\x80\x80", 4, 4},
		{"\xf4\x8f\xbf\xbf", 4, 4},
		{"\xf4\x90\x80\x80", 4, 0},
		{"\xf5\x80\x80\x80", 4, 0},
		{"\xf0\x90\x80", 3, 0},
		{"\xff", 1, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_uint_eq(hutch_utf8_char(cases[i].s, cases[i].len), cases[i].want);
}
END_TEST

START_TEST(prefix_goes_before)
{
	struct hutch_error e;

	hutch_error_set(&e, HUTCH_E_IO, ENOENT, "no such file");
	errno = EPIPE;
	hutch_error_prefix(&e, "vm %d", 7);
	ck_assert_int_eq(errno, EPIPE);
	ck_assert_str_eq(e.message, "vm 7: no such file");
	ck_assert_int_eq(e.kind, HUTCH_E_IO);
	ck_assert_int_eq(e.errnum, ENOENT);
}
END_TEST

START_TEST(prefix_of_a_full_message)
{
	char text[3000];
	struct hutch_error e;

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	hutch_error_set(&e, HUTCH_E_IO, 0, "%s", text);
	hutch_error_prefix(&e, "%s", "before");
	ck_assert_uint_eq(strlen(e.message), sizeof(e.message) - 1);
	ck_assert_int_eq(memcmp(e.message, "before: xxx", 11), 0);
	for (int i = 0; i < 20; i++)
		hutch_error_prefix(&e, "%s", text); /* a prefix is bounded as well */
	ck_assert_uint_le(strlen(e.message), sizeof(e.message) - 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("error");
	TCase *tc = tcase_create("error");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, kinds_have_names_and_back);
	tcase_add_test(tc, unknown_kinds_are_internal);
	tcase_add_test(tc, errno_names);
	tcase_add_test(tc, set_fills_everything);
	tcase_add_test(tc, nobody_wants_to_know);
	tcase_add_loop_test(tc, long_messages_are_cut_at_a_character, 0, 4);
	tcase_add_test(tc, messages_are_printable);
	tcase_add_test(tc, utf8_characters);
	tcase_add_test(tc, prefix_goes_before);
	tcase_add_test(tc, prefix_of_a_full_message);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
