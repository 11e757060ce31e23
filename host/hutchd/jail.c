/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of a VMM.
 *
 * How it works: the launcher makes, once, mount namespaces ("roots") whose whole tree is a read-only tmpfs with what
 * QEMU needs bound into it: libraries, its modules and firmware, our library, two devices. They live as descriptors. A
 * VMM is cloned into new PID, IPC and UTS namespaces, enters a root, makes a copy of it for itself (a dozen mounts, not
 * the host's), adds its own /proc and the directory of the one socket that its guest may dial, drops every capability and its uid, and
 * executes QEMU. Nothing of the host is mounted and undone for each VM: that is what makes it cheap. The network
 * namespace, without even a loopback that is up, is the launcher's own and shared by its VMMs: making one takes longer
 * than all the rest, and there is nothing in it but the names of abstract Unix sockets.
 *
 * Where the launcher is not root it first makes a user namespace of its own, in which it may do all that, and nothing
 * but its own uid exists. It then lives in a mount namespace of its own as well, since mounts can be copied only within
 * one that its user namespace owns; a run directory, known by a descriptor from outside, is found again by its path and
 * checked by its inode.
 */
#include "host/hutchd/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <grp.h>
#include <unistd.h>

#include "host/hutchd/dial_socket.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/launcher_main.h"
#include "host/hutchd/process.h"
#include "host/hutchd/seccomp.h"

#define SPACES	   (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)
#define DIAL_PLACE "/vm"
#define STAGE	   "/proc" /* a directory that is everywhere, covered in the helper's namespace alone */
#define KVM	   "/dev/kvm"
/* The library holds one descriptor per vsock connection, 1024 at most. */
#define MAX_FILES   2048u
#define MAX_THREADS 512u	   /* of a VMM with a uid of its own */
#define MAX_FILE    (128ull << 30) /* twice the largest guest */

enum { ROOT_PLAIN, ROOT_KVM, ROOTS };

struct jail {
	bool on, own_uid, in_userns, test;
	int roots[ROOTS]; /* mount namespaces; -1: none */
	uint32_t first_uid, uid_count;
	struct sock_fprog filter;
	struct jail_report report;
};

struct trouble {
	int errnum;
	char stage[48];
};

static const char *const level_names[JAIL_LEVELS] = {
	[JAIL_NONE] = "none",
	[JAIL_SECCOMP] = "seccomp",
	[JAIL_SPACES] = "namespaces",
	[JAIL_UID] = "uid",
};

const char *jail_level_name(enum jail_level level)
{
	return level < JAIL_LEVELS ? level_names[level] : "?";
}

int jail_level_parse(const char *name)
{
	for (int i = 0; i < JAIL_LEVELS; i++)
		if (strcmp(name, level_names[i]) == 0)
			return i;
	return -1;
}

const char *jail_missing_name(unsigned bit)
{
	switch (bit) {
	case JAIL_NO_VM:
		return "a virtual machine";
	case JAIL_NO_FILTER:
		return "system call filter";
	case JAIL_NO_SPACES:
		return "namespaces";
	case JAIL_NO_ROOT:
		return "own root";
	case JAIL_NO_UID:
		return "own uid";
	default:
		return "cgroup";
	}
}

const struct jail_report *jail_report(const struct jail *j)
{
	return &j->report;
}

static int jailed_mount(int tree, const char *place)
{
	return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH);
}

static int read_only(int tree, uint64_t more)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | more};

	return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &a,
			    sizeof(a));
}

static int copy_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
}

/* ---- roots ---- */

