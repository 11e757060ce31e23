/* SPDX-License-Identifier: Apache-2.0 */
/* Users from an image's files: cases, malformed lines, files that are none. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/user.h"

static char etc[64];

static FILE *create(const char *name)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", etc, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	return f;
}

static void write_file(const char *name, const char *text)
{
	FILE *f = create(name);

	fputs(text, f);
	fclose(f);
}

static void setup(void)
{
	strcpy(etc, "/tmp/test_agent_user.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(etc));
}

static void teardown(void)
{
	char path[128];

	for (const char *const *n = (const char *const[]){"passwd", "group", NULL}; *n; n++) {
		snprintf(path, sizeof(path), "%s/%s", etc, *n);
		unlink(path);
	}
	rmdir(etc);
}

static void image(void)
{
	write_file("passwd", "root:x:0:0:root:/root:/bin/bash\n"
			     "app:x:1000:1000:App:/home/app:/bin/sh\n"
			     "noshell:x:7:8::/var:\n"
			     "1234:x:55:56::/numeric:/bin/x\n"
			     "last:x:9:9::/last:/bin/last");
	write_file("group", "root:x:0:\n"
			    "app:x:1000:\n"
			    "audio:x:29:app,root\n"
			    "video:x:44:root,app\n"
			    "almost:x:45:appx,xapp,ap\n"
			    "only:x:46:app\n");
}

static struct user lookup(const char *spec)
{
	struct hutch_error err = {0};
	struct user u;

	ck_assert_msg(user_lookup(etc, spec, &u, &err) == 0, "%s: %s", spec, err.message);
	ck_assert_uint_ge(u.ngroups, 1);
	ck_assert_uint_eq(u.groups[0], u.gid);
	return u;
}

static void refused(const char *spec, const char *says)
{
	struct hutch_error err = {0};
	struct user u;

	ck_assert_int_eq(user_lookup(etc, spec, &u, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_msg(strstr(err.message, says) != NULL, "%s", err.message);
}

START_TEST(test_names_numbers_and_groups)
{
	struct user u;

	image();
	u = lookup("app");
	ck_assert_uint_eq(u.uid, 1000);
	ck_assert_str_eq(u.home, "/home/app");
	ck_assert_uint_eq(u.ngroups, 4);
	ck_assert_uint_eq(u.groups[1], 29);
	ck_assert_uint_eq(u.groups[2], 44);
	ck_assert_uint_eq(u.groups[3], 46);
	u = lookup("1000");
	ck_assert_str_eq(u.name, "app");
	ck_assert_uint_eq(u.ngroups, 4);
	u = lookup("app:audio");
	ck_assert_uint_eq(u.gid, 29);
	ck_assert_uint_eq(u.ngroups, 1);
	u = lookup("app:77");
	ck_assert_uint_eq(u.gid, 77);
	u = lookup("1234");
	ck_assert_uint_eq(u.uid, 55); /* an entry's name goes first */
	u = lookup("noshell");
	ck_assert_str_eq(u.shell, "/bin/sh");
	u = lookup("last");
	ck_assert_str_eq(u.home, "/last");
}
END_TEST

START_TEST(test_numbers_need_no_entry)
{
	struct user u;

	u = lookup("4242:4343"); /* there are no files at all */
	ck_assert_uint_eq(u.uid, 4242);
	ck_assert_uint_eq(u.gid, 4343);
	ck_assert_uint_eq(u.ngroups, 1);
	ck_assert_str_eq(u.home, "/");
	ck_assert_str_eq(u.name, "4242");
	u = lookup("4242");
	ck_assert_uint_eq(u.gid, 4242); /* never root's */
	u = lookup("4294967294");
	ck_assert_uint_eq(u.uid, 4294967294u);
	user_describe(etc, 0, &u);
	ck_assert_str_eq(u.home, "/");
	ck_assert_str_eq(u.name, "0");
	ck_assert_uint_eq(u.ngroups, 0);
}
END_TEST

START_TEST(test_unknown_is_named)
{
	static const char *const bad[] = {"",	  ":",	    ":5",	  "app:",
					  "-1",	  "+5",	    "4294967295", "99999999999999999999",
					  "0x10", "app:no", "1 2",	  "app:1:2"};

	image();
	refused("nosuch", "nosuch");
	refused("app:nosuch", "nosuch");
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		refused(bad[i], "");
	refused("a234567890123456789012345678901234567890123456789012345678901234567890", "a2345");
}
END_TEST

START_TEST(test_malformed_lines_are_skipped)
{
	struct user u;
	FILE *f = create("passwd");

	fputs("\n:::::: \napp\napp:x\napp:x:y:z:::\napp:x:1:2:a:b:c:d\n::1:2:::\n+::::::\n", f);
	fputs("app:x:4294967295:1::/:/bin/sh\napp:x:-1:1::/:/bin/sh\n", f);
	fwrite("app:x:5:\0:::\n", 1, 13, f);
	for (int i = 0; i < 10 << 20; i++)
		fputc('x', f);
	fputs("\napp:x:1001:1002::/right:/bin/sh\n", f);
	fclose(f);
	u = lookup("app");
	ck_assert_uint_eq(u.uid, 1001);
	ck_assert_str_eq(u.home, "/right");
}
END_TEST

START_TEST(test_many_groups_are_cut)
{
	struct user u;
	FILE *f;

	image();
	f = create("group");
	for (int i = 0; i < 500; i++)
		fprintf(f, "g%d:x:%d:app\n", i, 2000 + i);
	fclose(f);
	u = lookup("app");
	ck_assert_uint_eq(u.ngroups, AGENT_MAX_GROUPS);
}
END_TEST

START_TEST(test_fifo_does_not_block)
{
	char path[128];
	struct user u;

	snprintf(path, sizeof(path), "%s/passwd", etc);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	u = lookup("5");
	ck_assert_uint_eq(u.gid, 5);
	refused("app", "app");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_user");
	TCase *t = tcase_create("user");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, test_names_numbers_and_groups);
	tcase_add_test(t, test_numbers_need_no_entry);
	tcase_add_test(t, test_unknown_is_named);
	tcase_add_test(t, test_malformed_lines_are_skipped);
	tcase_add_test(t, test_many_groups_are_cut);
	tcase_add_test(t, test_fifo_does_not_block);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
