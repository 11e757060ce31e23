/* SPDX-License-Identifier: Apache-2.0 */
/* Paths below a root: what they lead to, and that nothing leads out. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/fs_path.h"

static char base[] = "/tmp/test_fs_path.XXXXXX";
static char root_text[64];
static struct fs_root root;
static const struct fs_root none = {.fd = -1};

static void put_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, path, strlen(path)), (ssize_t)strlen(path));
	close(fd);
}

static void put_link(const char *text, const char *path)
{
	ck_assert_int_eq(symlink(text, path), 0);
}

static void setup(void)
{
	char text[256];

	strcpy(base + strlen(base) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(chdir(base), 0);
	ck_assert_int_eq(mkdir("r", 0700) | mkdir("r/d", 0700) | mkdir("r/d/e", 0700), 0);
	ck_assert_int_eq(mkdir("out", 0700) | mkdir("rx", 0700), 0);
	put_file("r/f");
	put_file("r/d/e/g");
	put_file("out/secret");
	put_file("rx/secret");
	snprintf(root_text, sizeof(root_text), "%s/r", base);
	snprintf(text, sizeof(text), "%s/r/d", base);
	put_link(text, "r/abs");
	put_link("d/e", "r/rel");
	put_link("../rel/g", "r/d/chain");
	put_link("/", "r/slash");
	put_link("..", "r/up");
	put_link("../out/secret", "r/d/../leaves");
	put_link("loop", "r/loop");
	put_link("nowhere", "r/dangling");
	snprintf(text, sizeof(text), "%s/rx/secret", base);
	put_link(text, "r/sibling");
	root.text = root_text;
	root.fd = open("r", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(root.fd, 0);
}

static void teardown(void)
{
	char command[128];

	close(root.fd);
	ck_assert_int_eq(chdir("/"), 0);
	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

/* The inode that path leads to; 0 with errno. */
static ino_t leads_to(const struct fs_root *r, const char *path, bool follow)
{
	static struct fs_at at;
	struct stat st;
	int ret;

	if (fs_find(r, path, follow, &at) < 0)
		return 0;
	ret = fstatat(at.dir, at.name, &st, at.flags);
	fs_at_close(&at);
	return ret < 0 ? 0 : st.st_ino;
}

static ino_t inode(const char *path)
{
	struct stat st;

	ck_assert_int_eq(lstat(path, &st), 0);
	return st.st_ino;
}

static const struct {
	const char *path, *is;
} inside[] = {
	{"f", "r/f"},
	{"./f", "r/f"},
	{"d/../f", "r/f"},
	{"d//e///g", "r/d/e/g"},
	{"d/e/", "r/d/e"},
	{"", "r"},
	{".", "r"},
	{"d/..", "r"},
	{"abs/e/g", "r/d/e/g"},
	{"abs", "r/d"},
	{"abs/..", "r"},
	{"rel/g", "r/d/e/g"},
	{"rel/../../f", "r/f"},
	{"d/chain", "r/d/e/g"},
	{"R/f", "r/f"},
	{"R", "r"},
	{"R/", "r"},
	{"R//d/./e/g", "r/d/e/g"},
};

START_TEST(leads_inside)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s", inside[_i].path[0] == 'R' ? root_text : "",
		 inside[_i].path + (inside[_i].path[0] == 'R'));
	ck_assert_msg(leads_to(&root, path, true) == inode(inside[_i].is), "%s: %s", path,
		      strerror(errno));
}
END_TEST

static const struct {
	const char *path;
	int errnum;
} outside[] = {{"..", EXDEV},	      {"d/../..", EXDEV},
	       {"slash", EXDEV},      {"slash/etc", EXDEV},
	       {"up", EXDEV},	      {"up/out/secret", EXDEV},
	       {"leaves", EXDEV},     {"abs/../../out", EXDEV},
	       {"/", EXDEV},	      {"/etc/passwd", EXDEV},
	       {"sibling", EXDEV},    {"loop", ELOOP},
	       {"loop/x", ELOOP},     {"dangling", ENOENT},
	       {"none/x", ENOENT},    {"f/x", ENOTDIR},
	       {"dangling/x", ENOENT}};

START_TEST(leads_nowhere)
{
	errno = 0;
	ck_assert_uint_eq(leads_to(&root, outside[_i].path, true), 0);
	ck_assert_msg(errno == outside[_i].errnum, "%s: %s", outside[_i].path, strerror(errno));
}
END_TEST