/* Make an empty file or directory, and the directories above it, below the current directory. */
static int make_place(const char *path, bool directory)
{
	char copy[1100];
	int fd;

	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (char *s = strchr(copy + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		if (mkdir(copy + 1, 0755) < 0 && errno != EEXIST)
			return -1;
		*s = '/';
	}
	if (directory)
		return mkdir(copy + 1, 0755) < 0 && errno != EEXIST ? -1 : 0;
	fd = open(copy + 1, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -1;
	fd_close(&fd);
	return 0;
}

struct shown {
	char path[300];
	int tree; /* -1: not there */
	bool directory;
	uint64_t attr;
};

struct root_plan {
	struct shown shown[24];
	int count;
};

/* What is not there is left out; QEMU's first start in the jail tells whether it was needed. */
static void show(struct root_plan *plan, const char *path, uint64_t attr)
{
	struct shown *s = &plan->shown[plan->count];
	struct stat st;

	if (plan->count == (int)(sizeof(plan->shown) / sizeof(plan->shown[0])) ||
	    snprintf(s->path, sizeof(s->path), "%s", path) >= (int)sizeof(s->path))
		return;
	for (int i = 0; i < plan->count; i++)
		if (strcmp(plan->shown[i].path, path) == 0)
			return;
	s->tree = copy_tree(AT_FDCWD, path, AT_RECURSIVE);
	if (s->tree < 0 || fstat(s->tree, &st) < 0 || read_only(s->tree, attr) < 0) {
		fd_close(&s->tree);
		return;
	}
	s->directory = S_ISDIR(st.st_mode);
	plan->count++;
}

/* QEMU looks for its firmware and modules beside itself. */
static void show_beside(struct root_plan *plan, const char *vmm, const char *what)
{
	const char *end = strrchr(vmm, '/');
	char path[400];

	while (end && end > vmm && end[-1] != '/')
		end--;
	if (!end || end <= vmm)
		return;
	snprintf(path, sizeof(path), "%.*s%s", (int)(end - vmm), vmm, what);
	show(plan, path, MOUNT_ATTR_NODEV);
}

static void plan_root(struct root_plan *plan, const struct launcher_setup *setup)
{
	static const char *const common[] = {
		"/lib",
		"/lib64",
		"/usr/lib",
		"/usr/lib64",
		"/usr/share/qemu",
		"/usr/share/seabios",
		"/etc/ld.so.cache",
	};

	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++)
		show(plan, common[i], MOUNT_ATTR_NODEV);
	show_beside(plan, setup->vmm, "lib");
	show_beside(plan, setup->vmm, "share/qemu");
	show_beside(plan, setup->vmm, "share/seabios");
	show(plan, setup->vmm, MOUNT_ATTR_NODEV);
	show(plan, setup->vmm_library, MOUNT_ATTR_NODEV);
	show(plan, "/dev/null", MOUNT_ATTR_NOEXEC);
	show(plan, "/dev/urandom", MOUNT_ATTR_NOEXEC);
}

/*
 * A node that every uid may open where we may make one, since the host's is often a group's; it is in the root of VMs that
 * run on it, and only there.
 */
static int make_kvm(void)
{
	struct stat st;
	int tree, rc;

	if (stat(KVM, &st) < 0)
		return -1;
	if (mknod(KVM + 1, S_IFCHR | 0666, st.st_rdev) == 0)
		return chmod(KVM + 1, 0666);
	tree = copy_tree(AT_FDCWD, KVM, 0);
	if (tree < 0 || make_place(KVM, false) < 0)
		return -1;
	rc = jailed_mount(tree, KVM + 1);
	fd_close(&tree);
	return rc;
}

/* In the helper. Returns NULL, or the step that failed, with errno. */
static const char *build_root(struct root_plan *plan, bool kvm)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return "mount namespace";
	if (mount("hutch", STAGE, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=1m") < 0 ||
	    chdir(STAGE) < 0)
		return "tmpfs";
	for (int i = 0; i < plan->count; i++) {
		const struct shown *s = &plan->shown[i];

		/* One that lies within another is there already. */
		if (access(s->path + 1, F_OK) == 0)
			continue;
		if (make_place(s->path, s->directory) < 0 || jailed_mount(s->tree, s->path + 1) < 0)
			return "bind mount";
	}
	if (make_place("/proc", true) < 0 || make_place(DIAL_PLACE, true) < 0)
		return "places";
	if (kvm && make_kvm() < 0)
		return KVM;
	if (mount(NULL, ".", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		return "read-only tmpfs";
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
		return "pivot_root";
	return NULL;
}

static _Noreturn void root_helper(const struct launcher_setup *setup, bool kvm, int out)
{
	static struct root_plan plan;
	struct trouble t = {.errnum = 0};
	const char *failed;

	umask(022);
	/* Whatever was bound has to be in our own namespace: copied before the stage hides anything. */
	plan_root(&plan, setup);
	failed = build_root(&plan, kvm);
	if (failed) {
		t.errnum = errno ? errno : EPERM;
		snprintf(t.stage, sizeof(t.stage), "%s", failed);
	}
	if (write_all(out, &t, sizeof(t)) < 0)
		_exit(1);
	for (;;)
		pause(); /* until the launcher has opened the namespace */
}

static int keep_namespace(pid_t helper)
{
	char path[48];
	int fd, high;

	snprintf(path, sizeof(path), "/proc/%ld/ns/mnt", (long)helper);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, JAIL_FD_MIN);
	fd_close(&fd);
	return high;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int read_trouble(int fd, struct trouble *t)
{
	ssize_t n;

	do
		n = read(fd, t, sizeof(*t));
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*t))
		return t->errnum ? -1 : 0;
	*t = (struct trouble){.errnum = EPROTO, .stage = "helper"};
	return -1;
}

static int make_root(const struct launcher_setup *setup, bool kvm, struct trouble *t)
{
	int out[2], root = -1;
	pid_t pid;

	*t = (struct trouble){.errnum = 0, .stage = "fork"};
	if (pipe2(out, O_CLOEXEC) < 0) {
		t->errnum = errno;
		return -1;
	}
	pid = fork();
	if (pid == 0)
		root_helper(setup, kvm, out[1]);
	fd_close(&out[1]);
	if (pid < 0) {
		t->errnum = errno;
	} else {
		if (read_trouble(out[0], t) == 0 && (root = keep_namespace(pid)) < 0)
			*t = (struct trouble){.errnum = errno, .stage = "namespace"};
		end_child(pid);
	}
	fd_close(&out[0]);
	return root;
}

/* ---- what this host gives ---- */

static bool has_cap(unsigned cap)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	return syscall(SYS_capget, &h, d) == 0 && (d[cap / 32].effective >> (cap % 32) & 1);
}

