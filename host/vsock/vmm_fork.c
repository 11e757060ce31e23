/* SPDX-License-Identifier: Apache-2.0 */
#undef _FORTIFY_SOURCE /* its longjmp() refuses to leave for another stack */
#include "host/vsock/vmm_fork.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_reload.h"

#define STOP_SIGNAL  (SIGRTMIN + 8)
#define STOP_MS	     500
#define MAX_THREADS  64
#define PROCESS_NAME "qemu-system-x86"
#define START_STACK  4096 /* from its birth to the jump onto its old stack */
#define GO_FDS	     (VMM_FORK_TASKS + 2 * VMM_FORK_LAYERS)
#define TID_SEARCH   1024 /* bytes of a thread's descriptor */

/* What pthread_create gives to clone(2), but for the robust list and the stack. */
#define THREAD_FLAGS                                                                        \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

struct thread {
	pid_t tid;
	char *tcb; /* its descriptor, and its FS base */
	jmp_buf env;
};

static struct {
	bool prepared;
	size_t tid_offset; /* of the thread id in a descriptor */
	char **argv, **envp;
	struct thread thread[MAX_THREADS];
	atomic_uint stopped;
	atomic_uint round; /* a thread stands still until it changes */
	char stack[MAX_THREADS][START_STACK] __attribute__((aligned(16)));
} world;

static long futex(atomic_uint *word, int op, unsigned value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* ---- threads ---- */

static void on_stop(int sig)
{
	unsigned round = atomic_load(&world.round);
	int saved = errno;
	struct thread *t = NULL;
	pid_t tid = gettid();

	(void)sig;
	for (unsigned i = 0; i < MAX_THREADS && !t; i++)
		if (world.thread[i].tid == tid)
			t = &world.thread[i];
	if (!t)
		return; /* nobody waits for it any more */
	t->tcb = (char *)(uintptr_t)pthread_self();
	if (setjmp(t->env) == 0) {
		atomic_fetch_add(&world.stopped, 1);
		futex(&world.stopped, FUTEX_WAKE_PRIVATE, 1, NULL);
		while (atomic_load(&world.round) == round)
			futex(&world.round, FUTEX_WAIT_PRIVATE, round, NULL);
	}
	errno = saved;
}

static void let_go(void)
{
	memset(world.thread, 0, sizeof(world.thread));
	atomic_fetch_add(&world.round, 1);
	futex(&world.round, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}

struct dirent64_head {
	uint64_t ino, off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* Each number that is an entry of dir, without allocating. False: not all could be had. */
static bool each_number(int dir, bool (*fn)(void *arg, int number), void *arg)
{
	char buf[4096] __attribute__((aligned(8)));
	long n;

	if (lseek(dir, 0, SEEK_SET) < 0)
		return false;
	while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n;) {
			const struct dirent64_head *d = (const void *)(buf + at);
			int number = 0;
			const char *s = d->name;

			for (; *s >= '0' && *s <= '9' && number < INT_MAX / 10 - 1; s++)
				number = number * 10 + (*s - '0');
			if (!*s && s > d->name && !fn(arg, number))
				return false;
			at += d->reclen;
		}
	}
	return n == 0;
}

/* The numbers of a directory, which must not change while they are used. */
struct numbers {
	unsigned n;
	int at[512];
};

static bool add_number(void *arg, int number)
{
	struct numbers *all = arg;

	if (all->n == sizeof(all->at) / sizeof(all->at[0]))
		return false;
	all->at[all->n++] = number;
	return true;
}

static unsigned others(int tasks, struct numbers *all)
{
	all->n = 0;
	if (!each_number(tasks, add_number, all) || all->n > MAX_THREADS)
		return UINT_MAX;
	return all->n - 1;
}

static bool known(pid_t tid)
{
	for (unsigned i = 0; i < MAX_THREADS; i++)
		if (world.thread[i].tid == tid)
			return true;
	return false;
}

/* Signals those that it did not signal yet; the number of those it has. */
static unsigned signal_new(const struct numbers *all, unsigned count)
{
	pid_t self = gettid();

	for (unsigned i = 0; i < all->n; i++) {
		pid_t tid = all->at[i];

		if (tid == self || known(tid) || count == MAX_THREADS)
			continue;
		world.thread[count].tid = tid;
		if (syscall(SYS_tgkill, getpid(), tid, STOP_SIGNAL) < 0)
			world.thread[count].tid = 0;
		else
			count++;
	}
	return count;
}

/* Whether so many threads stand still within STOP_MS. */
static bool await_stopped(unsigned count)
{
	const struct timespec step = {.tv_nsec = 5000000};
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		unsigned stopped = atomic_load(&world.stopped);

		if (stopped >= count)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 >
		    STOP_MS)
			return false;
		futex(&world.stopped, FUTEX_WAIT_PRIVATE, stopped, &step);
	}
}

