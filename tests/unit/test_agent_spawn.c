/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a program: look-up in PATH, what is said when it fails, and what the child starts with. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/spawn.h"

struct agent agent = {.null_fd = -1, .proc_fd = -1, .oom_fd = -1};

static char dir[64];
static char *no_env[] = {NULL};

static const char *in_dir(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void script(const char *name, const char *text, mode_t mode)
{
	FILE *f = fopen(in_dir(name), "w");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
	ck_assert_int_eq(chmod(in_dir(name), mode), 0);
}

static void setup(void)
{
	strcpy(dir, "/tmp/test_agent_spawn.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	mkdir(in_dir("first"), 0755);
	script("first/dir", "", 0600);
	script("plain", "#!/bin/sh\nexit 0\n", 0644);
	script("seven", "#!/bin/sh\nexit 7\n", 0755);
	script("orphaned", "#!/no/such/interpreter\n", 0755);
	script("bytes", "\x01\x02\x03", 0755);
	agent.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	getrlimit(RLIMIT_NOFILE, &agent.nofile);
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

static struct spawn prepared(char **argv, const char *search)
{
	return (struct spawn){
		.argv = argv,
		.envp = no_env,
		.search = search,
		.cwd = dir,
		.stdin_fd = agent.null_fd,
		.stdout_fd = agent.null_fd,
		.stderr_fd = agent.null_fd,
		.cgroup_fd = -1,
	};
}

static int exit_code(struct spawn *s)
{
	int status;

	ck_assert_msg(spawn_run(s) == 0, "%s: %s", spawn_stage_name(s->failed),
		      strerror(s->errnum));
	ck_assert_int_eq(waitpid(s->pid, &status, 0), s->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void fails(char *name, const char *search, enum spawn_stage stage, int errnum)
{
	char *argv[] = {name, NULL};
	struct spawn s = prepared(argv, search);

	ck_assert_int_eq(spawn_run(&s), -1);
	ck_assert_str_eq(spawn_stage_name(s.failed), spawn_stage_name(stage));
	ck_assert_int_eq(s.errnum, errnum);
	wait(NULL);
}

START_TEST(test_search)
{
	char path[256] = "", name[] = "seven", *argv[] = {name, NULL};
	struct spawn s = prepared(argv, path);

	snprintf(path, sizeof(path), "/nonexistent:%s/first:%s:/bin", dir, dir);
	ck_assert_int_eq(exit_code(&s), 7);
	ck_assert_int_eq(strncmp(s.path, dir, strlen(dir)), 0);
	strcpy(path, ""); /* the working directory */
	ck_assert_int_eq(exit_code(&s), 7);
	strcpy(path, "/bin::/usr/bin");
	ck_assert_int_eq(exit_code(&s), 7);
	memset(path, 'x',
	       sizeof(path) - 1); /* an element longer than a path may be is passed over */
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(spawn_run(&s), -1);
	ck_assert_int_eq(s.errnum, ENOENT);
	wait(NULL);
}
END_TEST

START_TEST(test_failures)
{
	char long_name[5000], path[512];

	fails((char[]){"nosuch"}, "/bin:/usr/bin", SPAWN_EXEC, ENOENT);
	fails((char[]){"/nonexistent"}, NULL, SPAWN_EXEC, ENOENT);
	fails((char[]){"./plain"}, NULL, SPAWN_EXEC, EACCES);
	fails((char[]){"./first"}, NULL, SPAWN_EXEC, EACCES);
	fails((char[]){"./plain/x"}, NULL, SPAWN_EXEC, ENOTDIR);
	fails((char[]){"./orphaned"}, NULL, SPAWN_INTERPRETER, ENOENT);
	fails((char[]){"./bytes"}, NULL, SPAWN_EXEC, ENOEXEC);
	snprintf(path, sizeof(path), "%s:/bin", dir);
	fails((char[]){"plain"}, path, SPAWN_EXEC,
	      EACCES); /* one could not be run, rather than none is there */
	fails((char[]){"orphaned"}, path, SPAWN_INTERPRETER, ENOENT);
	memset(long_name, 'n', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	fails(long_name, NULL, SPAWN_EXEC, ENAMETOOLONG);
	fails(long_name, "/bin", SPAWN_EXEC, ENOENT);
}
END_TEST

START_TEST(test_working_directory)
{
	char name[] = "/bin/pwd", *argv[] = {name, NULL};
	struct spawn s = prepared(argv, NULL);

	s.cwd = "/nonexistent";
	ck_assert_int_eq(spawn_run(&s), -1);
	ck_assert_int_eq(s.failed, SPAWN_CHDIR);
	ck_assert_int_eq(s.errnum, ENOENT);
	wait(NULL);
	s.cwd_optional = true;
	ck_assert_int_eq(exit_code(&s), 0);
}
END_TEST

/* The child must not start with the agent's blocked signals or handlers. */
START_TEST(test_clean_signals)
{
	char sh[] = "/bin/sh", c[] = "-c";
	char text[] = "grep -q '^SigBlk:.0000000000000000$' /proc/self/status && "
		      "grep -q '^SigIgn:.0000000000000000$' /proc/self/status";
	char *argv[] = {sh, c, text, NULL};
	char *env[] = {(char[]){"PATH=/bin:/usr/bin"}, NULL};
	struct spawn s = prepared(argv, NULL);
	sigset_t all, before;

	s.envp = env;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	ck_assert_int_eq(exit_code(&s), 0);
	sigprocmask(SIG_SETMASK, &before, NULL);
}
END_TEST

START_TEST(test_another_user)
{
	const struct user u = {.uid = 4242, .gid = 4343, .groups = {4343, 7}, .ngroups = 2};
	char sh[] = "/bin/sh", c[] = "-c",
	     text[] = "test \"$(id -u):$(id -g):$(id -G)\" = '4242:4343:4343 7'";
	char *argv[] = {sh, c, text, NULL};
	char *env[] = {(char[]){"PATH=/bin:/usr/bin"}, NULL};
	struct spawn s = prepared(argv, NULL);

	if (geteuid() != 0) {
		s.user = &u;
		ck_assert_int_eq(spawn_run(&s), -1);
		ck_assert_int_eq(s.failed, SPAWN_GROUPS);
		wait(NULL);
		return;
	}
	s.envp = env;
	s.user = &u;
	s.cwd = "/";
	ck_assert_int_eq(exit_code(&s), 0);
	s.cwd = dir; /* 0700, root's: entered as the user, so refused */
	ck_assert_int_eq(spawn_run(&s), -1);
	ck_assert_int_eq(s.failed, SPAWN_CHDIR);
	ck_assert_int_eq(s.errnum, EACCES);
	wait(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("agent_spawn");
	TCase *t = tcase_create("spawn");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, test_search);
	tcase_add_test(t, test_failures);
	tcase_add_test(t, test_working_directory);
	tcase_add_test(t, test_clean_signals);
	tcase_add_test(t, test_another_user);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
