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

bool proc_parse_stat(const char *text, size_t n, struct proc *out)
{
	char buf[512];
	long pid, ppid, sid;
	unsigned long long start;
	char *name_end;

	if (n >= sizeof(buf))
		n = sizeof(buf) - 1;
	memcpy(buf, text, n);
	buf[n] = '\0';
	name_end = strrchr(buf, ')'); /* the fields after it hold none */
	if (!name_end || sscanf(buf, "%ld (", &pid) != 1)
		return false;
	/* state ppid pgrp session, 15 more, starttime: fields 3 to 22 of proc(5) */
	if (sscanf(name_end + 1,
		   " %c %ld %*d %ld %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &out->state, &ppid, &sid, &start) != 4)
		return false;
	out->pid = (pid_t)pid;
	out->ppid = (pid_t)ppid;
	out->sid = (pid_t)sid;
	out->start = start;
	out->member = false;
	return true;
}

/* Bytes of /proc/PID/NAME; -1: the process is gone. */
static ssize_t read_file(pid_t pid, const char *name, char *buf, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
	fd = openat(agent.proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	return n;
}

static bool read_proc(pid_t pid, struct proc *out)
{
	char buf[512];
	ssize_t n = read_file(pid, "stat", buf, sizeof(buf));

	return n > 0 && proc_parse_stat(buf, (size_t)n, out);
}

enum tagged { TAG_NO, TAG_YES, TAG_UNREADABLE };

static enum tagged has_tag(pid_t pid, uint32_t tag)
{
	char buf[32];
	ssize_t n = read_file(pid, "timerslack_ns", buf, sizeof(buf) - 1);

	if (n <= 0)
		return TAG_UNREADABLE;
	buf[n] = '\0';
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

/* All living processes, in order of pid (as /proc lists them). */
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
	qsort(out->v, out->n, sizeof(*out->v), by_pid);
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