/* All threads but this one stand still. How many they are, or UINT_MAX: they go on. */
static unsigned stop_threads(void)
{
	int tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct numbers all;
	unsigned count = 0, there;
	bool done = false;

	atomic_store(&world.stopped, 0);
	while (tasks >= 0 && !done) {
		/* One that was running may have made another, and one may have ended. */
		there = others(tasks, &all);
		if (there == UINT_MAX)
			break;
		if (there == count) {
			done = true;
			continue;
		}
		count = signal_new(&all, count);
		if (!await_stopped(count))
			break;
	}
	if (tasks >= 0)
		close(tasks);
	for (unsigned i = 0; done && i < count; i++)
		done = *(pid_t *)(void *)(world.thread[i].tcb + world.tid_offset) ==
		       world.thread[i].tid;
	if (done)
		return count;
	let_go();
	return UINT_MAX;
}

static int go_back(void *arg)
{
	struct thread *t = arg;

	longjmp(t->env, 1);
}

/* In the child: each of count threads again. */
static bool start_threads(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct thread *t = &world.thread[i];
		pid_t *tid = (pid_t *)(void *)(t->tcb + world.tid_offset);

		if (clone(go_back, world.stack[i] + START_STACK, THREAD_FLAGS, t, tid, t->tcb,
			  tid) < 0)
			return false;
	}
	return true;
}

/* ---- descriptors ---- */

struct swap {
	struct vmm *vmm;
	const int *fds;
	int dir;  /* /proc/self/fd */
	int dead; /* a socket whose other end is closed */
	struct stat console, log;
};

static bool is_listening(int fd)
{
	int yes = 0;
	socklen_t len = sizeof(yes);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) == 0 && yes;
}

