/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker gives up once it is set up. */
#include "host/hutchd/seal.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

static const int allowed[] = {
	/* the loop */
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_pwait2),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(eventfd2),
	SCMP_SYS(timerfd_create),
	SCMP_SYS(timerfd_settime),
	SCMP_SYS(timerfd_gettime),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_getres),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(time),
	/* descriptors */
	SCMP_SYS(read),
	SCMP_SYS(readv),
	SCMP_SYS(pread64),
	SCMP_SYS(preadv),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(pwrite64),
	SCMP_SYS(pwritev),
	SCMP_SYS(close),
	SCMP_SYS(close_range),
	SCMP_SYS(dup),
	SCMP_SYS(dup2),
	SCMP_SYS(dup3),
	SCMP_SYS(fcntl),
	SCMP_SYS(ioctl),
	SCMP_SYS(lseek),
	SCMP_SYS(pipe2),
	SCMP_SYS(memfd_create),
	/* sockets; socket itself is below */
	SCMP_SYS(socketpair),
	SCMP_SYS(bind),
	SCMP_SYS(listen),
	SCMP_SYS(accept4),
	SCMP_SYS(connect),
	SCMP_SYS(shutdown),
	SCMP_SYS(sendto),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(recvmsg),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	/* files of the state directory */
	SCMP_SYS(open),
	SCMP_SYS(openat),
	SCMP_SYS(openat2),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(statfs),
	SCMP_SYS(fstatfs),
	SCMP_SYS(access),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(getdents64),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(mkdir),
	SCMP_SYS(mkdirat),
	SCMP_SYS(unlink),
	SCMP_SYS(unlinkat),
	SCMP_SYS(rmdir),
	SCMP_SYS(rename),
	SCMP_SYS(renameat),
	SCMP_SYS(renameat2),
	SCMP_SYS(linkat),
	SCMP_SYS(symlinkat),
	SCMP_SYS(fchmod),
	SCMP_SYS(fchmodat),
	SCMP_SYS(fchown),
	SCMP_SYS(fchownat),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(syncfs),
	SCMP_SYS(sync_file_range),
	SCMP_SYS(flock),
	SCMP_SYS(fadvise64),
	SCMP_SYS(copy_file_range),
	SCMP_SYS(sendfile),
	SCMP_SYS(splice),
	SCMP_SYS(utimensat),
	SCMP_SYS(umask),
	SCMP_SYS(getcwd),
	/* processes: VMMs by pidfd, the launcher's end */
	SCMP_SYS(pidfd_open),
	SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(wait4),
	SCMP_SYS(waitid),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(getppid),
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(tgkill),
	SCMP_SYS(getrlimit),
	SCMP_SYS(uname),
	SCMP_SYS(sysinfo),
	SCMP_SYS(getrusage),
	/* memory, threads, the C library */
	SCMP_SYS(brk),
	SCMP_SYS(mmap),
	SCMP_SYS(munmap),
	SCMP_SYS(mprotect),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(futex),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(sched_setscheduler),
	SCMP_SYS(setpriority),
	SCMP_SYS(ioprio_set),
	SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(getrandom),
	SCMP_SYS(membarrier),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

static int fail(struct hutch_error *err, const char *what, int errnum)
{
	return hutch_error_set(err, HUTCH_E_INTERNAL, errnum, "the broker cannot be sealed: %s: %s",
			       what, strerror(errnum));
}

static int add_rules(scmp_filter_ctx ctx)
{
	const scmp_datum_t thread = CLONE_VM | CLONE_THREAD;
	int rc = 0;

	for (size_t i = 0; i < COUNT(allowed); i++)
		rc |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	rc |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
			       SCMP_A0(SCMP_CMP_MASKED_EQ, thread, thread));
	/* Reading limits; a new one would be the third argument. */
	rc |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1,
			       SCMP_A2(SCMP_CMP_EQ, 0, 0));
	rc |= seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
			       SCMP_A0(SCMP_CMP_EQ, AF_UNIX, 0));
	/* The C library then makes threads with clone, whose flags can be looked at. */
	rc |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return rc;
}

/* A leak check traces the process from a clone of itself, and a report may run a symbolizer. */
static int add_rules_sanitized(scmp_filter_ctx ctx)
{
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
				SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0));
}

static int filter(struct hutch_error *err)
{
	scmp_filter_ctx ctx = seccomp_init(SANITIZED ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM));
	int rc;

	if (!ctx)
		return fail(err, "seccomp", ENOMEM);
	rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (rc == 0)
		rc = (SANITIZED ? add_rules_sanitized(ctx) : add_rules(ctx)) ? -EINVAL : 0;
	if (rc == 0)
		rc = seccomp_load(ctx);
	seccomp_release(ctx);
	return rc ? fail(err, "seccomp", -rc) : 0;
}

/* capabilities(7). What it has not got it cannot drop, and need not. */
static int drop_caps(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	if (syscall(SYS_capget, &h, d) < 0)
		return -1;
	if (d[0].effective >> CAP_SETPCAP & 1)
		for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
			if (prctl(PR_CAPBSET_DROP, cap) < 0)
				return -1;
	d[0].permitted &= 1u << CAP_KILL;
	d[0].effective = d[0].permitted;
	d[0].inheritable = d[1].permitted = d[1].effective = d[1].inheritable = 0;
	return (int)syscall(SYS_capset, &h, d);
}

int seal(const gid_t *group, struct hutch_error *err)
{
	const struct rlimit none = {0, 0};

	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return fail(err, "core files", errno);
	if (geteuid() == 0 && setgroups(group ? 1 : 0, group) < 0 && errno != EPERM)
		return fail(err, "groups", errno);
	if (drop_caps() < 0)
		return fail(err, "capabilities", errno);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail(err, "privileges", errno);
	if (!SANITIZED && prctl(PR_SET_DUMPABLE, 0) < 0)
		return fail(err, "dumpable", errno);
	return filter(err);
}
