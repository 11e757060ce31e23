/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VMM's cgroup.
 *
 * How it works: the launcher names the directories in the VM's run directory, makes them, sets their limits, and the VMM's
 * process is in them before it executes anything. Under v2 it is cloned into its cgroup. Under v1, which has no such clone, the
 * child writes itself to `tasks`: a single thread that moves itself needs no lock over all processes of the host, which
 * `cgroup.procs` takes, and waits 10 ms for (measured). So it costs about half a millisecond, and none are kept ready.
 */
#include "host/hutchd/cgroup_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

#define PERIOD_US  100000u /* of a CPU ceiling */
#define SHARES	   1024u   /* v1's for a weight of 100 */
#define MAX_SHARES 262144u
#define NAME	   80u
#define NAMES	   (CGROUP_CONTROLLERS * (CGROUP_PATH + NAME)) /* of all, one a line */
#define EVENTS_MAX 4096u

int cgroup_write(int dir, const char *file, const char *text)
{
	int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	fd_close(&fd);
	return n < 0 ? -1 : 0;
}

static int write_number(int dir, const char *file, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
	return cgroup_write(dir, file, text);
}

static uint64_t at_most(uint64_t n, uint64_t most)
{
	return n < most ? n : most;
}

static int set_cpu(int dir, const struct cgroups *c, const struct cgroup_size *size)
{
	uint64_t weight = (uint64_t)c->wish.cpu_weight * size->vcpus;
	uint64_t quota = (uint64_t)c->wish.cpu_percent * size->vcpus * (PERIOD_US / 100);
	char text[48];

	if (c->report.kind == CGROUP_V2) {
		snprintf(text, sizeof(text), "%llu %u", (unsigned long long)quota, PERIOD_US);
		if (quota && cgroup_write(dir, "cpu.max", text) < 0)
			return -1;
		return write_number(dir, "cpu.weight", at_most(weight, CGROUP_MAX_CPU_WEIGHT));
	}
	if (quota && write_number(dir, "cpu.cfs_quota_us", quota) < 0)
		return -1;
	return write_number(dir, "cpu.shares", at_most(weight * SHARES / 100 + 2, MAX_SHARES));
}

static int set_memory(int dir, const struct cgroups *c, const struct cgroup_size *size)
{
	uint64_t mib = size->memory_mib + CGROUP_VMM_MIB + (size->tcg ? CGROUP_TRANSLATION_MIB : 0);

	return write_number(dir,
			    c->report.kind == CGROUP_V2 ? "memory.max" : "memory.limit_in_bytes",
			    mib << 20);
}

static int set_io(int dir, const struct cgroups *c)
{
	static const char *const files[] = {"io.weight", "io.bfq.weight"};
	static const char *const files_v1[] = {"blkio.weight", "blkio.bfq.weight"};
	const char *const *names = c->report.kind == CGROUP_V2 ? files : files_v1;

	if (write_number(dir, names[0], c->wish.io_weight) == 0)
		return 0;
	return write_number(dir, names[1], c->wish.io_weight);
}

static int set_one(int dir, unsigned controller, const struct cgroups *c,
		   const struct cgroup_size *size)
{
	switch (controller) {
	case CGROUP_CPU:
		return set_cpu(dir, c, size);
	case CGROUP_MEMORY:
		return set_memory(dir, c, size);
	case CGROUP_PIDS:
		return write_number(dir, "pids.max", CGROUP_MAX_THREADS);
	default:
		return set_io(dir, c);
	}
}

