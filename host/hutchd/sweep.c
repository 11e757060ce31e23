/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End every process of a VM. Until a VMM has a PID namespace of its own, whose end the kernel would
 * see to, its descendants are found by the marker in their environment and by their sessions. One
 * that cleared its environment and then made a session of its own is missed.
 */
#include "host/hutchd/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_proto.h"
#include "host/hutchd/process.h"

#define SWEEP_ROUND 64	 /* killed and awaited at a time */
#define SWEEP_MS    2000 /* a process in uninterruptible sleep may take longer to die */
#define ENVIRON_MAX (256u << 10)

struct sweep {
	const char *id;
	bool children_only;
	pid_t session[SWEEP_ROUND]; /* of this VM; those beyond are found by the marker alone */
	int sessions;
	bool (*is_other)(void *arg, pid_t pid);
	void *arg;
	struct pollfd dying[SWEEP_ROUND]; /* pidfds */
	int count;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool has_marker(pid_t pid, const char *id)
{
	char path[40], want[64];
	size_t len, want_len;
	char *env;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%ld/environ", (long)pid);
	want_len = (size_t)snprintf(want, sizeof(want), VMM_MARKER "=%s", id) + 1;
	env = file_read(AT_FDCWD, path, ENVIRON_MAX, &len);
	if (!env)
		return false;
	for (size_t at = 0; at < len && !found; at += strlen(env + at) + 1)
		found = len + 1 - at >= want_len && memcmp(env + at, want, want_len) == 0;
	free(env);
	return found;
}

static bool knows_session(const struct sweep *s, pid_t sid)
{
	for (int i = 0; i < s->sessions; i++)
		if (s->session[i] == sid)
			return true;
	return false;
}

/*
 * Marked, or of a session that a marked one was in: the VMM began with a session of its own, so
 * that no stranger can be in it or in one that was made from it.
 */
static bool belongs(struct sweep *s, pid_t pid)
{
	struct process_stat st;

	if (process_read(pid, &st) < 0 || st.state == 'Z' || st.state == 'X')
		return false;
	if (knows_session(s, st.sid))
		return true;
	if (!has_marker(pid, s->id))
		return false;
	if (s->sessions < SWEEP_ROUND)
		s->session[s->sessions++] = st.sid;
	return true;
}

/* The pidfd is opened before the process is looked at, so that it is this one that is killed. */
static void consider(struct sweep *s, pid_t pid)
{
	int fd;

	/* Known children cannot be anything else while they are not reaped. */
	if (s->count == SWEEP_ROUND || pid == getpid() || (s->is_other && s->is_other(s->arg, pid)))
		return;
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return;
	if (belongs(s, pid) && process_signal(fd, SIGKILL) == 0)
		s->dying[s->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
	else
		fd_close(&fd);
}

static int look_through_children(struct sweep *s)
{
	char path[64], *list, *at, *end;
	size_t len;

	snprintf(path, sizeof(path), "/proc/self/task/%ld/children", (long)getpid());
	list = file_read(AT_FDCWD, path, 1u << 20, &len);
	if (!list)
		return -1;
	for (at = list;; at = end) {
		long pid = strtol(at, &end, 10);

		if (end == at)
			break;
		consider(s, (pid_t)pid);
	}
	free(list);
	return 0;
}

static int look_through_all(struct sweep *s)
{
	DIR *proc = opendir("/proc");
	struct dirent *e;

	if (!proc)
		return -1;
	while ((e = readdir(proc)) != NULL) {
		char *end;
		long pid = strtol(e->d_name, &end, 10);

		if (pid > 1 && *end == '\0')
			consider(s, (pid_t)pid);
	}
	closedir(proc);
	return 0;
}

static int look(struct sweep *s)
{
	/* The list of children is a kernel option; /proc itself is always there. */
	if (s->children_only && look_through_children(s) == 0)
		return 0;
	return look_through_all(s);
}

/* Wait until all that were killed are dead; false when time is up first. */
static bool await_dead(struct sweep *s, int64_t until)
{
	int left = s->count;

	while (left > 0) {
		int64_t ms = until - now_ms();

		if (ms <= 0 || (poll(s->dying, (nfds_t)s->count, (int)ms) < 0 && errno != EINTR))
			break;
		for (int i = 0; i < s->count; i++) {
			if (s->dying[i].fd < 0 || !s->dying[i].revents)
				continue;
			/*
			 * Orphans that became our children are reaped; for others this does
			 * nothing.
			 */
			waitid(P_PIDFD, (id_t)s->dying[i].fd, NULL, WEXITED | WNOHANG);
			fd_close(&s->dying[i].fd);
			left--;
		}
	}
	for (int i = 0; i < s->count; i++)
		fd_close(&s->dying[i].fd);
	s->count = 0;
	return left == 0;
}

int sweep_vm(const char *id, pid_t vmm, bool children_only, bool (*is_other)(void *arg, pid_t pid),
	     void *arg)
{
	struct sweep s = {.id = id,
			  .children_only = children_only,
			  .is_other = is_other,
			  .arg = arg};
	int64_t until = now_ms() + SWEEP_MS;
	int killed = 0;

	/* Of a VMM that was not our child the pid may be another's by now. */
	if (children_only)
		s.session[s.sessions++] = vmm;
	for (;;) {
		if (look(&s) < 0)
			return -1;
		if (s.count == 0)
			return killed;
		killed += s.count;
		if (!await_dead(&s, until)) {
			errno = ETIMEDOUT;
			return -1;
		}
	}
}
