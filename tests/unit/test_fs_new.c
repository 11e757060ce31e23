/* SPDX-License-Identifier: Apache-2.0 */
/* A file that takes its place whole: nameless, and with a name where there is no /proc to name it by. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/fs_new.h"

struct agent agent = {.proc_fd = -1};

static char base[] = "/tmp/test_fs_new.XXXXXX";
static int dir = -1;

static void setup(void)
{
	strcpy(base + strlen(base) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	dir = open(base, O_PATH | O_DIRECTORY);
	ck_assert_int_ge(dir, 0);
}

static void teardown(void)
{
	char command[128] = "rm -rf ";

	ck_assert_int_eq(system(strcat(command, base)), 0);
	close(dir);
	if (agent.proc_fd >= 0)
		close(agent.proc_fd);
	agent.proc_fd = -1;
}

/* _i 0: nameless; 1: named. */
static void set_way(int way)
{
	if (way == 0)
		agent.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY);
}

static unsigned entries(void)
{
	DIR *d = opendir(base);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void put(const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void holds(const char *name, const char *text)
{
	char got[64] = "";
	int fd = openat(dir, name, O_RDONLY);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(read(fd, got, sizeof(got) - 1), 0);
	close(fd);
	ck_assert_str_eq(got, text);
}

static void begin(struct fs_new *n, const char *text)
{
	ck_assert_int_eq(fs_new_open(n, dir), 0);
	ck_assert_int_eq(write(n->fd, text, strlen(text)), (ssize_t)strlen(text));
}

START_TEST(a_new_name)
{
	struct stat st;
	struct fs_new n;

	set_way(_i);
	begin(&n, "new");
	ck_assert(_i == 1 ||
		  entries() == 0); /* nobody sees it yet, unless the file system has no O_TMPFILE */
	ck_assert_int_eq(fs_new_attributes(&n, (uid_t)-1, (gid_t)-1, 04751), 0);
	ck_assert_int_eq(fs_new_place(&n, "f", FS_NEW_ALONE), 0);
	fs_new_close(&n);
	ck_assert_uint_eq(entries(), 1);
	holds("f", "new");
	ck_assert_int_eq(fstatat(dir, "f", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 04751);
	ck_assert_uint_eq(st.st_nlink, 1);
}
END_TEST

START_TEST(in_the_place_of_another)
{
	enum fs_new_how how = _i / 2 ? FS_NEW_REPLACES : FS_NEW_EITHER;
	struct fs_new n;

	set_way(_i % 2);
	put("f", "old");
	ck_assert_int_eq(linkat(dir, "f", dir, "g", 0), 0);
	begin(&n, "new");
	ck_assert_int_eq(fs_new_place(&n, "f", how), 0);
	fs_new_close(&n);
	ck_assert_uint_eq(entries(), 2);
	holds("f", "new");
	holds("g", "old");
}
END_TEST

START_TEST(not_in_the_place_of_another)
{
	struct fs_new n;

	set_way(_i);
	put("f", "old");
	ck_assert_int_eq(symlinkat("nowhere", dir, "l"), 0);
	begin(&n, "new");
	ck_assert_int_eq(fs_new_place(&n, "f", FS_NEW_ALONE), -1);
	ck_assert_int_eq(errno, EEXIST);
	ck_assert_int_eq(fs_new_place(&n, "l", FS_NEW_ALONE), -1);
	ck_assert_int_eq(errno, EEXIST);
	fs_new_close(&n);
	ck_assert_uint_eq(entries(), 2);
	holds("f", "old");
}
END_TEST

START_TEST(given_up)
{
	struct fs_new n;

	set_way(_i);
	begin(&n, "new");
	errno = ENOSPC;
	fs_new_close(&n);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_uint_eq(entries(), 0);
	ck_assert_int_eq(mkdirat(dir, "d", 0700), 0);
	begin(&n, "new");
	ck_assert_int_eq(fs_new_place(&n, "d", FS_NEW_EITHER), -1);
	ck_assert_int_eq(errno, EISDIR);
	fs_new_close(&n);
	ck_assert_uint_eq(entries(), 1);
}
END_TEST

START_TEST(no_directory_any_more)
{
	struct fs_new n;

	set_way(_i);
	ck_assert_int_eq(rmdir(base), 0);
	ck_assert_int_eq(fs_new_open(&n, dir), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(mkdir(base, 0700), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fs_new");
	TCase *t = tcase_create("fs_new");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, a_new_name, 0, 2);
	tcase_add_loop_test(t, in_the_place_of_another, 0, 4);
	tcase_add_loop_test(t, not_in_the_place_of_another, 0, 2);
	tcase_add_loop_test(t, given_up, 0, 2);
	tcase_add_loop_test(t, no_directory_any_more, 0, 2);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
