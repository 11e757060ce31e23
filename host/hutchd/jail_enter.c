/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a VMM enters the jail: from a child of the launcher to one without any right.
 *
 * How it works: it is cloned into new PID, IPC and UTS namespaces, enters a root, makes a copy of it for itself (a dozen
 * mounts, not the host's), adds its own /proc and the directory of the one socket that its guest may dial, drops every
 * capability and its uid, and executes QEMU. Nothing of the host is mounted and undone for each VM: that is what makes it
 * cheap.
 *
 * Where the launcher is not root, a run directory, known by a descriptor from outside its mount namespace, is found again
 * by its path and checked by its inode.
 */
#include "host/hutchd/jail_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/dial_socket.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/process.h"
#include "host/hutchd/seccomp.h"

#define SPACES (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)
/* The library holds one descriptor per vsock connection, 1024 at most. */
#define MAX_FILES	     2048u
#define MAX_CHILDREN_THREADS 65536u
#define MAX_FILE	     (128ull << 30) /* twice the largest guest */

pid_t jail_fork(const struct jail *j, int cgroup, bool zygote)
{
	struct clone_args a = {.exit_signal = SIGCHLD};

	if (j && j->on)
		a.flags |= zygote ? SPACES & ~CLONE_NEWPID : SPACES;
	if (cgroup >= 0) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)cgroup;
	}
	return a.flags ? (pid_t)syscall(SYS_clone3, &a, sizeof(a)) : fork();
}

/*
 * Nothing but processes of one's own PID namespace, and of those the ones one may look at; made while the host's /proc is still there to
 * allow it (user namespaces).
 */
static int make_proc(void)
{
	int fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC), tree = -1;

	if (fs < 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "subset", "pid", 0) == 0 &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "hidepid", "invisible", 0) == 0 &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		tree = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
				    MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	fd_close(&fs);
	return tree;
}

/* A descriptor of the same directory through our own mount namespace. */
static int find_rundir(int rundir)
{
	char link[32], path[4096];
	struct stat a, b;
	ssize_t n;
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", rundir);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return -1;
	path[n] = '\0';
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(rundir, &a) < 0 || fstat(fd, &b) < 0 || a.st_dev != b.st_dev ||
	    a.st_ino != b.st_ino) {
		fd_close(&fd);
		errno = ESTALE;
	}
	return fd;
}

/*
 * The directory of the socket that the guest's dials go to, as a mount of its own: the run directory is not shown. *tree is
 * -1 when there is none.
 */
static int take_dial_dir(int rundir, bool own_uid, int *tree)
{
	int dir, rc = -1;

	*tree = -1;
	if (rundir < 0)
		return 0;
	dir = find_rundir(rundir);
	if (dir < 0)
		return -1;
	if (!own_uid || dial_open(dir) == 0)
		*tree = jail_copy_tree(dir, DIAL_DIR, AT_SYMLINK_NOFOLLOW);
	if (*tree < 0)
		rc = errno == ENOENT ? 0 : -1;
	else
		rc = jail_read_only(*tree, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	fd_close(&dir);
	return rc;
}

static const char *enter_root(const struct jail *j, const struct jail_entry *e, bool own_uid)
{
	bool kvm = e->kvm && j->roots[ROOT_KVM] >= 0;
	int root = j->roots[kvm ? ROOT_KVM : ROOT_PLAIN];
	int proc, dial;

	if (take_dial_dir(e->rundir, own_uid, &dial) < 0)
		return "socket";
	proc = make_proc();
	if (proc < 0)
		return "proc";
	if (setns(root, CLONE_NEWNS) < 0 || unshare(CLONE_NEWNS) < 0)
		return "root";
	if (jail_mount(proc, "/proc") < 0)
		return "proc";
	if (dial >= 0 && jail_mount(dial, JAIL_DIAL_PLACE) < 0)
		return "socket";
	if (chdir(JAIL_DIAL_PLACE) < 0 || sethostname("hutch", 5) < 0)
		return "root";
	fd_close(&proc);
	fd_close(&dial);
	return NULL;
}

static int limit(int what, uint64_t most)
{
	struct rlimit r;

	if (getrlimit((__rlimit_resource_t)what, &r) < 0)
		return -1;
	if (r.rlim_max > most)
		r.rlim_max = most;
	r.rlim_cur = r.rlim_max;
	return setrlimit((__rlimit_resource_t)what, &r);
}

static int set_limits(bool own_uid, bool zygote)
{
	/*
	 * Processes are counted by uid: with one that is not its own, others would be in its way. A zygote's children count as its
	 * own.
	 */
	if (own_uid && limit(RLIMIT_NPROC, zygote ? MAX_CHILDREN_THREADS : JAIL_MAX_THREADS) < 0)
		return -1;
	return limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_NOFILE, MAX_FILES) < 0 ||
			       limit(RLIMIT_FSIZE, MAX_FILE) < 0 || limit(RLIMIT_MSGQUEUE, 0) < 0 ||
			       limit(RLIMIT_RTPRIO, 0) < 0 || limit(RLIMIT_NICE, 0) < 0
		       ? -1
		       : 0;
}

bool jail_has_cap(unsigned cap)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	return syscall(SYS_capget, &h, d) == 0 && (d[cap / 32].effective >> (cap % 32) & 1);
}

