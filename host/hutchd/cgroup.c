/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ceilings this host lets us set: found by trying.
 *
 * How it works: in the cgroups that cgroup_find.c found, v2's first, one is made as for a VMM, with its limits, and a child enters
 * it: only what went well is counted.
 */
#include "host/hutchd/cgroup_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/jail.h"

static const char *const kind_names[CGROUP_KINDS] = {
	[CGROUP_NONE] = "rlimits",
	[CGROUP_V1] = "cgroup1",
	[CGROUP_V2] = "cgroup2",
};

static const char *const controller_names[CGROUP_CONTROLLERS] = {
	[CGROUP_CPU] = "cpu",
	[CGROUP_MEMORY] = "memory",
	[CGROUP_PIDS] = "pids",
	[CGROUP_IO] = "io",
};

const char *cgroup_kind_name(uint32_t kind)
{
	return kind < CGROUP_KINDS ? kind_names[kind] : "?";
}

const char *cgroup_controller_name(unsigned controller)
{
	return controller < CGROUP_CONTROLLERS ? controller_names[controller] : "?";
}

const struct cgroup_report *cgroups_report(const struct cgroups *c)
{
	return &c->report;
}

void cgroups_set_reason(struct cgroups *c, const char *what, const char *path, int errnum)
{
	if (!c->report.reason[0])
		snprintf(c->report.reason, sizeof(c->report.reason), "%.40s%s%.80s: %.36s", what,
			 *path ? " " : "", path, strerror(errnum));
}

/* ---- trying ---- */

static pid_t clone_into(const struct cgroup_vm *v)
{
	return v->into < 0 ? fork() : jail_fork(NULL, v->into, false);
}

/* Make one as for a VMM, with a child in it. */
static int try_one(const struct cgroups *c)
{
	char id[32];
	const struct cgroup_size size = {.id = id, .memory_mib = 128, .vcpus = 1};
	struct cgroup_vm v;
	int status = 0;
	pid_t pid;

	snprintf(id, sizeof(id), "try-%ld", (long)getpid());
	if (cgroup_vm_make(c, &size, -1, &v) < 0)
		return -1;
	pid = clone_into(&v);
	if (pid == 0)
		_exit(cgroup_vm_enter(&v) < 0 ? errno : 0);
	if (pid > 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
	else
		status = W_EXITCODE(errno, 0);
	cgroup_vm_close(&v);
	cgroup_vm_unmake(c, id);
	errno = WIFEXITED(status) ? WEXITSTATUS(status) : EPROTO;
	return errno ? -1 : 0;
}

/* Without a controller that does not do, the others may. */
static void try_all(struct cgroups *c)
{
	uint32_t all = c->report.has, good = 0;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		c->report.has = 1u << i;
		if (!(all & 1u << i))
			continue;
		if (try_one(c) == 0)
			good |= 1u << i;
		else if (i != CGROUP_IO) /* many hosts have no scheduler with weights */
			cgroups_set_reason(c, controller_names[i],
					   c->bases[c->report.kind == CGROUP_V2 ? 0 : i].path,
					   errno);
	}
	c->report.has = good & CGROUP_WORTH ? good : 0;
	if (!c->report.has)
		c->report.kind = CGROUP_NONE;
}

/* io.weight is the kernel's own; the other weights are looked at by these schedulers alone. */
static bool disk_has_weights(const char *disk, int disks)
{
	char path[320];
	size_t len;
	char *text;
	bool has;

	snprintf(path, sizeof(path), "%.255s/queue/scheduler", disk);
	text = file_read(disks, path, 4096, &len);
	has = text && (strstr(text, "[bfq]") || strstr(text, "[cfq]"));
	free(text);
	return has;
}

static bool any_disk_has_weights(const char *disks)
{
	DIR *dir = opendir(disks);
	const struct dirent *e;
	bool has = false;

	while (dir && !has && (e = readdir(dir)) != NULL)
		has = e->d_name[0] != '.' && disk_has_weights(e->d_name, dirfd(dir));
	if (dir)
		closedir(dir);
	return has;
}

static void look_at_disks(struct cgroups *c, const char *disks)
{
	const struct cgroup_base *base = &c->bases[c->report.kind == CGROUP_V2 ? 0 : CGROUP_IO];

	if (!(c->report.has & 1u << CGROUP_IO) || any_disk_has_weights(disks))
		return;
	if (c->report.kind == CGROUP_V2 &&
	    faccessat(base->fd, CGROUP_LEAF "/io.weight", F_OK, 0) == 0)
		return;
	c->report.has &= ~(1u << CGROUP_IO);
}

static int is_ours(const struct dirent *e)
{
	return strncmp(e->d_name, CGROUP_PREFIX, strlen(CGROUP_PREFIX)) == 0;
}

/*
 * Empty ones. Not while another launcher makes one, which is empty for a moment: it holds the lock, or found us holding it,
 * and then made what was not there when we looked.
 */
static void remove_leftovers(const struct cgroup_base *base)
{
	struct dirent **found = NULL;
	int n = scandirat(base->fd, ".", &found, is_ours, NULL);
	bool alone = n > 0 && flock(base->fd, LOCK_EX | LOCK_NB) == 0;

	for (int i = 0; i < n; i++) {
		if (alone)
			unlinkat(base->fd, found[i]->d_name, AT_REMOVEDIR);
		free(found[i]);
	}
	if (alone)
		flock(base->fd, LOCK_UN);
	free(found);
}

/* What is written to a file system that is memory counts as the writer's, for as long as the file is there. */
static void look_at_state(struct cgroups *c, const char *state)
{
	struct statfs fs;

	if (!(c->report.has & 1u << CGROUP_MEMORY) || statfs(state, &fs) < 0 ||
	    (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC))
		return;
	c->report.has &= ~(1u << CGROUP_MEMORY);
	snprintf(c->report.reason, sizeof(c->report.reason),
		 "memory: the state directory is in memory itself");
}

static void find(struct cgroups *c, const struct cgroup_places *places)
{
	char reason[sizeof(c->report.reason)];

	if (cgroup_find_v2(c, places) == 0)
		try_all(c);
	if (c->report.kind == CGROUP_NONE) {
		memcpy(reason, c->report.reason, sizeof(reason));
		c->report.reason[0] = '\0';
		cgroup_base_close(&c->bases[0]);
		if (cgroup_find_v1(c, places) == 0)
			try_all(c);
		/* Where there is no v1, what v2 is in want of is what is to be told. */
		if (c->report.kind == CGROUP_NONE && !c->report.reason[0])
			memcpy(c->report.reason, reason, sizeof(reason));
	}
	look_at_state(c, places->state);
	look_at_disks(c, places->disks);
}

struct cgroups *cgroups_new(const struct cgroup_wish *wish, const struct cgroup_places *places)
{
	struct cgroups *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->wish = *wish;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		c->bases[i].fd = -1;
	if (!wish->on) {
		snprintf(c->report.reason, sizeof(c->report.reason), "turned off");
		return c;
	}
	find(c, places);
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (c->bases[i].fd >= 0)
			remove_leftovers(&c->bases[i]);
	return c;
}

void cgroups_free(struct cgroups *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		fd_close(&c->bases[i].fd);
	free(c);
}