static int write_proc(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc = fd < 0 ? -1 : write_all(fd, text, strlen(text));

	fd_close(&fd);
	return rc;
}

/* user_namespaces(7): without privileges one uid and one gid can be mapped, and setgroups has to be given up first. */
static int enter_user_namespace(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];

	if (unshare(CLONE_NEWUSER) < 0)
		return -1;
	if (write_proc("/proc/self/setgroups", "deny") < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
	if (write_proc("/proc/self/uid_map", map) < 0)
		return -1;
	snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
	return write_proc("/proc/self/gid_map", map);
}

/* Mounts of the host go on being seen, and being let go of. */
static int enter_mount_namespace(void)
{
	return unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ? -1
											       : 0;
}

static void set_reason(struct jail *j, const char *what, int errnum)
{
	snprintf(j->report.reason, sizeof(j->report.reason), "%.90s: %s", what, strerror(errnum));
}

static int prepare(struct jail *j, const struct launcher_setup *setup)
{
	struct trouble t;

	if (!has_cap(CAP_SYS_ADMIN)) {
		j->in_userns = true;
		if (enter_user_namespace() < 0) {
			set_reason(j, "user namespace", errno);
			return -1;
		}
	}
	if (enter_mount_namespace() < 0) {
		set_reason(j, "mount namespace", errno);
		return -1;
	}
	if (unshare(CLONE_NEWNET) < 0) {
		set_reason(j, "network namespace", errno);
		return -1;
	}
	j->roots[ROOT_PLAIN] = make_root(setup, false, &t);
	if (j->roots[ROOT_PLAIN] < 0) {
		set_reason(j, t.stage, t.errnum);
		return -1;
	}
	if (access(KVM, F_OK) == 0)
		j->roots[ROOT_KVM] = make_root(setup, true, &t);
	return 0;
}

/* All that a VMM does on its way in, but the exec. */
static int try_entry(struct jail *j, struct trouble *t)
{
	const struct jail_entry e = {.rundir = -1};
	const char *stage = "?";
	int out[2];
	pid_t pid;

	*t = (struct trouble){.errnum = 0, .stage = "clone"};
	if (pipe2(out, O_CLOEXEC) < 0)
		return -1;
	pid = jail_fork(j);
	if (pid == 0) {
		if (jail_enter(j, &e, &stage) < 0) {
			t->errnum = errno;
			snprintf(t->stage, sizeof(t->stage), "%s", stage);
		}
		_exit(write_all(out[1], t, sizeof(*t)) < 0);
	}
	fd_close(&out[1]);
	if (pid < 0) {
		t->errnum = errno;
	} else {
		read_trouble(out[0], t);
		end_child(pid);
	}
	fd_close(&out[0]);
	return t->errnum ? -1 : 0;
}

