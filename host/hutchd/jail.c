/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of a VMM: what of it this host gives.
 *
 * How it works: the launcher makes, once, mount namespaces ("roots", jail_root.c), which live as descriptors, and moves
 * itself into a network namespace without even a loopback that is up, which its VMMs share: making one takes longer than all
 * the rest, and there is nothing in it but the names of abstract Unix sockets. A VMM then takes its own way in
 * (jail_enter.c), which is tried here first.
 *
 * Where the launcher is not root it first makes a user namespace of its own, in which it may do all that, and nothing
 * but its own uid exists. It then lives in a mount namespace of its own as well, since mounts can be copied only within
 * one that its user namespace owns.
 */
#include "host/hutchd/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/jail_priv.h"
#include "host/hutchd/launcher_main.h"
#include "host/hutchd/seccomp.h"

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
	struct jail_trouble t;

	if (!jail_has_cap(CAP_SYS_ADMIN)) {
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
	j->roots[ROOT_PLAIN] = jail_make_root(setup, false, &t);
	if (j->roots[ROOT_PLAIN] < 0) {
		set_reason(j, t.stage, t.errnum);
		return -1;
	}
	if (access(JAIL_KVM, F_OK) == 0)
		j->roots[ROOT_KVM] = jail_make_root(setup, true, &t);
	return 0;
}

/* All that a VMM does on its way in, but the exec. */
static int try_entry(struct jail *j, struct jail_trouble *t)
{
	const struct jail_entry e = {.rundir = -1};
	const char *stage = "?";
	int out;
	pid_t pid = jail_fork_helper(j, "clone", &out, t);

	if (pid == 0) {
		if (jail_enter(j, &e, &stage) < 0) {
			t->errnum = errno;
			snprintf(t->stage, sizeof(t->stage), "%s", stage);
		}
		_exit(write_all(out, t, sizeof(*t)) < 0);
	}
	if (pid < 0)
		return -1;
	jail_read_trouble(out, t);
	jail_end_child(pid);
	fd_close(&out);
	return t->errnum ? -1 : 0;
}

static void make_report(struct jail *j)
{
	struct jail_report *r = &j->report;

	r->level = j->own_uid ? JAIL_UID : j->on ? JAIL_SPACES : JAIL_SECCOMP;
	r->missing = JAIL_NO_CGROUP | (j->own_uid ? 0 : JAIL_NO_UID) |
		     (j->on ? 0 : JAIL_NO_SPACES | JAIL_NO_ROOT) |
		     (j->filter[SECCOMP_VMM].filter ? 0 : JAIL_NO_FILTER);
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

bool jail_has_zygotes(const struct jail *j)
{
	return j->on && j->own_uid && j->filter[SECCOMP_ZYGOTE].filter &&
	       j->filter[SECCOMP_FORKED].filter;
}

const struct sock_fprog *jail_forked_filter(const struct jail *j)
{
	return &j->filter[SECCOMP_FORKED];
}

struct jail *jail_new(const struct launcher_setup *setup)
{
	struct jail *j = calloc(1, sizeof(*j));
	struct jail_trouble t;

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
	j->filter[SECCOMP_VMM] = seccomp_vmm_filter(SECCOMP_VMM);
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
	if (j->own_uid) { /* else there are no zygotes */
		j->filter[SECCOMP_ZYGOTE] = seccomp_vmm_filter(SECCOMP_ZYGOTE);
		j->filter[SECCOMP_FORKED] = seccomp_vmm_filter(SECCOMP_FORKED);
	}
	return j;
}