static bool swap_eventfd(int fd)
{
	int flags = fcntl(fd, F_GETFL), new;
	bool done;

	/* Signalled: whoever waits for it looks whether there is anything, as the parent may have been about to. */
	new = eventfd(1, EFD_CLOEXEC | (flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
	done = new >= 0 && dup3(new, fd, O_CLOEXEC) >= 0;
	if (new >= 0)
		close(new);
	return done;
}

static int new_socket(const struct swap *s, int fd)
{
	if (fd == s->vmm->cfg.vsock_fd)
		return s->fds[VMM_FORK_VSOCK];
	if (fd == s->vmm->cfg.ctl_fd)
		return s->fds[VMM_FORK_CTL];
	return is_listening(fd) ? s->fds[VMM_FORK_QMP] : s->dead;
}

static bool is_one_of(const struct swap *s, int fd)
{
	bool one = fd == s->dir || fd == s->dead;

	for (int i = 0; i < VMM_FORK_FDS; i++)
		one |= fd == s->fds[i];
	return one;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool swap_file(const struct swap *s, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	if (same_file(&st, &s->console))
		return dup3(s->fds[VMM_FORK_CONSOLE], fd, O_CLOEXEC) >= 0;
	if (same_file(&st, &s->log))
		return dup3(s->fds[VMM_FORK_LOG], fd, O_CLOEXEC) >= 0;
	return true; /* read only, or without a state */
}

static bool swap_one(const struct swap *s, int fd)
{
	static const char event[] = "anon_inode:[eventfd]", sock[] = "socket:[";
	char name[12], what[64];
	ssize_t n;

	if (is_one_of(s, fd))
		return true;
	snprintf(name, sizeof(name), "%d", fd);
	n = readlinkat(s->dir, name, what, sizeof(what) - 1);
	if (n < 0)
		return false;
	what[n] = '\0';
	if (strcmp(what, event) == 0)
		return swap_eventfd(fd);
	if (strncmp(what, sock, sizeof(sock) - 1) == 0)
		return dup3(new_socket(s, fd), fd, O_CLOEXEC) >= 0;
	return swap_file(s, fd);
}

/* None of the parent's that has a state is left. */
static bool swap_fds(struct vmm *vmm, const int fds[VMM_FORK_FDS])
{
	struct swap s = {.vmm = vmm, .fds = fds, .dir = -1, .dead = -1};
	struct numbers all = {.n = 0};
	int pair[2];
	bool done = false;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return false;
	s.dead = pair[0];
	close(pair[1]);
	s.dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s.dir >= 0 && fstat(vmm->cfg.console_fd, &s.console) == 0 &&
	    fstat(STDERR_FILENO, &s.log) == 0 && each_number(s.dir, add_number, &all)) {
		done = true;
		for (unsigned i = 0; done && i < all.n; i++)
			done = swap_one(&s, all.at[i]);
	}
	if (s.dir >= 0)
		close(s.dir);
	close(s.dead);
	return done;
}

/* ---- the child ---- */

static bool say(int sync, int errnum, const char *stage)
{
	struct vmm_fork_said said = {.errnum = errnum};

	snprintf(said.stage, sizeof(said.stage), "%s", stage);
	return send(sync, &said, sizeof(said), MSG_NOSIGNAL) == (ssize_t)sizeof(said);
}

static _Noreturn void give_up(int sync, const char *stage)
{
	say(sync, errno ? errno : EPROTO, stage);
	_exit(EXIT_FAILURE);
}

static void rename_in(char **list, const char *from, const char *to)
{
	size_t len = strlen(from);

	for (; *list; list++)
		for (char *at = *list; (at = strstr(at, from)); at += len)
			memcpy(at, to, len);
}

/* What /proc shows of it: the marker by which a VM's processes are found, and the name on the command line. */
static bool take_name(const char *id)
{
	static const char marker[] = "HUTCH_VM=";
	char old[VMM_FORK_ID] = "";

	for (char **e = world.envp; *e; e++)
		if (strncmp(*e, marker, sizeof(marker) - 1) == 0)
			snprintf(old, sizeof(old), "%s", *e + sizeof(marker) - 1);
	errno = EINVAL;
	if (!old[0] || strlen(old) != strlen(id))
		return false;
	rename_in(world.envp, old, id);
	rename_in(world.argv, old, id);
	return true;
}

static bool drop_rights(uid_t uid)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	/* The calls themselves: those of the C library want to tell threads that are not there. */
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap) < 0)
			return false;
	return syscall(SYS_setgroups, 0, NULL) == 0 && syscall(SYS_setresgid, uid, uid, uid) == 0 &&
	       syscall(SYS_setresuid, uid, uid, uid) == 0 && syscall(SYS_capset, &h, none) == 0;
}

/* The launcher's word, in full; without it the child ends without one. */
static void await_go(int sync, struct vmm_fork_go *go, int fds[GO_FDS])
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(GO_FDS * sizeof(int))];
	} control;
	struct iovec iov = {go, sizeof(*go)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	const struct cmsghdr *c;
	size_t got = 0;
	ssize_t n;

	do
		n = recvmsg(sync, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), got = c->cmsg_len - CMSG_LEN(0));
	if (n != (ssize_t)sizeof(*go) || go->tasks > VMM_FORK_TASKS ||
	    go->layers > VMM_FORK_LAYERS || got != (go->tasks + 2 * go->layers) * sizeof(*fds) ||
	    go->filter_len == 0 || go->filter_len > VMM_FORK_FILTER ||
	    !memchr(go->id, '\0', sizeof(go->id)) ||
	    !memchr(go->directory, '\0', sizeof(go->directory)))
		_exit(EXIT_FAILURE);
}

static void enter(int sync, const struct vmm_fork_go *go)
{
	const struct sock_fprog filter = {.len = (unsigned short)go->filter_len,
					  .filter = (struct sock_filter *)(uintptr_t)go->filter};

	const struct rlimit threads = {go->max_threads, go->max_threads};

	if (setrlimit(RLIMIT_NPROC, &threads) < 0)
		give_up(sync, "limits");
	if (chdir(go->directory) < 0)
		give_up(sync, "directory");
	if (setsid() < 0)
		give_up(sync, "session");
	if (!take_name(go->id))
		give_up(sync, "name");
	/* A change of uid takes its own /proc away from it, which an exec would give back. */
	if (!drop_rights(go->uid) || prctl(PR_SET_DUMPABLE, 1) < 0)
		give_up(sync, "uid");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0)
		give_up(sync, "filter");
}

