/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: how the broker speaks to the library.
 *
 * Text lines, a request at a time, answered in order:
 *   renew MS   the VM ends MS milliseconds from now unless renewed again; 0: never. Answer: ok
 *   status     Answer: ok key=value ...
 *   capture whole|delta|ahead, or: capture delta N, which stands for the layers from N on as well
 *              with the data file's descriptor and, for delta, the extents file's, sent by
 *              SCM_RIGHTS with the line: saves the RAM of a stopped VM, ahead also of one that
 *              runs (vmm_capture.h).
 *              Answer, when it is done: ok bytes=N extents=N us=N
 *              or: err capture: STAGE: errno=N TEXT
 *   fork       with the descriptors of vmm_fork.h, for a zygote that is stopped. Answer: ok. The
 *              child says the rest on the first of them, and has none of these connections
 * Anything else is answered "err <reason>". A line has at most VMM_CTL_LINE bytes, newline
 * included; a longer one is answered and the connection closed. Of VMM_CTL_CONNS connections the
 * oldest gives way to a new one, so that a broker that lost its old connections is always heard.
 */
#ifndef HUTCH_VSOCK_VMM_CTL_H
#define HUTCH_VSOCK_VMM_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/vsock/loop.h"

#define VMM_CTL_LINE  128
#define VMM_CTL_REPLY 512
#define VMM_CTL_CONNS 8
#define VMM_CTL_FDS   6

struct vmm;
struct vmm_ctl;

struct vmm_ctl_conn {
	struct loop_source src; /* fd -1: free */
	struct vmm_ctl *ctl;
	uint64_t number; /* in order of accept */
	bool waiting;	 /* for its capture to be done; further lines wait */
	unsigned nfds;	 /* that came and were not asked for yet */
	int fds[VMM_CTL_FDS];
	size_t len;
	char line[VMM_CTL_LINE];
};

struct vmm_ctl {
	struct vmm *vmm;
	struct loop_source listener;
	bool paused; /* the listener, for want of descriptors */
	uint64_t accepted;
	struct vmm_ctl_conn conn[VMM_CTL_CONNS];
};

/*
 * listen_fd: a listening Unix stream socket, borrowed; -1: no control socket. 0, or -1 with errno.
 */
int vmm_ctl_open(struct vmm_ctl *ctl, struct vmm *vmm, int listen_fd);
void vmm_ctl_close(struct vmm_ctl *ctl);

/* Once a pass: answers for a capture that is done, tries a paused listener again. Returns timeout_ms, or less while it is paused. */
int vmm_ctl_tick(struct vmm_ctl *ctl, int timeout_ms);

/*
 * Answers one request but capture, a line without its newline, in reply, newline included. Returns the length.
 */
size_t vmm_ctl_answer(struct vmm *vmm, const char *line, char reply[VMM_CTL_REPLY]);

#endif
