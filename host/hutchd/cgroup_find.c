/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which cgroups those of VMMs may be made.
 *
 * How it works: in the one that hutchd was started in, so that whatever limits that one has go on holding for all of it. In v2
 * a cgroup that hands controllers on may hold no processes, so hutchd and its launcher go to a leaf, "hutchd", of it; that takes
 * a cgroup which is theirs alone, as a service manager delegates it (Delegate=yes), and it is left alone when others are in it.
 * hutchd may have been started in that leaf already (systemd's DelegateSubgroup=hutchd). In v1 each controller has its own.
 */
#include "host/hutchd/cgroup_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

#define TEXT_MAX (256u << 10)

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
	return n > 0 && (size_t)n < CGROUP_PATH - sizeof("/" CGROUP_LEAF) && access(out, F_OK) == 0;
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
		if (text && has_word(text, " \n", cgroup_controller_name(i)))
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
	if (mkdirat(base->fd, CGROUP_LEAF, 0755) < 0 && errno != EEXIST)
		return -1;
	leaf = dir_open(base->fd, CGROUP_LEAF);
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
	unlinkat(base->fd, CGROUP_LEAF, AT_REMOVEDIR);
	errno = saved;
}

/* What is handed on then; with errno where that is less. */
static uint32_t hand_on(int dir, uint32_t wanted)
{
	char text[24];
	int failed = 0;
	uint32_t on;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		snprintf(text, sizeof(text), "+%s", cgroup_controller_name(i));
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

void cgroup_base_close(struct cgroup_base *base)
{
	fd_close(&base->fd);
	base->path[0] = '\0';
}

/* Which controllers a VMM's cgroup in it will have; 0 with errno. */
static uint32_t prepare_v2(struct cgroup_base *base)
{
	uint32_t there, on;

	if (open_base(base) < 0)
		return 0;
	there = controllers_in(base->fd, "cgroup.controllers");
	on = controllers_in(base->fd, "cgroup.subtree_control");
	errno = ENOTSUP;
	if (!(there & CGROUP_WORTH))
		return 0;
	if (there & ~on) {
		if (leave_base(base) < 0)
			return 0;
		on = hand_on(base->fd, there & ~on);
		if (!(on & CGROUP_WORTH))
			return_to_base(base);
	}
	return on & CGROUP_WORTH ? on : 0;
}

int cgroup_find_v2(struct cgroups *c, const struct cgroup_places *places)
{
	struct cgroup_base *base = &c->bases[0];
	char *last;
	uint32_t has;

	if (!own_directory(places, NULL, base->path))
		return -1;
	last = strrchr(base->path, '/');
	if (last && strcmp(last + 1, CGROUP_LEAF) == 0)
		*last = '\0';
	has = prepare_v2(base);
	if (has) {
		c->report.kind = CGROUP_V2;
		c->report.has = has;
		return 0;
	}
	cgroups_set_reason(c, "cgroup v2", base->path, errno);
	cgroup_base_close(base);
	return -1;
}

/* ---- v1 ---- */

int cgroup_find_v1(struct cgroups *c, const struct cgroup_places *places)
{
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		struct cgroup_base *base = &c->bases[i];
		const char *name = i == CGROUP_IO ? "blkio" : cgroup_controller_name(i);

		if (own_directory(places, name, base->path) && open_base(base) == 0)
			c->report.has |= 1u << i;
		else
			cgroup_base_close(base);
	}
	if (!c->report.has)
		return -1;
	c->report.kind = CGROUP_V1;
	return 0;
}
