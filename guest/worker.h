/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes beside the agent's loop, each of which serves one call of fs.* at a time, on the connection it came on.
 *
 * How it works. Such a call is handed over at the end of the loop's pass: the connection's descriptor, the
 * call's params and what was received behind it go to a worker in one message (SOCK_SEQPACKET, SCM_RIGHTS). The
 * worker does the call, answers on the connection itself, and says in one message where in the input it
 * stopped; from there the loop goes on. Meanwhile the loop watches the connection for nothing but its end.
 *
 * A worker is forked when none is free, and kept for the next call. One that changed its user ends after its call.
 * Bounds: AGENT_MAX_WORKERS at a time, one more call is ERROR busy. A worker whose connection ended has
 * AGENT_WORKER_KILL_MS to notice. One that dies costs its connection, nothing else.
 */
#ifndef HUTCH_GUEST_WORKER_H
#define HUTCH_GUEST_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/conn.h"
#include "protocol/msg_fs.h"

/* What a worker gets. */
struct worker_job {
	int fd; /* the connection */
	enum fs_method method;
	bool caller_end;
	uint32_t params_len, input_len;
	const uint8_t *params, *input;
};

/* What it gives back. */
struct worker_done {
	enum {
		WORKER_ANSWERED,
		WORKER_LOST,
		WORKER_BROKEN
	} how; /* BROKEN: by the peer; it was told */
	bool caller_end;
	bool leaves; /* it takes no more calls */
	struct conn_rest rest;
};

/* A process that was reaped, and no exec's. */
void worker_reaped(pid_t pid);
/* Workers that serve a call. */
unsigned worker_busy(void);
/* Idle workers end, the others after their call. */
void worker_exit(void);

/* In the worker's process, fs_serve.c. */
void fs_serve(const struct worker_job *job, struct worker_done *done);

#endif
