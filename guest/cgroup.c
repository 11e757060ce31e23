/* SPDX-License-Identifier: Apache-2.0 */
/* A cgroup per exec; see cgroup.h and the kernel's admin-guide/cgroup-v2.rst. */
#include "guest/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/exec.h"
#include "guest/limits.h"
#include "guest/lines.h"
#include "guest/list.h"
#include "guest/log.h"
#include "guest/loop.h"

#define MAX_DEPTH 8 /* of cgroups that commands made */

struct cgroup {
	struct list link; /* pool, when in no use */
	struct loop_garbage garbage;
	unsigned number; /* its name in "exec" */
	int dir, cpu_stat, memory_events;
	struct loop_source events; /* cgroup.events; watched while it is awaited that all left */
	struct exec *killer;
	struct cgroup **holder; /* is told when it goes back; NULL: nobody */
	bool apart, put, limited, lingered, killed;
	uint64_t user_us, system_us; /* counters when it was handed out */
	uint64_t seen_user, seen_system;
	uint64_t oom_kills;
};

static struct {
	int base, exec; /* directories; -1: no cgroups */
	bool memory, pids, cpu;
	uint64_t default_pids; /* 0: none */
	struct list pool;
	unsigned pooled, made;
} cgroups = {.base = -1, .exec = -1, .pool = LIST_INIT(cgroups.pool)};

bool cgroup_ready(void)
{
	return cgroups.exec >= 0;
}

/* Files */

static int write_file(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CLOEXEC), saved;
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, text, strlen(text));
	saved = errno;
	close(fd);
	errno = saved;
	return n < 0 ? -1 : 0;
}

static int write_number(int dir, const char *name, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return write_file(dir, name, text);
}

/* The whole of a small file that is kept open, as text; empty when it cannot be read. */
static void reread(int fd, char *buf, size_t size)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, size - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
}

uint64_t cgroup_parse_key(const char *text, const char *key)
{
	size_t n = strlen(key);

	while (*text) {
		if (strncmp(text, key, n) == 0 && text[n] == ' ')
			return strtoull(text + n + 1, NULL, 10);
		text += strcspn(text, "\n");
		text += *text == '\n';
	}
	return 0;
}

static bool read_event(int fd, const char *key)
{
	char buf[128];

	reread(fd, buf, sizeof(buf));
	return cgroup_parse_key(buf, key) != 0;
}

bool cgroup_busy(void)
{
	char buf[128];

	if (cgroups.exec < 0)
		return false;
	read_text(cgroups.exec, "cgroup.events", buf, sizeof(buf));
	return cgroup_parse_key(buf, "populated") != 0;
}

static bool populated(const struct cgroup *cg)
{
	return read_event(cg->events.fd, "populated");
}

static void read_cpu(struct cgroup *cg)
{
	char buf[512];

	reread(cg->cpu_stat, buf, sizeof(buf));
	cg->seen_user = cgroup_parse_key(buf, "user_usec");
	cg->seen_system = cgroup_parse_key(buf, "system_usec");
}

static uint64_t read_oom_kills(const struct cgroup *cg)
{
	char buf[256];

	reread(cg->memory_events, buf, sizeof(buf));
	return cgroup_parse_key(buf, "oom_kill");
}

/* Making and removing */

static void free_cgroup(void *p)
{
	free(p);
}

/* The next cgroup below dir, opened; -1 at the end. */
static int next_child(DIR *d, int dir, char *name, size_t size)
{
	struct dirent *entry;

	while ((entry = readdir(d))) {
		int fd;

		if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
			continue;
		fd = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			continue;
		snprintf(name, size, "%s", entry->d_name);
		return fd;
	}
	return -1;
}

static DIR *open_children(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		close(fd);
	return d;
}

static void remove_below(int dir, int depth)
{
	DIR *d = depth < MAX_DEPTH ? open_children(dir) : NULL;
	char name[NAME_MAX + 1];
	int child;

	if (!d)
		return;
	while ((child = next_child(d, dir, name, sizeof(name))) >= 0) {
		remove_below(child, depth + 1);
		close(child);
		unlinkat(dir, name, AT_REMOVEDIR);
	}
	closedir(d);
}

static int parent_of(const struct cgroup *cg)
{
	return cg->apart ? cgroups.base : cgroups.exec;
}

