/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A root: what of the host a VMM can see, and how that is built.
 *
 * How it works: a helper makes a mount namespace whose whole tree is a read-only tmpfs with what QEMU needs bound into it:
 * libraries, its modules and firmware, our library, two devices. The launcher keeps the namespace as a descriptor, and the
 * helper ends.
 */
#include "host/hutchd/jail_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launcher_main.h"

#define STAGE "/proc" /* a directory that is everywhere, covered in the helper's namespace alone */

int jail_mount(int tree, const char *place)
{
	return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH);
}

int jail_read_only(int tree, uint64_t more)
{
	struct mount_attr a = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | more};

	return (int)syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &a,
			    sizeof(a));
}

int jail_copy_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
}

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
	s->tree = jail_copy_tree(AT_FDCWD, path, AT_RECURSIVE);
	if (s->tree < 0 || fstat(s->tree, &st) < 0 || jail_read_only(s->tree, attr) < 0) {
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
	for (int i = 0; i < HOLLOWS; i++)
		show(plan, setup->hollow[i], MOUNT_ATTR_NODEV);
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

	if (stat(JAIL_KVM, &st) < 0)
		return -1;
	if (mknod(&JAIL_KVM[1], S_IFCHR | 0666, st.st_rdev) == 0)
		return chmod(&JAIL_KVM[1], 0666);
	tree = jail_copy_tree(AT_FDCWD, JAIL_KVM, 0);
	if (tree < 0 || make_place(JAIL_KVM, false) < 0)
		return -1;
	rc = jail_mount(tree, &JAIL_KVM[1]);
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
		if (make_place(s->path, s->directory) < 0 || jail_mount(s->tree, s->path + 1) < 0)
			return "bind mount";
	}
	if (make_place("/proc", true) < 0 || make_place(JAIL_DIAL_PLACE, true) < 0)
		return "places";
	if (kvm && make_kvm() < 0)
		return JAIL_KVM;
	if (mount(NULL, ".", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
		return "read-only tmpfs";
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
		return "pivot_root";
	return NULL;
}

static _Noreturn void root_helper(const struct launcher_setup *setup, bool kvm, int out)
{
	static struct root_plan plan;
	struct jail_trouble t = {.errnum = 0};
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

void jail_end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

int jail_read_trouble(int fd, struct jail_trouble *t)
{
	ssize_t n;

	do
		n = read(fd, t, sizeof(*t));
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*t))
		return t->errnum ? -1 : 0;
	*t = (struct jail_trouble){.errnum = EPROTO, .stage = "helper"};
	return -1;
}

pid_t jail_fork_helper(const struct jail *j, const char *stage, int *out, struct jail_trouble *t)
{
	int ends[2];
	pid_t pid;

	*t = (struct jail_trouble){.errnum = 0};
	snprintf(t->stage, sizeof(t->stage), "%s", stage);
	if (pipe2(ends, O_CLOEXEC) < 0) {
		t->errnum = errno;
		return -1;
	}
	pid = jail_fork(j, -1, false);
	*out = ends[pid == 0];
	if (pid == 0)
		return 0;
	fd_close(&ends[1]);
	if (pid < 0) {
		t->errnum = errno;
		fd_close(&ends[0]);
	}
	return pid;
}

int jail_make_root(const struct launcher_setup *setup, bool kvm, struct jail_trouble *t)
{
	int out, root = -1;
	pid_t pid = jail_fork_helper(NULL, "fork", &out, t);

	if (pid == 0)
		root_helper(setup, kvm, out);
	if (pid < 0)
		return -1;
	if (jail_read_trouble(out, t) == 0 && (root = keep_namespace(pid)) < 0)
		*t = (struct jail_trouble){.errnum = errno, .stage = "namespace"};
	jail_end_child(pid);
	fd_close(&out);
	return root;
}