/* capabilities(7): none comes back with an exec, neither as root nor from a file. */
static int drop_later_caps(void)
{
	if (!jail_has_cap(CAP_SETPCAP))
		return 0;
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (prctl(PR_CAPBSET_DROP, cap) < 0)
			return -1;
	return prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
						SECBIT_NO_SETUID_FIXUP_LOCKED |
						SECBIT_KEEP_CAPS_LOCKED);
}

static int drop_caps(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	return (int)syscall(SYS_capset, &h, none);
}

static int change_uid(uid_t uid)
{
	return setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
			       setresuid(uid, uid, uid) < 0
		       ? -1
		       : 0;
}

/* The kernel forgets the wish at every change of credentials, so this comes after them. stat: the host's /proc/self/stat. */
static int tie(int stat, pid_t launcher)
{
	struct process_stat st;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -1;
	if (process_read_from(stat, NULL, &st) < 0)
		return -1;
	if (st.ppid == launcher)
		return 0;
	errno = ESRCH;
	return -1;
}

/* From the last step that needs privileges to none at all. */
static const char *become_nobody(const struct jail *j, const struct jail_entry *e, uid_t uid,
				 int stat)
{
	const struct sock_fprog *filter = &j->filter[e->zygote ? SECCOMP_ZYGOTE : SECCOMP_VMM];

	if (!j->test && drop_later_caps() < 0)
		return "capabilities";
	if (j->own_uid && change_uid(uid) < 0)
		return "uid";
	if (!j->test && drop_caps() < 0)
		return "capabilities";
	if (e->tied && tie(stat, e->launcher) < 0)
		return "parent";
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return "privileges";
	if (filter->filter && seccomp_install(filter) < 0)
		return "filter";
	return NULL;
}

int jail_enter(const struct jail *j, const struct jail_entry *e, const char **stage)
{
	uid_t uid = e->uid ? e->uid : j->first_uid;
	int stat = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	*stage = "uid";
	if (j->own_uid && (uid < j->first_uid || uid - j->first_uid >= j->uid_count)) {
		errno = ERANGE;
		return -1;
	}
	*stage = NULL;
	if (j->on)
		*stage = enter_root(j, e, j->own_uid);
	else if (e->rundir >= 0 && fchdir(e->rundir) < 0)
		*stage = "directory";
	if (!*stage && set_limits(j->own_uid, e->zygote) < 0)
		*stage = "limits";
	if (!*stage)
		*stage = become_nobody(j, e, uid, stat);
	fd_close(&stat);
	return *stage ? -1 : 0;
}

/* ---- children of zygotes ---- */

/* In a process that is in all of the child's namespaces. */
static const char *dress_inside(int dial)
{
	int proc = make_proc();

	if (proc < 0 || jail_mount(proc, "/proc") < 0)
		return "proc";
	if (dial < 0 || jail_mount(dial, JAIL_DIAL_PLACE) < 0)
		return "socket";
	return NULL;
}

/* A PID namespace is that of the children only, so it takes two. */
static _Noreturn void dress_helper(int pidfd, int dial, int out)
{
	struct jail_trouble t = {.errnum = 0};
	const char *failed = NULL;
	pid_t pid = -1;

	if (setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0)
		failed = "namespaces";
	else
		pid = fork();
	if (pid > 0) {
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	if (!failed)
		failed = pid < 0 ? "fork" : dress_inside(dial);
	if (failed) {
		t.errnum = errno ? errno : EPERM;
		snprintf(t.stage, sizeof(t.stage), "%s", failed);
	}
	_exit(write_all(out, &t, sizeof(t)) < 0);
}

static int map_id(pid_t pid, const char *file, uint32_t id)
{
	char path[48], map[48];
	int fd, len, rc;

	snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, file);
	len = snprintf(map, sizeof(map), "%u %u 1", id, id);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	rc = fd < 0 ? -1 : write_all(fd, map, (size_t)len);
	fd_close(&fd);
	return rc;
}

static int dress(int pidfd, int dial, struct jail_trouble *t)
{
	int out;
	pid_t pid = jail_fork_helper(NULL, "fork", &out, t);

	if (pid == 0)
		dress_helper(pidfd, dial, out);
	if (pid < 0)
		return -1;
	jail_read_trouble(out, t);
	/*
	 * It ends by itself, and has waited for the other one. Nobody else would in time: a PID namespace's first process does not
	 * end before all of them are reaped.
	 */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	fd_close(&out);
	return t->errnum ? -1 : 0;
}

int jail_dress(const struct jail *j, pid_t pid, int pidfd, uint32_t uid, int rundir,
	       const char **stage)
{
	static struct jail_trouble t;
	int dial = -1, rc;

	*stage = "uid";
	if (uid < j->first_uid || uid - j->first_uid >= j->uid_count) {
		errno = ERANGE;
		return -1;
	}
	if (map_id(pid, "uid_map", uid) < 0 || map_id(pid, "gid_map", uid) < 0)
		return -1;
	*stage = "socket";
	if (take_dial_dir(rundir, true, &dial) < 0)
		return -1;
	rc = dress(pidfd, dial, &t);
	fd_close(&dial);
	*stage = t.stage;
	errno = t.errnum;
	return rc;
}
