/* SPDX-License-Identifier: Apache-2.0 */
/* Start a program; see spawn.h. Everything below "In the child" runs in the agent's memory, on child_stack. */
#include "guest/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/log.h"

/* The sanitizers' shadow memory belongs to the agent; the child must not touch it. */
#define IN_CHILD __attribute__((no_sanitize("address", "undefined"), no_stack_protector))

static uint8_t child_stack[32768] __attribute__((aligned(64)));

const char *spawn_stage_name(enum spawn_stage stage)
{
	static const char *const names[] = {
		[SPAWN_OK] = "none",
		[SPAWN_CLONE] = "clone",
		[SPAWN_SETSID] = "setsid",
		[SPAWN_TTY] = "tty",
		[SPAWN_STDIO] = "stdio",
		[SPAWN_LIMITS] = "limits",
		[SPAWN_OOM] = "oom",
		[SPAWN_GROUPS] = "setgroups",
		[SPAWN_SETGID] = "setgid",
		[SPAWN_SETUID] = "setuid",
		[SPAWN_CHDIR] = "chdir",
		[SPAWN_EXEC] = "execve",
		[SPAWN_INTERPRETER] = "interpreter",
	};
	_Static_assert(sizeof(names) / sizeof(*names) == SPAWN_STAGES, "a name per stage");

	return stage < SPAWN_STAGES ? names[stage] : "?";
}

/* In the child */

#if defined(__x86_64__)
static inline IN_CHILD long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

/* clone3; the child calls fn(arg) on its stack and never returns. */
static long raw_clone3(struct clone_args *args, size_t size, void (*fn)(void *), void *arg)
{
	register void (*r12)(void *) __asm__("r12") = fn;
	register void *r13 __asm__("r13") = arg;
	long ret;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(ret)
			 : "a"((long)SYS_clone3), "D"(args), "S"(size), "r"(r12), "r"(r13)
			 : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
static inline IN_CHILD long raw6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory", "cc");
	return x0;
}

static long raw_clone3(struct clone_args *args, size_t size, void (*fn)(void *), void *arg)
{
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = (long)size;
	register void (*x20)(void *) __asm__("x20") = fn;
	register void *x21 __asm__("x21") = arg;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x0, x21\n\t"
			 "blr x20\n\t"
			 "brk 1\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x20), "r"(x21)
			 : "x30", "memory", "cc");
	return x0;
}
#else
#error "no raw system calls for this architecture"
#endif

#define RAW(nr, ...) RAW_(SYS_##nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define RAW_(nr, a, b, c, d, e, f, ...) \
	raw6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static IN_CHILD void __attribute__((noreturn))
child_fail(struct spawn *s, enum spawn_stage stage, long ret)
{
	s->failed = stage;
	s->errnum = (int)-ret;
	for (;;)
		RAW(exit_group, 127);
}

static IN_CHILD void check(struct spawn *s, enum spawn_stage stage, long ret)
{
	if (ret < 0)
		child_fail(s, stage, ret);
}

static IN_CHILD void child_stdio(struct spawn *s)
{
	const int from[3] = {s->stdin_fd, s->stdout_fd, s->stderr_fd};

	for (int to = 0; to < 3; to++)
		check(s, SPAWN_STDIO, RAW(dup3, from[to], to, 0));
	if (s->tty)
		check(s, SPAWN_TTY, RAW(ioctl, 0, TIOCSCTTY, 0));
}

static IN_CHILD void child_user(struct spawn *s)
{
	const struct user *u = s->user;

	if (!u)
		return;
	check(s, SPAWN_GROUPS, RAW(setgroups, u->ngroups, u->groups));
	check(s, SPAWN_SETGID, RAW(setresgid, u->gid, u->gid, u->gid));
	check(s, SPAWN_SETUID, RAW(setresuid, u->uid, u->uid, u->uid));
}

static IN_CHILD void child_cwd(struct spawn *s)
{
	long ret = RAW(chdir, s->cwd);

	if (ret < 0 && s->cwd_optional)
		ret = RAW(chdir, "/");
	check(s, SPAWN_CHDIR, ret);
}

static IN_CHILD size_t length(const char *p)
{
	size_t n = 0;

	while (p[n])
		n++;
	return n;
}