static void destroy(struct cgroup *cg)
{
	char name[16];

	loop_close(&cg->events);
	if (cg->dir >= 0) {
		remove_below(cg->dir, 0);
		close(cg->dir);
	}
	if (cg->cpu_stat >= 0)
		close(cg->cpu_stat);
	if (cg->memory_events >= 0)
		close(cg->memory_events);
	snprintf(name, sizeof(name), "%u", cg->number);
	if (unlinkat(parent_of(cg), name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		log_error("cgroup %s cannot be removed", name);
	loop_free_later(&cg->garbage, cg, free_cgroup);
}

static void events_ready(struct loop_source *src, uint32_t events);

static struct cgroup *make(bool apart, struct hutch_error *err)
{
	struct cgroup *cg = calloc(1, sizeof(*cg));
	char name[16];
	int events, ret;

	if (!cg) {
		hutch_error_set(err, HUTCH_E_BUSY, ENOMEM, "no memory for a cgroup");
		return NULL;
	}
	list_init(&cg->link);
	cg->apart = apart;
	do { /* an agent before this one may have left some */
		cg->number = apart ? cg->number + 1 : ++cgroups.made;
		snprintf(name, sizeof(name), "%u", cg->number);
		ret = mkdirat(parent_of(cg), name, 0755);
	} while (ret < 0 && errno == EEXIST);
	if (ret < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno, "a cgroup for the exec cannot be made");
		free(cg);
		return NULL;
	}
	cg->dir = openat(parent_of(cg), name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	events = openat(cg->dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
	cg->cpu_stat = openat(cg->dir, "cpu.stat", O_RDONLY | O_CLOEXEC);
	cg->memory_events = openat(cg->dir, "memory.events", O_RDONLY | O_CLOEXEC);
	loop_source_init(&cg->events, events, events_ready);
	if (cg->dir < 0 || events < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno, "the exec's new cgroup cannot be opened");
		destroy(cg);
		return NULL;
	}
	if (cgroups.default_pids)
		write_number(cg->dir, "pids.max", cgroups.default_pids);
	return cg;
}

/* Empty, and nobody's: keep it for the next exec, or remove it. */
static void recycle(struct cgroup *cg)
{
	struct stat st;

	loop_watch(&cg->events, 0);
	/*
	 * kernfs counts subdirectories in st_nlink: a command that made some may have changed more.
	 * After cgroup.kill, some kernels (6.18 is one) kill what is cloned into the cgroup at once: they
	 * compare its count of kills with that of the parent's cgroup.
	 */
	if (cg->apart || cg->killed || cgroups.pooled >= AGENT_CGROUP_POOL ||
	    fstat(cg->dir, &st) < 0 || st.st_nlink != 2) {
		destroy(cg);
		return;
	}
	if (cg->limited) {
		write_file(cg->dir, "memory.max", "max");
		write_file(cg->dir, "cpu.max", "max");
		if (cgroups.default_pids)
			write_number(cg->dir, "pids.max", cgroups.default_pids);
		else
			write_file(cg->dir, "pids.max", "max");
		cg->limited = false;
	}
	if (cg->lingered) { /* survivors used more than the exec's end saw */
		read_cpu(cg);
		cg->oom_kills = read_oom_kills(cg);
	}
	cg->lingered = false;
	list_add_tail(&cgroups.pool, &cg->link);
	cgroups.pooled++;
}

static void emptied(struct cgroup *cg)
{
	struct exec *e = cg->killer;

	cg->killer = NULL;
	loop_watch(&cg->events, 0);
	if (cg->put) {
		if (cg->holder)
			*cg->holder = NULL;
		recycle(cg);
	}
	if (e)
		tree_killed(e); /* may end in cgroup_settle */
}

static void events_ready(struct loop_source *src, uint32_t events)
{
	struct cgroup *cg = container_of(src, struct cgroup, events);

	(void)events;
	if (!populated(cg)) /* the read also makes the next change an event */
		emptied(cg);
}

/* Use */

static int set_limit(struct cgroup *cg, bool have, const char *name, const char *text,
		     struct hutch_error *err)
{
	if (!have)
		return hutch_error_set(err, HUTCH_E_UNSUPPORTED, 0,
				       "this kernel has no cgroup controller for %s", name);
	cg->limited = true;
	if (write_file(cg->dir, name, text) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "%s cannot be set to %s", name,
				       text);
	return 0;
}

static int set_limits(struct cgroup *cg, const struct tree_limits *l, struct hutch_error *err)
{
	char text[48];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)l->memory_bytes);
	if (l->memory_bytes && set_limit(cg, cgroups.memory, "memory.max", text, err) < 0)
		return -1;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)l->pids);
	if (l->pids && set_limit(cg, cgroups.pids, "pids.max", text, err) < 0)
		return -1;
	snprintf(text, sizeof(text), "%llu 100000", (unsigned long long)l->cpu_percent * 1000);
	if (l->cpu_percent && set_limit(cg, cgroups.cpu, "cpu.max", text, err) < 0)
		return -1;
	return 0;
}

