/* SPDX-License-Identifier: Apache-2.0 */
/* The environment that a command gets. */
#include <check.h>
#include <string.h>

#include "guest/env.h"

static const struct user someone = {.uid = 7,
				    .name = "some",
				    .home = "/home/some",
				    .shell = "/bin/zsh"};

static void check_env(const struct exec_start *m, const char *const *want)
{
	struct env env = {0};
	size_t n = 0;

	ck_assert_int_eq(env_build(&env, m, &someone), 0);
	for (; want[n]; n++) {
		ck_assert_ptr_nonnull(env.vec[n]);
		ck_assert_str_eq(env.vec[n], want[n]);
	}
	ck_assert_ptr_null(env.vec[n]);
	env_free(&env);
}

static const char default_path[] = "PATH=" ENV_DEFAULT_PATH;

START_TEST(test_defaults)
{
	struct exec_start m = {0};

	check_env(&m, (const char *const[]){default_path, "HOME=/home/some", "USER=some",
					    "LOGNAME=some", "SHELL=/bin/zsh", NULL});
	m.pty = true;
	m.term = "vt100";
	m.clear_env = true;
	check_env(&m, (const char *const[]){NULL});
	m.clear_env = false;
	check_env(&m, (const char *const[]){default_path, "HOME=/home/some", "USER=some",
					    "LOGNAME=some", "SHELL=/bin/zsh", "TERM=vt100", NULL});
}
END_TEST

START_TEST(test_values_are_left_as_they_are)
{
	char *pairs[] = {(char[]){"A"},
			 (char[]){"x=y=z"},
			 (char[]){"B"},
			 (char[]){"l1\nl2"},
			 (char[]){"C"},
			 (char[]){""},
			 (char[]){"D"},
			 (char[]){"hello world"},
			 (char[]){"E"},
			 NULL,
			 (char[]){"PATH"},
			 (char[]){""},
			 NULL};
	struct exec_start m = {.env = pairs, .env_pairs = 6, .clear_env = true};

	check_env(&m, (const char *const[]){"A=x=y=z", "B=l1\nl2", "C=", "D=hello world",
					    "PATH=", NULL});
}
END_TEST

START_TEST(test_own_values_replace_and_remove_defaults)
{
	char *pairs[] = {(char[]){"HOME"}, (char[]){"/else"}, (char[]){"USER"}, NULL, NULL};
	struct exec_start m = {.env = pairs, .env_pairs = 2};
	struct env env = {0};

	check_env(&m, (const char *const[]){default_path, "LOGNAME=some", "SHELL=/bin/zsh",
					    "HOME=/else", NULL});
	ck_assert_int_eq(env_build(&env, &m, &someone), 0);
	ck_assert_str_eq(env.home, "/else");
	ck_assert_str_eq(env.path, ENV_DEFAULT_PATH);
	env_free(&env);
	m.clear_env = true;
	m.env_pairs = 0;
	ck_assert_int_eq(env_build(&env, &m, &someone), 0);
	ck_assert_ptr_null(env.home);
	ck_assert_str_eq(env.path,
			 ENV_DEFAULT_PATH); /* to look the program up, though it is not passed on */
	env_free(&env);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_env");
	TCase *t = tcase_create("env");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, test_defaults);
	tcase_add_test(t, test_values_are_left_as_they_are);
	tcase_add_test(t, test_own_values_replace_and_remove_defaults);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