/* The library's own parts, with nothing of the parent's connections. */
static bool own_parts(struct vmm *vmm, uint64_t deadline_ms, bool another_guest)
{
	/* Closed before anything is taken out of it: the parent has the same set. */
	loop_close(&vmm->loop);
	if (loop_init(&vmm->loop) < 0 || loop_add(&vmm->loop, &vmm->wake, EPOLLIN | EPOLLET) < 0 ||
	    vsock_dev_forked(vmm->dev, another_guest) < 0)
		return false;
	vmm_ctl_close(&vmm->ctl);
	vmm_deadline_close(&vmm->deadline);
	vmm_logs_close(&vmm->logs);
	vmm->cfg.deadline_ms = deadline_ms;
	return vmm_open_endpoints(vmm);
}

static void be_child(struct vmm *vmm, const int fds[VMM_FORK_FDS], unsigned threads)
{
	static struct vmm_fork_go go;
	int sync = fds[VMM_FORK_SYNC], with[GO_FDS] = {0};

	prctl(PR_SET_NAME, PROCESS_NAME); /* of the process now, not of a thread */
	*(pid_t *)(void *)((char *)(uintptr_t)pthread_self() + world.tid_offset) = gettid();
	if (!say(sync, 0, "born"))
		_exit(EXIT_FAILURE);
	await_go(sync, &go, with);
	for (unsigned i = 0; i < go.tasks; i++)
		if (write(with[i], "0", 1) != 1 || close(with[i]) < 0)
			give_up(sync, "cgroup");
	if (!swap_fds(vmm, fds))
		give_up(sync, "descriptors");
	enter(sync, &go);
	if (!start_threads(threads))
		give_up(sync, "threads");
	/* They run, and may allocate again; the lock, which is held, keeps them out of here. */
	if (!own_parts(vmm, go.deadline_ms, go.reload))
		give_up(sync, "parts");
	if (go.reload && vmm_reload(&vmm->ram, with + go.tasks, go.layers) < 0)
		give_up(sync, "memory");
	world.prepared = false; /* the records are read by the threads yet */
	if (!say(sync, 0, "done"))
		_exit(EXIT_FAILURE);
}

/* ---- both ---- */

const char *vmm_fork(struct vmm *vmm, const int fds[VMM_FORK_FDS], bool *child)
{
	struct vsock_stats st;
	unsigned threads;
	long pid;

	*child = false;
	vsock_dev_stats(vmm->dev, &st);
	if (!world.prepared)
		return "this VMM is no zygote";
	if (st.running)
		return "the VM is running";
	if (vmm->capture.state != CAPTURE_IDLE || vmm->capture.track_fd >= 0)
		return "a capture is under way";
	threads = stop_threads();
	if (threads == UINT_MAX)
		return "its threads cannot be stopped";
	pid = syscall(SYS_clone, VMM_FORK_FLAGS | SIGCHLD, 0, NULL, NULL, 0);
	if (pid == 0) {
		*child = true;
		be_child(vmm, fds, threads);
		return NULL;
	}
	let_go();
	return pid > 0 ? NULL : strerrordesc_np(errno);
}

/* The place of the calling thread's id in its descriptor. */
static bool find_tid(void)
{
	const char *tcb = (const char *)(uintptr_t)pthread_self();
	pid_t tid = gettid(), at;

	for (size_t i = 0; i < TID_SEARCH; i += sizeof(at)) {
		memcpy(&at, tcb + i, sizeof(at));
		if (at != tid)
			continue;
		world.tid_offset = i;
		return true;
	}
	return false;
}

int vmm_fork_prepare(char **argv, char **envp)
{
	struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};

	sigfillset(&stop.sa_mask);
	if (!find_tid() || sigaction(STOP_SIGNAL, &stop, NULL) < 0) {
		vmm_log("this process cannot be made to fork");
		return -1;
	}
	world.argv = argv;
	world.envp = envp;
	world.prepared = true;
	return 0;
}

bool vmm_fork_is_prepared(void)
{
	return world.prepared;
}

/* QEMU's threads take no signals; they have to take this one. pthread_sigmask(3). */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	sigset_t own;

	if (set && world.prepared && how != SIG_UNBLOCK) {
		own = *set;
		sigdelset(&own, STOP_SIGNAL);
		set = &own;
	}
	return syscall(SYS_rt_sigprocmask, how, set, old, _NSIG / 8) < 0 ? errno : 0;
}
