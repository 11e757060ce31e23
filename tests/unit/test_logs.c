/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines that nobody can forge, and the tails of a VM's logs. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/hutchd/console.h"
#include "host/hutchd/log.h"
#include "tests/unit/vmm_rig.h"

/* What the call writes to stderr. */
static char captured[32768];
static int saved_stderr, pipe_out;

static void begin_capture(void)
{
	int p[2];

	ck_assert_int_eq(pipe(p), 0);
	saved_stderr = dup(STDERR_FILENO);
	dup2(p[1], STDERR_FILENO);
	close(p[1]);
	pipe_out = p[0];
}

static void end_capture(void)
{
	ssize_t n;

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	n = read(pipe_out, captured, sizeof(captured) - 1);
	close(pipe_out);
	captured[n > 0 ? n : 0] = '\0';
}

START_TEST(a_line_names_level_and_object)
{
	log_setup("hutchd", LOG_LEVEL_INFO, 0);
	begin_capture();
	log_debug("vm 1", "not shown");
	errno = ENOENT;
	log_errno(LOG_LEVEL_WARN, "vm 1", "open %s", "x");
	ck_assert_int_eq(errno, ENOENT);
	end_capture();
	ck_assert_ptr_nonnull(
		strstr(captured, "Z hutchd warn: vm 1: open x: No such file or directory\n"));
	ck_assert_ptr_null(strstr(captured, "not shown"));
}
END_TEST

START_TEST(quoted_text_cannot_forge_a_line)
{
	log_setup("hutchd", LOG_LEVEL_INFO, 0);
	begin_capture();
	log_info("vm\n1", "a\nb\x1b[31m\xff\xc2\x9b \xc3\xa4");
	end_capture();
	ck_assert_ptr_nonnull(
		strstr(captured, "vm\\u000a1: a\\u000ab\\u001b[31m\\u00ff\\u00c2 \xc3\xa4\n"));
	ck_assert_ptr_eq(strchr(captured, '\n'), captured + strlen(captured) - 1);
}
END_TEST

START_TEST(json_lines_are_json_whatever_is_in_them)
{
	char huge[8000];
	json_t *line;

	for (size_t i = 0; i < sizeof(huge) - 1; i++)
		huge[i] = "\x01\"\\\xffz"[i % 5];
	huge[sizeof(huge) - 1] = '\0';
	log_setup("launcher", LOG_LEVEL_DEBUG, 1);
	begin_capture();
	log_debug(huge, "%s", huge);
	end_capture();
	log_setup("hutchd", LOG_LEVEL_INFO, 0);
	line = json_loads(captured, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(line);
	ck_assert_str_eq(json_string_value(json_object_get(line, "level")), "debug");
	ck_assert_str_eq(json_string_value(json_object_get(line, "who")), "launcher");
	json_decref(line);
}
END_TEST

static void check_tail(const char *text, size_t size, const char *want)
{
	char out[256];

	rig_write(CONSOLE_LOG, text);
	ck_assert_uint_eq(log_tail(rig_dir_fd, CONSOLE_LOG, out, size), strlen(want));
	ck_assert_str_eq(out, want);
}

START_TEST(tails_are_whole_lines_of_clean_text)
{
	check_tail("", 64, "");
	check_tail("one\r\ntwo\r\n", 64, "one\ntwo");
	check_tail("a\x1b[2Jb\tc\xff\xc3\xa4\x7f\n\n\n", 64, "a?[2Jb c?\xc3\xa4?");
	check_tail("first\nsecond\nthird\n", 15, "second\nthird");
	check_tail("first\nsecond\nthird\n", 14, "third");
	check_tail("a line longer than that", 9, "han that");
	check_tail("a line longer than that\n", 9, "an that");
}
END_TEST

START_TEST(a_tail_without_a_file)
{
	char out[16] = "x";

	ck_assert_uint_eq(log_tail(rig_dir_fd, CONSOLE_LOG, out, sizeof(out)), 0);
	ck_assert_str_eq(out, "");
	ck_assert_int_eq(symlinkat("/etc/passwd", rig_dir_fd, CONSOLE_LOG), 0);
	ck_assert_uint_eq(log_tail(rig_dir_fd, CONSOLE_LOG, out, sizeof(out)), 0);
}
END_TEST

START_TEST(holes_are_left_out)
{
	int fd = openat(rig_dir_fd, VMM_LOG, O_WRONLY | O_CREAT, 0600);
	char out[64];

	ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
	ck_assert_int_eq(pwrite(fd, "end\n", 4, 1 << 20), 4);
	close(fd);
	log_tail(rig_dir_fd, VMM_LOG, out, sizeof(out));
	ck_assert_str_eq(out, "end");
}
END_TEST

START_TEST(last_lines)
{
	char out[64];

	rig_write(VMM_LOG, "one\ntwo\n\n\n");
	ck_assert_uint_eq(log_last_line(rig_dir_fd, VMM_LOG, out, sizeof(out)), 3);
	ck_assert_str_eq(out, "two");
	rig_write(VMM_LOG, "one");
	ck_assert_uint_eq(log_last_line(rig_dir_fd, VMM_LOG, out, sizeof(out)), 3);
	ck_assert_str_eq(out, "one");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("logs");
	TCase *tc = tcase_create("logs");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, rig_make, rig_remove);
	tcase_add_test(tc, a_line_names_level_and_object);
	tcase_add_test(tc, quoted_text_cannot_forge_a_line);
	tcase_add_test(tc, json_lines_are_json_whatever_is_in_them);
	tcase_add_test(tc, tails_are_whole_lines_of_clean_text);
	tcase_add_test(tc, a_tail_without_a_file);
	tcase_add_test(tc, holes_are_left_out);
	tcase_add_test(tc, last_lines);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