struct cgroup *cgroup_get(const struct tree_limits *limits, struct hutch_error *err)
{
	struct cgroup *cg;

	if (limits->apart || list_empty(&cgroups.pool)) {
		cg = make(limits->apart, err);
	} else {
		cg = container_of(cgroups.pool.next, struct cgroup, link);
		list_del(&cg->link);
		cgroups.pooled--;
	}
	if (!cg)
		return NULL;
	cg->put = false;
	cg->holder = NULL;
	cg->user_us = cg->seen_user;
	cg->system_us = cg->seen_system;
	if (set_limits(cg, limits, err) < 0) {
		cgroup_put(cg);
		return NULL;
	}
	return cg;
}

void cgroup_settle(struct cgroup *cg, struct cgroup **holder)
{
	cg->holder = holder;
	cg->put = true;
	if (!populated(cg)) {
		emptied(cg);
		return;
	}
	cg->lingered = true;
	loop_watch(&cg->events, EPOLLPRI);
}

void cgroup_put(struct cgroup *cg)
{
	cg->killer = NULL;
	cgroup_settle(cg, NULL);
}

void cgroup_stock(void)
{
	const struct tree_limits none = {0};
	struct hutch_error err;
	struct cgroup *cg = cgroup_ready() ? cgroup_get(&none, &err) : NULL;

	if (!cg)
		return;
	write_file(cg->dir, "cgroup.freeze", "1");
	write_file(cg->dir, "cgroup.freeze", "0");
	cgroup_put(cg);
}

int cgroup_fd(const struct cgroup *cg)
{
	return cg->dir;
}

bool cgroup_usage(struct cgroup *cg, uint64_t *user_us, uint64_t *system_us)
{
	read_cpu(cg);
	if (!cg->seen_user && !cg->seen_system)
		return false;
	*user_us = cg->seen_user - cg->user_us;
	*system_us = cg->seen_system - cg->system_us;
	return true;
}

/* The counter only grows, and this exec has the cgroup alone: a difference is its own. */
bool cgroup_oom_killed(struct cgroup *cg)
{
	uint64_t now = read_oom_kills(cg);
	bool grew = now > cg->oom_kills;

	cg->oom_kills = now;
	return grew;
}

static void signal_members(int dir, int sig)
{
	struct lines l;

	if (!lines_open(&l, dir, "cgroup.procs"))
		return;
	while (lines_next(&l)) {
		pid_t pid = (pid_t)strtol(l.line, NULL, 10);

		if (pid > 0) /* 0: of another PID namespace */
			kill(pid, sig);
	}
	lines_close(&l);
}

static void signal_below(int dir, int sig, int depth)
{
	DIR *d = depth < MAX_DEPTH ? open_children(dir) : NULL;
	char name[NAME_MAX + 1];
	int child;

	signal_members(dir, sig);
	if (!d)
		return;
	while ((child = next_child(d, dir, name, sizeof(name))) >= 0) {
		signal_below(child, sig, depth + 1);
		close(child);
	}
	closedir(d);
}

void cgroup_signal(struct cgroup *cg, int sig)
{
	signal_below(cg->dir, sig, 0);
}

void cgroup_kill(struct cgroup *cg, struct exec *e)
{
	if (write_file(cg->dir, "cgroup.kill", "1") < 0)
		log_error("cgroup %u cannot be killed", cg->number);
	cg->killed = true;
	cg->killer = e;
	if (!populated(cg)) {
		emptied(cg);
		return;
	}
	cg->lingered = true;
	loop_watch(&cg->events, EPOLLPRI);
}

void cgroup_kill_forget(struct cgroup *cg)
{
	cg->killer = NULL;
}

/* Freezing */

static struct loop_source freezer = {.fd = -1}; /* cgroup.events of "exec" */
static int freeze_fd = -1;
static bool freezing;
static void (*tell_frozen)(void);

static void freezer_ready(struct loop_source *src, uint32_t events)
{
	(void)events;
	if (!read_event(src->fd, "frozen"))
		return;
	loop_watch(src, 0);
	tell_frozen();
}

