/* SPDX-License-Identifier: Apache-2.0 */
/* What a VMM's filter refuses and what it lets through, tried in a child that is under it. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/seccomp.h"
#include "host/vsock/vmm_fork.h"

static int fails_with(long result, int error)
{
	return result == -1 && errno == error;
}

static void *nothing(void *arg)
{
	return arg;
}

/* Returns the number of the first line that is not as it should be. */
static int try_all(void)
{
	struct sock_fprog program = seccomp_vmm_filter(SECCOMP_VMM);
	pthread_t thread;
	int pair[2];

	if (!program.filter || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    seccomp_install(&program) < 0)
		return __LINE__;
	if (!fails_with(unshare(CLONE_NEWUSER), EPERM))
		return __LINE__;
	if (!fails_with(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0), EPERM))
		return __LINE__;
	if (!fails_with(syscall(SYS_clone3, NULL, 0), ENOSYS))
		return __LINE__;
	if (!fails_with(syscall(SYS_io_uring_setup, 1, NULL), ENOSYS))
		return __LINE__;
	if (!fails_with(syscall(SYS_ptrace, 0, 0, 0, 0), EPERM) ||
	    !fails_with(syscall(SYS_bpf, 0, NULL, 0), EPERM) ||
	    !fails_with(syscall(SYS_mount, NULL, NULL, NULL, 0, NULL), EPERM) ||
	    !fails_with(syscall(SYS_pidfd_getfd, -1, -1, 0), EPERM))
		return __LINE__;
	if (!fails_with(socket(AF_INET, SOCK_STREAM, 0), EAFNOSUPPORT) ||
	    !fails_with(socket(AF_VSOCK, SOCK_STREAM, 0), EAFNOSUPPORT) ||
	    !fails_with(socket(AF_NETLINK, SOCK_RAW, 0), EAFNOSUPPORT))
		return __LINE__;
	if (socket(AF_UNIX, SOCK_STREAM, 0) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return __LINE__;
	if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
		return __LINE__;
	return 0;
}

static int is_refused(unsigned long flags)
{
	pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return fails_with(pid, EPERM);
}

/* One kind of process and no other: the namespaces are had or not, as the kernel will, but not refused by the filter. */
static int try_zygote(void)
{
	static const unsigned parts[] = {CLONE_PARENT, CLONE_NEWUSER, CLONE_NEWNS,
					 CLONE_NEWPID, CLONE_NEWIPC,  CLONE_NEWUTS};
	struct sock_fprog program = seccomp_vmm_filter(SECCOMP_ZYGOTE);
	pthread_t thread;
	pid_t pid;

	if (!program.filter || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    seccomp_install(&program) < 0)
		return __LINE__;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!is_refused(parts[i]) || !is_refused(VMM_FORK_FLAGS & ~parts[i]))
			return __LINE__;
	if (!is_refused(VMM_FORK_FLAGS | CLONE_FILES) || !is_refused(VMM_FORK_FLAGS | CLONE_FS) ||
	    !is_refused(VMM_FORK_FLAGS | CLONE_NEWNET) || !is_refused(CLONE_NEWCGROUP))
		return __LINE__;
	if (!fails_with(unshare(CLONE_NEWUSER), EPERM) ||
	    !fails_with(syscall(SYS_clone3, NULL, 0), ENOSYS) ||
	    !fails_with(syscall(SYS_mount, NULL, NULL, NULL, 0, NULL), EPERM) ||
	    !fails_with(syscall(SYS_ptrace, 0, 0, 0, 0), EPERM))
		return __LINE__;
	if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
		return __LINE__;
	pid = (pid_t)syscall(SYS_clone, VMM_FORK_FLAGS | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	/* Without privileges, and where the host gives no user namespaces, that is the kernel's EPERM or ENOSPC. */
	return pid < 0 && geteuid() == 0 && errno == EPERM ? __LINE__ : 0;
}

static int try_forked(void)
{
	struct sock_fprog program = seccomp_vmm_filter(SECCOMP_FORKED);
	pthread_t thread;

	if (!program.filter || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    seccomp_install(&program) < 0)
		return __LINE__;
	if (!is_refused(0) || !is_refused(VMM_FORK_FLAGS) || !fails_with(fork(), EPERM) ||
	    !fails_with(execl("/bin/true", "true", (char *)NULL), EPERM))
		return __LINE__;
	if (!fails_with(setresuid(1, 1, 1), EPERM) || !fails_with(setgid(1), EPERM) ||
	    !fails_with(syscall(SYS_capset, NULL, NULL), EPERM) || !fails_with(setsid(), EPERM))
		return __LINE__;
	if (pthread_create(&thread, NULL, nothing, NULL) != 0 || pthread_join(thread, NULL) != 0)
		return __LINE__;
	return 0;
}

static int (*const tries[])(void) = {try_all, try_zygote, try_forked};

START_TEST(a_vmms_filter)
{
	int status = 0;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(tries[_i]());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "line %d (status %x)",
		      WEXITSTATUS(status), (unsigned)status);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seccomp");
	TCase *tc = tcase_create("filter");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_loop_test(tc, a_vmms_filter, 0, sizeof(tries) / sizeof(tries[0]));
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
