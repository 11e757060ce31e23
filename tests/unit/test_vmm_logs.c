/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logs that are appended to without end stay small on disk, and their end stays what was written
 * last.
 */
#include "host/vsock/vmm_logs.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/console.h"
#include "tests/unit/vmm_rig.h"

static char chunk[8192];

static int open_log_file(void)
{
	int fd = openat(rig_dir_fd, CONSOLE_LOG, O_WRONLY | O_CREAT | O_APPEND, 0600);

	ck_assert_int_ge(fd, 0);
	memset(chunk, 'x', sizeof(chunk));
	chunk[sizeof(chunk) - 1] = '\n';
	return fd;
}

static void append(int fd, size_t bytes)
{
	for (; bytes > 0; bytes -= sizeof(chunk))
		ck_assert_int_eq(write(fd, chunk, sizeof(chunk)), (ssize_t)sizeof(chunk));
}

static uint64_t on_disk(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

START_TEST(a_small_log_is_left_alone)
{
	int fd = open_log_file();
	uint64_t freed = 0;

	append(fd, VMM_LOG_MAX);
	vmm_log_cut(fd, &freed);
	ck_assert_uint_eq(freed, 0);
	ck_assert_uint_ge(on_disk(fd), VMM_LOG_MAX);
	close(fd);
}
END_TEST

START_TEST(a_flood_stays_small)
{
	int fd = open_log_file();
	uint64_t freed = 0;
	char tail[64];

	for (int i = 0; i < 50; i++) {
		append(fd, 1u << 20);
		ck_assert_int_eq(write(fd, "last words\n", 11), 11);
		vmm_log_cut(fd, &freed);
		ck_assert_uint_le(on_disk(fd), VMM_LOG_KEEP + 16384);
		log_last_line(rig_dir_fd, CONSOLE_LOG, tail, sizeof(tail));
		ck_assert_str_eq(tail, "last words");
	}
	close(fd);
}
END_TEST

START_TEST(a_log_that_was_emptied)
{
	int fd = open_log_file();
	uint64_t freed = 0;

	append(fd, 1u << 20);
	vmm_log_cut(fd, &freed);
	ck_assert_uint_gt(freed, 0);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	vmm_log_cut(fd, &freed);
	ck_assert_uint_eq(freed, 0);
	append(fd, 1u << 20);
	vmm_log_cut(fd, &freed);
	ck_assert_uint_le(on_disk(fd), VMM_LOG_KEEP + 16384);
	close(fd);
}
END_TEST

START_TEST(what_is_no_file_is_left_alone)
{
	uint64_t freed = 0;
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	vmm_log_cut(p[1], &freed);
	vmm_log_cut(-1, &freed);
	vmm_log_cut(1000, &freed);
	ck_assert_uint_eq(freed, 0);
	close(p[0]);
	close(p[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmm_logs");
	TCase *tc = tcase_create("vmm_logs");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, rig_make, rig_remove);
	tcase_add_test(tc, a_small_log_is_left_alone);
	tcase_add_test(tc, a_flood_stays_small);
	tcase_add_test(tc, a_log_that_was_emptied);
	tcase_add_test(tc, what_is_no_file_is_left_alone);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
