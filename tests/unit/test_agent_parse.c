/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent reads from /proc and small files. */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/lines.h"
#include "guest/procwalk.h"

struct agent agent = {.null_fd = -1, .proc_fd = -1, .oom_fd = -1};

START_TEST(test_stat)
{
	struct proc p;

	ck_assert(proc_parse_stat("42 (sh) S 7 42 41 34816 42 4194304 1 2 3 4 5 6 7 8 20 0 1 0 "
				  "987654 1000 200\n",
				  &p));
	ck_assert_int_eq(p.pid, 42);
	ck_assert_int_eq(p.ppid, 7);
	ck_assert_int_eq(p.sid, 41);
	ck_assert_int_eq(p.state, 'S');
	ck_assert_uint_eq(p.start, 987654);
	/* a name that looks like the rest */
	ck_assert(proc_parse_stat("43 (a) R 1 1 1 (b)) Z 7 43 40 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 "
				  "5 1\n",
				  &p));
	ck_assert_int_eq(p.state, 'Z');
	ck_assert_int_eq(p.sid, 40);
	ck_assert_uint_eq(p.start, 5);
}
END_TEST

START_TEST(test_bad_stat)
{
	static const char *const bad[] = {
		"",
		"42",
		"42 (sh",
		"42 (sh)",
		"42 (sh) S",
		"42 (sh) S 1 2",
		"(sh) S 1 2 3",
		"x (y) z",
		"42 (sh) S 7 42 41 34816 42 4194304 1 2 3 4 5 6 7 8 20 0 1 0 "};
	struct proc p;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(!proc_parse_stat(bad[i], &p), "%s", bad[i]);
}
END_TEST

/* A child in a session of its own, with the tag, that has a child and an orphan that left both. */
static pid_t start_tree(uint32_t tag, int ready)
{
	pid_t first = fork();

	ck_assert_int_ge(first, 0);
	if (first)
		return first;
	prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_BASE + tag);
	setsid();
	if (fork() == 0) {
		if (fork() == 0) { /* double fork and setsid */
			setsid();
			while (getppid() != 1 && !write(ready, "", 0))
				usleep(1000);
			pause();
		}
		if (fork() == 0)
			pause();
		_exit(0);
	}
	wait(NULL);
	(void)!write(ready, "x", 1);
	pause();
	_exit(0);
}

START_TEST(test_walk_finds_orphans)
{
	int p[2];
	struct proc_set set;
	pid_t first;
	char c;

	agent.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	ck_assert_int_eq(pipe2(p, O_CLOEXEC), 0);
	first = start_tree(77, p[1]);
	ck_assert_int_eq(read(p[0], &c, 1), 1);
	ck_assert_int_eq(procwalk_members(first, false, 77, &set), 0);
	if (geteuid() == 0) /* else the tag cannot be read */
		ck_assert_uint_eq(set.n, 3);
	for (size_t i = 0; i < set.n; i++)
		ck_assert_int_eq(procwalk_signal(&set.v[i], SIGKILL), 0);
	while (set.n && wait(NULL) > 0)
		;
	for (size_t i = 0; i < set.n; i++) {
		struct proc gone = set.v[i];

		gone.pid = getpid(); /* a pid that was reused */
		gone.start += 1;
		ck_assert_int_eq(procwalk_signal(&gone, SIGKILL), -1);
	}
	proc_set_free(&set);
	ck_assert_int_eq(procwalk_members(first, true, 77, &set), 0);
	ck_assert_uint_eq(set.n, 0);
	proc_set_free(&set);
	close(p[0]);
	close(p[1]);
	close(agent.proc_fd);
}
END_TEST

START_TEST(test_lines)
{
	char path[] = "/tmp/test_agent_lines.XXXXXX";
	int fd = mkstemp(path);
	struct lines l;
	char longest[AGENT_LINE];

	ck_assert_int_ge(fd, 0);
	memset(longest, 'y', sizeof(longest));
	ck_assert_int_eq(write(fd, "one\n\ntwo\n", 9), 9);
	ck_assert_int_eq(write(fd, longest, sizeof(longest)), (int)sizeof(longest));
	ck_assert_int_eq(write(fd, "\nthree", 6), 6);
	close(fd);
	ck_assert(lines_open(&l, AT_FDCWD, path));
	ck_assert(lines_next(&l));
	ck_assert_str_eq(l.line, "one");
	ck_assert(lines_next(&l));
	ck_assert_str_eq(l.line, "two");
	ck_assert(lines_next(&l));
	ck_assert_str_eq(l.line, "three");
	ck_assert(!lines_next(&l));
	lines_close(&l);
	unlink(path);
	ck_assert(!lines_open(&l, AT_FDCWD, path));
	ck_assert(!lines_next(&l));
	ck_assert(!lines_open(&l, AT_FDCWD, "/tmp"));
}
END_TEST

START_TEST(test_numbers)
{
	const char *p = " 12 ab34\n0";
	uint64_t v;

	ck_assert(next_number(&p, &v));
	ck_assert_uint_eq(v, 12);
	ck_assert(next_number(&p, &v));
	ck_assert_uint_eq(v, 34);
	ck_assert(next_number(&p, &v));
	ck_assert_uint_eq(v, 0);
	ck_assert(!next_number(&p, &v));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_parse");
	TCase *t = tcase_create("parse");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_test(t, test_stat);
	tcase_add_test(t, test_bad_stat);
	tcase_add_test(t, test_walk_finds_orphans);
	tcase_add_test(t, test_lines);
	tcase_add_test(t, test_numbers);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