START_TEST(last_link_is_left_alone)
{
	ck_assert_uint_eq(leads_to(&root, "slash", false), inode("r/slash"));
	ck_assert_uint_eq(leads_to(&root, "rel/", false), inode("r/rel"));
	ck_assert_uint_eq(leads_to(&none, "r/slash", false), inode("r/slash"));
}
END_TEST

START_TEST(places)
{
	static struct fs_at at;

	ck_assert_int_eq(fs_place(&root, "d/new", 0, &at), 0);
	ck_assert_str_eq(at.name, "new");
	fs_at_close(&at);
	ck_assert_int_eq(fs_place(&root, "dangling", FS_FOLLOW, &at), 0);
	ck_assert_str_eq(at.name, "nowhere");
	fs_at_close(&at);
	ck_assert_int_eq(fs_place(&root, "leaves", FS_FOLLOW, &at), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(fs_place(&root, "", 0, &at), 0);
	ck_assert_str_eq(at.name, ".");
	fs_at_close(&at);
	ck_assert_int_eq(fs_place(&none, "/", 0, &at), 0);
	ck_assert_str_eq(at.name, ".");
	fs_at_close(&at);
	ck_assert_int_eq(fs_place(&none, "r/d/chain", FS_FOLLOW, &at), 0);
	ck_assert_str_eq(at.name, "g");
	fs_at_close(&at);
	ck_assert_int_eq(fs_place(&none, "r/loop", FS_FOLLOW, &at), -1);
	ck_assert_int_eq(errno, ELOOP);
	ck_assert_int_eq(fs_place(&none, "r/d/..", 0, &at), 0);
	ck_assert_str_eq(at.name, ".");
	fs_at_close(&at);
}
END_TEST

START_TEST(makes_parents)
{
	static struct fs_at at;

	ck_assert_int_eq(fs_place(&root, "m/n/o/p", 0, &at), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(fs_place(&root, "m/n/o/p", FS_PARENTS, &at), 0);
	fs_at_close(&at);
	ck_assert_int_eq(fs_place(&none, "m/n/o/p", FS_PARENTS, &at), 0);
	fs_at_close(&at);
	ck_assert_int_eq(access("r/m/n/o", F_OK) | access("m/n/o", F_OK), 0);
	ck_assert_int_eq(access("r/m/n/o/p", F_OK), -1);
	ck_assert_int_eq(fs_place(&root, "up/made/x", FS_PARENTS, &at), -1);
	ck_assert_int_eq(access("made", F_OK), -1);
}
END_TEST

START_TEST(below_a_descriptor)
{
	static struct fs_at at;

	ck_assert_int_eq(fs_below(root.fd, "rel/g", 0, &at), 0);
	fs_at_close(&at);
	ck_assert_int_eq(fs_below(root.fd, "abs/e", 0, &at), -1);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(fs_below(root.fd, "/f", 0, &at), -1);
	ck_assert_int_eq(errno, EXDEV);
}
END_TEST

START_TEST(long_ones)
{
	static struct fs_at at;
	static char path[8192];

	memset(path, 'x', 300);
	ck_assert_uint_eq(leads_to(&root, path, true), 0);
	ck_assert_int_eq(errno, ENAMETOOLONG);
	for (size_t i = 0; i < 4000; i += 2)
		memcpy(path + i, "./", 3);
	strcpy(path + 4000, "f");
	ck_assert_uint_eq(leads_to(&root, path, true), inode("r/f"));
	memset(path, 'x', 8000);
	ck_assert_int_eq(fs_place(&none, path, 0, &at), -1);
	ck_assert_int_eq(errno, ENAMETOOLONG);
}
END_TEST

/* No descriptor stays open, whatever the outcome was. */
START_TEST(closes_all)
{
	int before = open("/dev/null", O_RDONLY), after;

	close(before);
	for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
		leads_to(&root, inside[i].path, true);
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
		leads_to(&root, outside[i].path, true);
	after = open("/dev/null", O_RDONLY);
	close(after);
	ck_assert_int_eq(before, after);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs_path");
	TCase *t = tcase_create("fs_path");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, leads_inside, 0, sizeof(inside) / sizeof(inside[0]));
	tcase_add_loop_test(t, leads_nowhere, 0, sizeof(outside) / sizeof(outside[0]));
	tcase_add_test(t, last_link_is_left_alone);
	tcase_add_test(t, places);
	tcase_add_test(t, makes_parents);
	tcase_add_test(t, below_a_descriptor);
	tcase_add_test(t, long_ones);
	tcase_add_test(t, closes_all);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
