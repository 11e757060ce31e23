/* SPDX-License-Identifier: Apache-2.0 */
/* Finding an exec's processes in /proc; see procwalk.h. */
#include "guest/procwalk.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/lines.h"

/* Field n of proc(5), counted from the state, which is field 3; 0 when it is not there. */
static const char *field(const char *after_name, unsigned n)
{
	const char *p = after_name;

	for (unsigned i = 3; *p; i++) {
		p += strspn(p, " ");
		if (i == n)
			return *p ? p : NULL;
		p += strcspn(p, " ");
	}
	return NULL;
}

bool proc_parse_stat(const char *text, struct proc *out)
{
	const char *name_end = strrchr(text, ')'); /* the fields after it hold none */
	const char *state, *ppid, *sid, *start;

	if (!name_end || *text < '0' || *text > '9')
		return false;
	state = field(name_end + 1, 3);
	ppid = field(name_end + 1, 4);
	sid = field(name_end + 1, 6);
	start = field(name_end + 1, 22);
	if (!state || !ppid || !sid || !start)
		return false;
	out->pid = (pid_t)strtol(text, NULL, 10);
	out->ppid = (pid_t)strtol(ppid, NULL, 10);
	out->sid = (pid_t)strtol(sid, NULL, 10);
	out->state = *state;
	out->start = strtoull(start, NULL, 10);
	out->member = false;
	return true;
}

/* Bytes of /proc/PID/NAME, as text; -1: the process is gone. */
static long read_file(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
	return read_text(agent.proc_fd, path, buf, size);
}

static bool read_proc(pid_t pid, struct proc *out)
{
	char buf[512];

	return read_file(pid, "stat", buf, sizeof(buf)) > 0 && proc_parse_stat(buf, out);
}

enum tagged { TAG_NO, TAG_YES, TAG_UNREADABLE };

static enum tagged has_tag(pid_t pid, uint32_t tag)
{
	char buf[32];

	if (read_file(pid, "timerslack_ns", buf, sizeof(buf)) <= 0)
		return TAG_UNREADABLE;
	return strtoull(buf, NULL, 10) == SLACK_BASE + tag ? TAG_YES : TAG_NO;
}

static int add(struct proc_set *s, const struct proc *p)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		struct proc *v = realloc(s->v, cap * sizeof(*v));

		if (!v)
			return -1;
		s->v = v;
		s->cap = cap;
	}
	s->v[s->n++] = *p;
	return 0;
}

void proc_set_free(struct proc_set *s)
{
	free(s->v);
	*s = (struct proc_set){0};
}

/* All living processes, in order of pid: /proc lists them so. */
static int scan(struct proc_set *s)
{
	int fd = openat(agent.proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int ret = 0;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while (ret == 0 && (d = readdir(dir))) {
		struct proc p;

		if (isdigit((unsigned char)d->d_name[0]) &&
		    read_proc((pid_t)strtol(d->d_name, NULL, 10), &p) && p.state != 'Z' &&
		    p.state != 'X')
			ret = add(s, &p);
	}
	closedir(dir);
	return ret;
}

static int by_pid(const void *a, const void *b)
{
	const struct proc *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool is_member(const struct proc_set *s, pid_t pid)
{
	struct proc key = {.pid = pid};
	const struct proc *p = bsearch(&key, s->v, s->n, sizeof(*s->v), by_pid);

	return p && p->member;
}

/* Children of members are members; pids wrap around, so a parent may come after its child. */
static void close_over_children(struct proc_set *s)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (size_t i = 0; i < s->n; i++)
			if (!s->v[i].member && is_member(s, s->v[i].ppid))
				s->v[i].member = changed = true;
	}
}

/* Is it, by itself and not by its parent? */
static bool belongs(const struct proc *p, pid_t self, pid_t first, bool reaped, uint32_t tag)
{
	if (p->pid == self)
		return false;
	if (p->sid == first)
		return !reaped || has_tag(p->pid, tag) != TAG_NO;
	return p->ppid == self && has_tag(p->pid, tag) == TAG_YES;
}

int procwalk_members(pid_t first, bool reaped, uint32_t tag, struct proc_set *out)
{
	pid_t self = getpid();
	size_t kept = 0;

	*out = (struct proc_set){0};
	if (scan(out) < 0) {
		proc_set_free(out);
		return -1;
	}
	for (size_t i = 0; i < out->n; i++)
		out->v[i].member = belongs(&out->v[i], self, first, reaped, tag);
	close_over_children(out);
	for (size_t i = 0; i < out->n; i++)
		if (out->v[i].member)
			out->v[kept++] = out->v[i];
	out->n = kept;
	return 0;
}

int procwalk_signal(const struct proc *p, int sig)
{
	int fd = (int)syscall(SYS_pidfd_open, p->pid, 0), ret = -1, saved;
	struct proc now;

	if (fd < 0)
		return -1;
	if (!read_proc(p->pid, &now) || now.start != p->start)
		errno = ESRCH;
	else
		ret = (int)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
	saved = errno;
	close(fd);
	errno = saved;
	return ret;
}
