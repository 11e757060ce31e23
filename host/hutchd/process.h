/* SPDX-License-Identifier: Apache-2.0 */
/* Processes by pid and start time, and pidfds. Failures return -1 with errno. */
#ifndef HUTCH_HOST_PROCESS_H
#define HUTCH_HOST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct process_stat {
	char state; /* 'Z' and 'X': dead */
	pid_t ppid, pgid, sid;
	uint64_t cpu_ms;     /* used so far, by the kernel for it too */
	uint64_t start_time; /* clock ticks after the host's boot */
};

/* Read /proc/PID/stat (proc_pid_stat(5)). ESRCH when there is no such process. */
int process_read(pid_t pid, struct process_stat *out);
/* From such a file; pid may be NULL. Of /proc/self it is the pid that this /proc's PID namespace knows. */
int process_read_from(int stat_fd, pid_t *pid, struct process_stat *out);

/*
 * A pidfd of this very process: pidfd_open(2), then the start time is compared. ESRCH when it is
 * gone, a zombie, or another process has its pid by now.
 */
int process_open(pid_t pid, uint64_t start_time);
int process_signal(int pidfd, int sig);

#endif