static void make_report(struct jail *j)
{
	struct jail_report *r = &j->report;

	r->level = j->own_uid ? JAIL_UID : j->on ? JAIL_SPACES : JAIL_SECCOMP;
	r->missing = JAIL_NO_CGROUP | (j->own_uid ? 0 : JAIL_NO_UID) |
		     (j->on ? 0 : JAIL_NO_SPACES | JAIL_NO_ROOT) |
		     (j->filter.filter ? 0 : JAIL_NO_FILTER);
}

void jail_give_up(struct jail *j, const char *why)
{
	for (int i = 0; i < ROOTS; i++)
		fd_close(&j->roots[i]);
	j->on = j->own_uid = false;
	if (why)
		snprintf(j->report.reason, sizeof(j->report.reason), "%s", why);
	make_report(j);
}

struct jail *jail_new(const struct launcher_setup *setup)
{
	struct jail *j = calloc(1, sizeof(*j));
	struct trouble t;

	if (!j)
		return NULL;
	j->roots[ROOT_PLAIN] = j->roots[ROOT_KVM] = -1;
	if (setup->test) {
		j->test = true;
		j->report.missing = (1u << JAIL_MISSING_BITS) - 1;
		return j;
	}
	j->first_uid = setup->first_uid;
	j->uid_count = setup->uid_count;
	j->filter = seccomp_vmm_filter();
	if (prepare(j, setup) < 0) {
		jail_give_up(j, NULL);
		return j;
	}
	j->on = true;
	j->own_uid = geteuid() == 0 && !j->in_userns && j->uid_count > 0;
	if (try_entry(j, &t) < 0 && j->own_uid) {
		set_reason(j, t.stage, t.errnum);
		j->own_uid = false;
		try_entry(j, &t);
	}
	if (t.errnum) {
		set_reason(j, t.stage, t.errnum);
		jail_give_up(j, NULL);
	}
	make_report(j);
	return j;
}

/* ---- one VMM ---- */

pid_t jail_fork(const struct jail *j)
{
	struct clone_args {
		uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} a = {.flags = SPACES, .exit_signal = SIGCHLD};

	if (!j || !j->on)
		return fork();
	return (pid_t)syscall(SYS_clone3, &a, sizeof(a));
}

/* Nothing but this process's own entries; made while the host's /proc is still there to allow it (user namespaces). */
static int make_proc(void)
{
	int fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC), tree = -1;

	if (fs < 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "subset", "pid", 0) == 0 &&
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
		*tree = copy_tree(dir, DIAL_DIR, AT_SYMLINK_NOFOLLOW);
	if (*tree < 0)
		rc = errno == ENOENT ? 0 : -1;
	else
		rc = read_only(*tree, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
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
	if (jailed_mount(proc, "/proc") < 0)
		return "proc";
	if (dial >= 0 && jailed_mount(dial, DIAL_PLACE) < 0)
		return "socket";
	if (chdir(DIAL_PLACE) < 0 || sethostname("hutch", 5) < 0)
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

static int set_limits(bool own_uid)
{
	/* Processes are counted by uid: with one that is not its own, others would be in its way. */
	if (own_uid && limit(RLIMIT_NPROC, MAX_THREADS) < 0)
		return -1;
	return limit(RLIMIT_CORE, 0) < 0 || limit(RLIMIT_NOFILE, MAX_FILES) < 0 ||
			       limit(RLIMIT_FSIZE, MAX_FILE) < 0 || limit(RLIMIT_MSGQUEUE, 0) < 0 ||
			       limit(RLIMIT_RTPRIO, 0) < 0 || limit(RLIMIT_NICE, 0) < 0
		       ? -1
		       : 0;
}

/* capabilities(7): none comes back with an exec, neither as root nor from a file. */
static int drop_later_caps(void)
{
	if (!has_cap(CAP_SETPCAP))
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
	if (j->filter.filter && seccomp_install(&j->filter) < 0)
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
	if (!*stage && set_limits(j->own_uid) < 0)
		*stage = "limits";
	if (!*stage)
		*stage = become_nobody(j, e, uid, stat);
	fd_close(&stat);
	return *stage ? -1 : 0;
}
