/* SPDX-License-Identifier: Apache-2.0 */
/* Processes by pid and start time, and pidfds. */
#include "host/hutchd/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

int process_read_from(int stat_fd, pid_t *pid, struct process_stat *out)
{
	char buf[1024];
	const char *rest;
	long self, ppid, pgid, sid;
	unsigned long long user, kernel, start;
	ssize_t n = pread(stat_fd, buf, sizeof(buf) - 1, 0);

	if (n <= 0) {
		errno = ESRCH;
		return -1;
	}
	buf[n] = '\0';
	/*
	 * The name is in parentheses and may hold anything, so the fields count from the last one.
	 */
	rest = strrchr(buf, ')');
	if (!rest || sscanf(buf, "%ld", &self) != 1 ||
	    sscanf(rest,
		   ") %c %ld %ld %ld %*s %*s %*s %*s %*s %*s %*s %llu %llu %*s %*s %*s "
		   "%*s %*s %*s %llu",
		   &out->state, &ppid, &pgid, &sid, &user, &kernel, &start) != 7) {
		errno = EPROTO;
		return -1;
	}
	if (pid)
		*pid = (pid_t)self;
	out->ppid = (pid_t)ppid;
	out->pgid = (pid_t)pgid;
	out->sid = (pid_t)sid;
	out->cpu_ms = (user + kernel) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK);
	out->start_time = start;
	return 0;
}

int process_read(pid_t pid, struct process_stat *out)
{
	char path[32];
	int fd, rc;

	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		if (errno == ENOENT)
			errno = ESRCH;
		return -1;
	}
	rc = process_read_from(fd, NULL, out);
	fd_close(&fd);
	return rc;
}

int process_open(pid_t pid, uint64_t start_time)
{
	struct process_stat st;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by definition */

	if (fd < 0)
		return -1;
	if (process_read(pid, &st) == 0) {
		if (st.start_time == start_time && st.state != 'Z' && st.state != 'X')
			return fd;
		errno = ESRCH;
	}
	fd_close(&fd);
	return -1;
}

int process_signal(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}