static IN_CHILD void append(char *to, size_t *at, const char *from, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((volatile char *)to)[(*at)++] = from[i];
}

/*
 * It asks first whether anything is there: execve makes a whole address space before it finds out, and its ENOENT is also
 * that of a missing interpreter.
 */
static IN_CHILD long try_exec(struct spawn *s)
{
	long ret = RAW(faccessat, AT_FDCWD, s->path, F_OK);

	if (ret < 0)
		return ret;
	ret = RAW(execve, s->path, s->argv, s->envp);
	if (ret == -ENOENT)
		child_fail(s, SPAWN_INTERPRETER, ret);
	return ret;
}

/*
 * As execvp: the first program in PATH that can be run, else EACCES if one could not for that reason. An empty
 * element is the current directory.
 */
static IN_CHILD void child_search(struct spawn *s)
{
	const char *name = s->argv[0], *p = s->search;
	size_t name_len = length(name);
	long denied = 0, ret;

	for (;;) {
		size_t n = 0, at = 0;

		while (p[n] && p[n] != ':')
			n++;
		if (n + name_len + 2 <= sizeof(s->path)) {
			append(s->path, &at, p, n);
			if (n)
				append(s->path, &at, "/", 1);
			append(s->path, &at, name, name_len + 1);
			ret = try_exec(s);
			if (ret == -EACCES)
				denied = ret;
			else if (ret != -ENOENT && ret != -ENOTDIR)
				child_fail(s, SPAWN_EXEC, ret);
		}
		if (!p[n])
			break;
		p += n + 1;
	}
	s->path[0] = '\0';
	child_fail(s, SPAWN_EXEC, denied ? denied : -ENOENT);
}

static IN_CHILD void child_exec(struct spawn *s)
{
	size_t at = 0, n = length(s->argv[0]) + 1;
	long ret;

	if (n > sizeof(s->path))
		child_fail(s, SPAWN_EXEC, -ENAMETOOLONG);
	append(s->path, &at, s->argv[0], n);
	ret = try_exec(s);
	child_fail(s, SPAWN_EXEC, ret);
}

static IN_CHILD void child_main(void *arg)
{
	struct spawn *s = arg;
	uint64_t no_signals = 0;

	check(s, SPAWN_SETSID, RAW(setsid, 0));
	child_stdio(s);
	check(s, SPAWN_LIMITS, RAW(prlimit64, 0, RLIMIT_NOFILE, &agent.nofile, 0));
	if (agent.nice)
		RAW(setpriority, PRIO_PROCESS, 0, 0);
	if (s->timer_slack)
		check(s, SPAWN_LIMITS, RAW(prctl, PR_SET_TIMERSLACK, s->timer_slack));
	child_user(s);
	child_cwd(s);
	RAW(rt_sigprocmask, SIG_SETMASK, &no_signals, 0, sizeof(no_signals));
	if (s->search)
		child_search(s);
	child_exec(s);
}

/* In the agent */

/*
 * A child has the agent's score, and to change its own it would have to look itself up in /proc, which costs more than
 * the clone. So the agent's is that of a command for this moment, in which it is not at risk: the kernel never
 * kills a PID 1 for want of memory, and a service of its size last of all.
 */
static int set_oom_score(const char *score, size_t n)
{
	return agent.oom_fd < 0 || write(agent.oom_fd, score, n) == (ssize_t)n ? 0 : -1;
}

int spawn_run(struct spawn *s)
{
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)child_stack,
		.stack_size = sizeof(child_stack),
	};
	long ret;

	if (s->cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)s->cgroup_fd;
	}
	s->failed = SPAWN_OK;
	s->errnum = 0;
	s->path[0] = '\0';
	if (set_oom_score("0", 1) < 0) {
		s->failed = SPAWN_OOM;
		s->errnum = errno;
		return -1;
	}
	ret = raw_clone3(&args, sizeof(args), child_main, s);
	if (set_oom_score("-1000", 5) < 0)
		log_info("own oom_score_adj: %m");
	if (ret < 0) {
		s->failed = SPAWN_CLONE;
		s->errnum = (int)-ret;
	}
	if (s->failed != SPAWN_OK)
		return -1;
	s->pid = (pid_t)ret;
	return 0;
}
