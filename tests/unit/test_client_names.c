/* SPDX-License-Identifier: Apache-2.0 */
/* What the hutch command does to bytes: keys that detach, names in archives, ID:PATH. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tools/hutch/keys.h"
#include "tools/hutch/remote.h"
#include "tools/hutch/tarname.h"

/* ---- keys ---- */

START_TEST(test_keys_parse)
{
	static const char *const wrong[] = {
		"ctrl-", "ctrl-1",  "ab",
		",",	 "a,",	    ",a",
		"a,,b",	 "ctrl-pp", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"};
	struct keys k;

	ck_assert_int_eq(keys_parse(&k, KEYS_DEFAULT), 0);
	ck_assert_uint_eq(k.len, 2);
	ck_assert_mem_eq(k.seq, "\020\021", 2);
	ck_assert_int_eq(keys_parse(&k, ""), 0);
	ck_assert_uint_eq(k.len, 0);
	ck_assert_int_eq(keys_parse(&k, "ctrl-@,ctrl-Z,~,ctrl-["), 0);
	ck_assert_mem_eq(k.seq, "\0\032~\033", 4);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(keys_parse(&k, wrong[i]) < 0, "%s", wrong[i]);
}
END_TEST

/* All of in, byte by byte or at once; what came out, and after how many bytes it detached. */
static size_t filter(const char *keys, const char *in, size_t step, char *out)
{
	size_t n = strlen(in), len = 0, at = 0;
	struct keys k;
	bool detach = false;

	ck_assert_int_eq(keys_parse(&k, keys), 0);
	for (; at < n && !detach; at += step)
		len += keys_filter(&k, in + at, n - at < step ? n - at : step, out + len, &detach);
	if (!detach)
		len += keys_flush(&k, out + len);
	out[len] = '\0';
	return detach ? at : 0;
}

START_TEST(test_keys_filter)
{
	static const struct {
		const char *keys, *in, *out;
		bool detaches;
	} cases[] = {
		{"a,b", "xaby", "x", true},
		{"a,b", "xacy", "xacy", false},
		{"a,b", "aab", "a", true},
		{"a,b", "xa", "xa", false},
		{"a,a,b", "aaab", "a", true},
		{"a,b,a,c", "ababac", "ab", true},
		{"a,b,a,c", "ababa", "ababa", false},
		{"", "anything", "anything", false},
		{"a", "a", "", true},
		{"a,b,a,b,c", "ababababc", "abab", true},
	};
	char out[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t step = 1; step <= 16; step++) {
			size_t r = filter(cases[i].keys, cases[i].in, step, out);

			ck_assert_str_eq(out, cases[i].out);
			ck_assert_int_eq(r != 0, cases[i].detaches);
		}
}
END_TEST

/* ---- names in archives ---- */

START_TEST(test_tarname)
{
	static const struct {
		const char *in, *out; /* NULL: refused */
	} cases[] = {
		{"a", "a"},
		{"./a", "a"},
		{"a/b/", "a/b"},
		{".//a//", "a"},
		{"./././a", "a"},
		{"./", "."},
		{".", "."},
		{".///", "."},
		{"...", "..."},
		{"..a", "..a"},
		{"a/..b", "a/..b"},
		{"a..", "a.."},
		{".hidden", ".hidden"},
		{"./.hidden", ".hidden"},
		{"", NULL},
		{"/", NULL},
		{"/a", NULL},
		{"..", NULL},
		{"../a", NULL},
		{"a/..", NULL},
		{"a/../b", NULL},
		{"./../a", NULL},
		{"a//../b", NULL},
		{".//..", NULL},
		{"//a", NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *copy = strdup(cases[i].in), *got = tarname(copy);

		ck_assert_msg((got == NULL) == (cases[i].out == NULL), "%s", cases[i].in);
		if (got != NULL)
			ck_assert_str_eq(got, cases[i].out);
		free(copy);
	}
}
END_TEST

/* ---- ID:PATH ---- */

static void check_free(char *got, const char *wanted)
{
	ck_assert_str_eq(got, wanted);
	free(got);
}

START_TEST(test_remote)
{
	char word[] = "name:/a:b", empty[] = "id:";
	const char *vm, *path;

	ck_assert(remote_is(word) && remote_is(empty) && remote_is("id:rel"));
	ck_assert(!remote_is("/a:b") && !remote_is("./a:b") && !remote_is("a") &&
		  !remote_is(":a") && !remote_is("-") && !remote_is(""));
	remote_split(word, &vm, &path);
	ck_assert_str_eq(vm, "name");
	ck_assert_str_eq(path, "/a:b");
	remote_split(empty, &vm, &path);
	ck_assert_str_eq(path, "/");
	check_free(path_base("/a/b//"), "b");
	check_free(path_base("b"), "b");
	check_free(path_base("//"), "/");
	check_free(path_dir("/a/b//"), "/a/");
	check_free(path_dir("/a"), "/");
	check_free(path_dir("a"), ".");
	check_free(path_join("/a/", "b"), "/a/b");
	check_free(path_join("a", "b"), "a/b");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("client_names");
	TCase *t = tcase_create("names");
	SRunner *r;
	int failed;

	tcase_add_test(t, test_keys_parse);
	tcase_add_test(t, test_keys_filter);
	tcase_add_test(t, test_tarname);
	tcase_add_test(t, test_remote);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