static int name_of(const char *id, char *out, size_t size)
{
	int n = snprintf(out, size, CGROUP_PREFIX "%s", id);

	if (n > 0 && (size_t)n < size)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

static bool is_base(const struct cgroups *c, unsigned controller)
{
	if (c->report.kind == CGROUP_V2)
		return controller == 0;
	return c->report.kind == CGROUP_V1 && c->report.has & 1u << controller;
}

/* Whole before the first is made: a process that dies leaves it whole, and a host that does leaves no cgroup. */
static int write_names(const struct cgroups *c, const char *name, int rundir)
{
	char text[NAMES];
	size_t len = 0;
	int fd, rc;

	if (rundir < 0)
		return 0;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (is_base(c, i))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s/%s\n",
						c->bases[i].path, name);
	fd = openat(rundir, CGROUP_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	rc = fd < 0 ? -1 : write_all(fd, text, len);
	fd_close(&fd);
	return rc;
}

/* All controllers of one directory. */
static int set_all(int dir, unsigned base, const struct cgroups *c, const struct cgroup_size *size)
{
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (c->report.has & 1u << i && (c->report.kind == CGROUP_V2 || i == base) &&
		    set_one(dir, i, c, size) < 0)
			return -1;
	return 0;
}

static int make_one(const struct cgroups *c, unsigned base, const char *name,
		    const struct cgroup_size *size, struct cgroup_vm *out)
{
	int dir;

	/* One that is there is a leftover of this very VM. */
	if (mkdirat(c->bases[base].fd, name, 0755) < 0 && errno != EEXIST)
		return -1;
	dir = dir_open(c->bases[base].fd, name);
	if (dir < 0)
		return -1;
	if (set_all(dir, base, c, size) < 0) {
		fd_close(&dir);
		return -1;
	}
	if (c->report.kind == CGROUP_V2) {
		out->into = dir;
		return 0;
	}
	out->tasks[base] = openat(dir, "tasks", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	fd_close(&dir);
	return out->tasks[base] < 0 ? -1 : 0;
}

void cgroup_vm_unmake(const struct cgroups *c, const char *id)
{
	int saved = errno;
	char name[NAME];

	if (name_of(id, name, sizeof(name)) < 0)
		return;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (is_base(c, i))
			unlinkat(c->bases[i].fd, name, AT_REMOVEDIR);
	errno = saved;
}

int cgroup_vm_make(const struct cgroups *c, const struct cgroup_size *size, int rundir,
		   struct cgroup_vm *out)
{
	char name[NAME];

	*out = (struct cgroup_vm){.into = -1, .tasks = {-1, -1, -1, -1}, .locks = {-1, -1, -1, -1}};
	if (c->report.kind == CGROUP_NONE)
		return 0;
	if (name_of(size->id, name, sizeof(name)) < 0 || write_names(c, name, rundir) < 0)
		return -1;
	/* Not waited for: whoever may read the directory could hold it. */
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (is_base(c, i) && flock(c->bases[i].fd, LOCK_SH | LOCK_NB) == 0)
			out->locks[i] = c->bases[i].fd;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		if (!is_base(c, i) || make_one(c, i, name, size, out) == 0)
			continue;
		cgroup_vm_unmake(c, size->id);
		cgroup_vm_close(out);
		return -1;
	}
	return 0;
}

int cgroup_vm_enter(const struct cgroup_vm *v)
{
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (v->tasks[i] >= 0 && write(v->tasks[i], "0", 1) != 1)
			return -1;
	return 0;
}

int cgroup_vm_put(const struct cgroup_vm *v, pid_t pid)
{
	char text[24];
	int fd, rc;

	if (v->into < 0)
		return 0;
	snprintf(text, sizeof(text), "%ld", (long)pid);
	fd = openat(v->into, "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	rc = fd < 0 ? -1 : write_all(fd, text, strlen(text));
	fd_close(&fd);
	return rc;
}

void cgroup_vm_close(struct cgroup_vm *v)
{
	int saved = errno;

	fd_close(&v->into);
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		fd_close(&v->tasks[i]);
		if (v->locks[i] >= 0)
			flock(v->locks[i], LOCK_UN);
		v->locks[i] = -1;
	}
	errno = saved;
}

/* memory.events of v2 and memory.oom_control of v1 both hold a line "oom_kill N". */
static bool had_oom(const char *path)
{
	static const char *const files[] = {"memory.events", "memory.oom_control"};
	bool oom = false;
	int dir = dir_open(AT_FDCWD, path);

	for (unsigned i = 0; i < 2 && dir >= 0 && !oom; i++) {
		size_t len;
		char *text = file_read(dir, files[i], EVENTS_MAX, &len);
		const char *at = text ? strstr(text, "oom_kill ") : NULL;

		oom = at && strtoul(at + strlen("oom_kill "), NULL, 10) > 0;
		free(text);
	}
	fd_close(&dir);
	return oom;
}

int cgroup_vm_file(int rundir)
{
	return openat(rundir, CGROUP_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* Only what carries this VM's name, and rmdir(2) takes only what is empty. */
static int remove_one(const char *path, const char *name, bool *oom)
{
	const char *last = strrchr(path, '/');

	if (path[0] != '/' || strcmp(last + 1, name) != 0) {
		errno = EINVAL;
		return -1;
	}
	*oom |= had_oom(path);
	return rmdir(path) < 0 && errno != ENOENT ? -1 : 0;
}

int cgroup_vm_remove(int file, const char *id, bool *oom)
{
	char name[NAME], text[NAMES], *next = text, *path;
	ssize_t n = pread(file, text, sizeof(text) - 1, 0);
	int failed = 0;

	*oom = false;
	if (n < 0 || name_of(id, name, sizeof(name)) < 0)
		return -1;
	text[n] = '\0';
	while ((path = strsep(&next, "\n")) != NULL && *path)
		if (remove_one(path, name, oom) < 0)
			failed = errno;
	errno = failed;
	return failed ? -1 : 0;
}
