/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ceilings this host lets us set: found by trying.
 *
 * How it works: VMMs' cgroups are made in the cgroup that hutchd was started in, so that whatever limits that one has go on
 * holding for all of it. v2 comes first. There a cgroup that hands controllers on may hold no processes, so hutchd and its
 * launcher go to a leaf, "hutchd", of it; that takes a cgroup which is theirs alone, as a service manager delegates it
 * (Delegate=yes), and it is left alone when others are in it. hutchd may have been started in that leaf already (systemd's
 * DelegateSubgroup=hutchd). Where v2 hands nothing on, the hierarchies of v1 are tried one by one. A cgroup is then made as for a
 * VMM, with its limits, and a child enters it: only what went well is counted.
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
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/jail.h"

#define TEXT_MAX (256u << 10)
#define LEAF	 "hutchd"

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

static void set_reason(struct cgroups *c, const char *what, const char *path, int errnum)
{
	if (!c->report.reason[0])
		snprintf(c->report.reason, sizeof(c->report.reason), "%.40s%s%.80s: %.36s", what,
			 *path ? " " : "", path, strerror(errnum));
}

/* ---- where we are ---- */

/* Is word one of a list that is separated by any of these? */
static bool has_word(const char *list, const char *separators, const char *word)
{
	size_t want = strlen(word);

	while (*list) {
		size_t n = strcspn(list, separators);

		if (n == want && memcmp(list, word, n) == 0)
			return true;
		list += n + (list[n] != '\0');
	}
	return false;
}

/* Our path in the hierarchy of a v1 controller, or in v2's (NULL): lines of "ID:CONTROLLERS:PATH" (cgroups(7)). */
static bool own_path(const char *text, const char *controller, char *out)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		char line[CGROUP_PATH + 80], *list, *path;
		bool fits = len < sizeof(line);

		snprintf(line, sizeof(line), "%.*s", fits ? (int)len : 0, text);
		text += len + (text[len] == '\n');
		list = strchr(line, ':');
		path = list ? strchr(list + 1, ':') : NULL;
		if (!path || path[1] != '/' || strlen(path + 1) >= CGROUP_PATH)
			continue;
		*path++ = '\0';
		if (controller ? !has_word(list + 1, ",", controller) : list[1] != '\0')
			continue;
		memcpy(out, path, strlen(path) + 1);
		return true;
	}
	return false;
}

struct mount_line {
	char *root, *place, *type, *super;
};

/* "ID PARENT MAJ:MIN ROOT PLACE OPTIONS [more...] - TYPE SOURCE SUPER" (proc_pid_mountinfo(5)). */
static bool parse_mount(char *line, struct mount_line *m)
{
	char *rest = strstr(line, " - "), *save = NULL, *unused;

	if (!rest)
		return false;
	*rest = '\0';
	rest += 3;
	for (int i = 0; i < 3; i++)
		if (!strtok_r(i ? NULL : line, " ", &save))
			return false;
	m->root = strtok_r(NULL, " ", &save);
	m->place = strtok_r(NULL, " ", &save);
	m->type = strtok_r(rest, " ", &save);
	unused = strtok_r(NULL, " ", &save);
	m->super = strtok_r(NULL, " ", &save);
	return m->root && m->place && unused && m->super;
}

/* Our cgroup's directory, where that mount shows it. A name that is written with escapes is not looked for. */
static bool place_of(const struct mount_line *m, const char *own, char *out)
{
	size_t root = strcmp(m->root, "/") == 0 ? 0 : strlen(m->root);
	int n;

	if (strncmp(own, m->root, root) != 0 || (own[root] != '/' && own[root] != '\0') ||
	    strstr(own, "/..") || strchr(m->place, '\\'))
		return false;
	own += root;
	n = snprintf(out, CGROUP_PATH, "%s%s", m->place, strcmp(own, "/") == 0 ? "" : own);
	return n > 0 && (size_t)n < CGROUP_PATH - sizeof("/" LEAF) && access(out, F_OK) == 0;
}

static bool find_mount(char *mounts, const char *own, const char *controller, char *out)
{
	char *line;

	while ((line = strsep(&mounts, "\n")) != NULL) {
		struct mount_line m;

		if (!parse_mount(line, &m) ||
		    strcmp(m.type, controller ? "cgroup" : "cgroup2") != 0)
			continue;
		if ((!controller || has_word(m.super, ",", controller)) && place_of(&m, own, out))
			return true;
	}
	return false;
}

/* controller: of v1, by that version's name; NULL: v2. */
static bool own_directory(const struct cgroup_places *places, const char *controller, char *out)
{
	size_t len;
	char *lines = file_read(AT_FDCWD, places->own, TEXT_MAX, &len);
	char *mounts = file_read(AT_FDCWD, places->mounts, TEXT_MAX * 4, &len);
	char own[CGROUP_PATH];
	bool found = false;

	if (lines && mounts && own_path(lines, controller, own))
		found = find_mount(mounts, own, controller, out);
	free(lines);
	free(mounts);
	return found;
}

/* ---- v2 ---- */

