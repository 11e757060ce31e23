/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMM's two logs, kept small: the guest's console and our own stderr, both files that are
 * appended to without end.
 *
 * A log is bounded by giving the blocks at its start back to the file system (a hole): no byte is
 * moved, so that it cannot race with a writer, and the end of the file is always the end of the
 * log.
 */
#ifndef HUTCH_VSOCK_VMM_LOGS_H
#define HUTCH_VSOCK_VMM_LOGS_H

#include <stdint.h>

#include "host/vsock/loop.h"

#define VMM_LOG_MAX \
	(256u << 10) /* where a log is cut; what is written in one period comes on top */
#define VMM_LOG_KEEP (64u << 10)
#define VMM_LOGS     2

struct vmm_logs {
	struct loop_source timer;
	struct loop *loop;
	struct {
		int fd;		/* borrowed; -1: none */
		uint64_t freed; /* bytes at its start that are a hole */
	} log[VMM_LOGS];
};

/* 0, or -1 with errno of timerfd_create(2) or epoll_ctl(2). */
int vmm_logs_open(struct vmm_logs *logs, struct loop *loop, const int fds[VMM_LOGS]);
void vmm_logs_close(struct vmm_logs *logs);

/*
 * Cut one log if it has grown beyond VMM_LOG_MAX; *freed is 0 at first. What is no regular file is
 * left alone, and where the file system knows no holes the log starts again from nothing.
 */
void vmm_log_cut(int fd, uint64_t *freed);

#endif