/* Open from the start: to open them is half of the time that a command is stopped for a fork. */
static void open_freezer(void)
{
	loop_source_init(&freezer, openat(cgroups.exec, "cgroup.events", O_RDONLY | O_CLOEXEC),
			 freezer_ready);
	freeze_fd = openat(cgroups.exec, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
}

int cgroup_freeze(void (*frozen)(void))
{
	tell_frozen = frozen;
	/* Where nobody is, and the agent starts nobody, a copy need not thaw: that is half of its identity's cost. */
	freezing = freezer.fd < 0 || read_event(freezer.fd, "populated");
	if (!freezing) {
		frozen();
		return 0;
	}
	if (write(freeze_fd, "1", 1) < 0 || loop_watch(&freezer, EPOLLPRI) < 0)
		return -1;
	freezer_ready(&freezer, 0);
	return 0;
}

bool cgroup_freezes(void)
{
	return freezing;
}

void cgroup_thaw(void)
{
	if (!freezing)
		return;
	freezing = false;
	loop_watch(&freezer, 0);
	if (write(freeze_fd, "0", 1) < 0)
		log_error("the execs' cgroup cannot be thawed");
}

bool cgroup_is_frozen(const struct cgroup *cg)
{
	return read_event(cg->events.fd, "frozen");
}

/* Set-up */

static int open_dir(int at, const char *name)
{
	if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
		return -1;
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool enable(const char *controller)
{
	char text[16];

	snprintf(text, sizeof(text), "+%s", controller);
	return write_file(cgroups.base, "cgroup.subtree_control", text) == 0 &&
	       write_file(cgroups.exec, "cgroup.subtree_control", text) == 0;
}

static uint64_t read_sysctl(const char *path)
{
	char buf[32];

	read_text(AT_FDCWD, path, buf, sizeof(buf));
	return strtoull(buf, NULL, 10);
}

/* So that no exec can take all processes, and the agent and another exec still get some. */
static void protect_pids(void)
{
	uint64_t most = read_sysctl("/proc/sys/kernel/pid_max");
	uint64_t threads = read_sysctl("/proc/sys/kernel/threads-max");

	if (threads && threads < most)
		most = threads;
	if (most < 512)
		return;
	write_number(cgroups.exec, "pids.max", most - 128);
	cgroups.default_pids = (most - 128) / 2;
}

/*
 * Commands run out of memory before the machine does, so that the agent never waits for reclaim. What is
 * available now, before the first of them, is all that they can ever get.
 */
static void protect_memory(void)
{
	uint64_t available, reserve;
	char buf[512];
	const char *p;

	read_text(AT_FDCWD, "/proc/meminfo", buf, sizeof(buf));
	p = strstr(buf, "MemAvailable:");
	if (!p || !next_number(&p, &available))
		return;
	available <<= 10;
	reserve = available / 32;
	if (reserve < AGENT_MEMORY_RESERVE)
		reserve = AGENT_MEMORY_RESERVE;
	if (available > 2 * reserve)
		write_number(cgroups.exec, "memory.max", available - reserve);
}

static int set_up(struct hutch_error *err)
{
	int self = open_dir(cgroups.base, "agent"), moved;

	if (self < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "the agent's cgroup cannot be made");
	moved = write_file(self, "cgroup.procs", "0");
	close(self);
	if (moved < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "the agent cannot enter its cgroup");
	cgroups.exec = open_dir(cgroups.base, "exec");
	if (cgroups.exec < 0 || faccessat(cgroups.exec, "cgroup.kill", W_OK, 0) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno,
				       "the execs' cgroup cannot be made or has no cgroup.kill");
	open_freezer();
	cgroups.memory = enable("memory");
	cgroups.pids = enable("pids");
	cgroups.cpu = enable("cpu");
	if (cgroups.pids)
		protect_pids();
	if (cgroups.memory)
		protect_memory();
	if (cgroups.cpu)
		write_file(cgroups.base, "agent/cpu.weight", "10000");
	return 0;
}

int cgroup_init(const char *dir, struct hutch_error *err)
{
	cgroups.base = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cgroups.base < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "cgroup directory %s", dir);
	if (set_up(err) == 0)
		return 0;
	if (cgroups.exec >= 0)
		close(cgroups.exec);
	close(cgroups.base);
	cgroups.base = cgroups.exec = -1;
	hutch_error_prefix(err, "cgroup directory %s", dir);
	return -1;
}

void cgroup_exit(void)
{
	if (cgroups.exec < 0)
		return;
	while (!list_empty(&cgroups.pool)) {
		struct cgroup *cg = container_of(cgroups.pool.next, struct cgroup, link);

		list_del(&cg->link);
		destroy(cg);
	}
	loop_close(&freezer);
	close(freeze_fd);
	close(cgroups.exec);
	close(cgroups.base);
	cgroups.base = cgroups.exec = -1;
}