static uint32_t controllers_in(int dir, const char *file)
{
	size_t len;
	char *text = file_read(dir, file, 4096, &len);
	uint32_t has = 0;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (text && has_word(text, " \n", controller_names[i]))
			has |= 1u << i;
	free(text);
	return has;
}

/* No process is in it but this one and the broker. */
static bool ours_alone(int dir)
{
	size_t len;
	char *text = file_read(dir, "cgroup.procs", TEXT_MAX, &len), *at = text, *end;
	bool alone = text != NULL;

	while (at && alone) {
		long pid = strtol(at, &end, 10);

		if (end == at)
			break;
		/* 0: a process that is not in our PID namespace. */
		alone = pid == getpid() || pid == getppid();
		at = end;
	}
	free(text);
	return alone;
}

static int move_ourselves(int to)
{
	char pid[24];

	snprintf(pid, sizeof(pid), "%ld", (long)getppid());
	if (cgroup_write(to, "cgroup.procs", pid) < 0)
		return -1;
	return cgroup_write(to, "cgroup.procs", "0");
}

/* Into the leaf, where the cgroup is not one that may hold processes all the same: the first of all. */
static int leave_base(struct cgroup_base *base)
{
	int leaf, rc = -1;

	if (faccessat(base->fd, "cgroup.type", F_OK, 0) < 0)
		return 0;
	if (!ours_alone(base->fd)) {
		errno = EBUSY;
		return -1;
	}
	if (mkdirat(base->fd, LEAF, 0755) < 0 && errno != EEXIST)
		return -1;
	leaf = dir_open(base->fd, LEAF);
	if (leaf >= 0)
		rc = move_ourselves(leaf);
	fd_close(&leaf);
	return rc;
}

/* Back where we came from: nothing is handed on there. */
static void return_to_base(const struct cgroup_base *base)
{
	int saved = errno;

	move_ourselves(base->fd);
	unlinkat(base->fd, LEAF, AT_REMOVEDIR);
	errno = saved;
}

/* What is handed on then; with errno where that is less. */
static uint32_t hand_on(int dir, uint32_t wanted)
{
	char text[24];
	int failed = 0;
	uint32_t on;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		snprintf(text, sizeof(text), "+%s", controller_names[i]);
		if (wanted & 1u << i && cgroup_write(dir, "cgroup.subtree_control", text) < 0)
			failed = errno;
	}
	on = controllers_in(dir, "cgroup.subtree_control");
	errno = failed;
	return on;
}

static int open_base(struct cgroup_base *base)
{
	base->fd = dir_open(AT_FDCWD, base->path);
	return base->fd < 0 ? -1 : 0;
}

static void close_base(struct cgroup_base *base)
{
	fd_close(&base->fd);
	base->path[0] = '\0';
}

#define WORTH (1u << CGROUP_CPU | 1u << CGROUP_MEMORY | 1u << CGROUP_PIDS)

/* Which controllers a VMM's cgroup in it will have; 0 with errno. */
static uint32_t prepare_v2(struct cgroup_base *base)
{
	uint32_t there, on;

	if (open_base(base) < 0)
		return 0;
	there = controllers_in(base->fd, "cgroup.controllers");
	on = controllers_in(base->fd, "cgroup.subtree_control");
	errno = ENOTSUP;
	if (!(there & WORTH))
		return 0;
	if (there & ~on) {
		if (leave_base(base) < 0)
			return 0;
		on = hand_on(base->fd, there & ~on);
		if (!(on & WORTH))
			return_to_base(base);
	}
	return on & WORTH ? on : 0;
}

int cgroup_find_v2(struct cgroups *c, const struct cgroup_places *places)
{
	struct cgroup_base *base = &c->bases[0];
	char *last;
	uint32_t has;

	if (!own_directory(places, NULL, base->path))
		return -1;
	last = strrchr(base->path, '/');
	if (last && strcmp(last + 1, LEAF) == 0)
		*last = '\0';
	has = prepare_v2(base);
	if (has) {
		c->report.kind = CGROUP_V2;
		c->report.has = has;
		return 0;
	}
	set_reason(c, "cgroup v2", base->path, errno);
	close_base(base);
	return -1;
}

/* ---- v1 ---- */

int cgroup_find_v1(struct cgroups *c, const struct cgroup_places *places)
{
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		struct cgroup_base *base = &c->bases[i];
		const char *name = i == CGROUP_IO ? "blkio" : controller_names[i];

		if (own_directory(places, name, base->path) && open_base(base) == 0)
			c->report.has |= 1u << i;
		else
			close_base(base);
	}
	if (!c->report.has)
		return -1;
	c->report.kind = CGROUP_V1;
	return 0;
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
			set_reason(c, controller_names[i],
				   c->bases[c->report.kind == CGROUP_V2 ? 0 : i].path, errno);
	}
	c->report.has = good & WORTH ? good : 0;
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
	if (c->report.kind == CGROUP_V2 && faccessat(base->fd, LEAF "/io.weight", F_OK, 0) == 0)
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
		close_base(&c->bases[0]);
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
