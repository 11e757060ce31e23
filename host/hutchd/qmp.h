/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A QMP client on the event loop: one command at a time, each with a time limit.
 *
 * The server is the VMM, which is not trusted: what breaks the protocol (no JSON, a line above 64
 * KiB, an answer to nothing, more than 500 messages or 1 MiB in a second) closes this connection
 * and nothing else. Callbacks run from the loop, never from inside a call of this header, and may
 * call qmp_free.
 */
#ifndef HUTCH_HOST_QMP_H
#define HUTCH_HOST_QMP_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct qmp;

struct qmp_callbacks {
	/* The server's first message: it is ready for qmp_capabilities. */
	void (*greeting)(void *arg, const char *version);
	/* data is borrowed and may be NULL. */
	void (*event)(void *arg, const char *name, const json_t *data);
	/*
	 * The connection is over; commands that waited are told next. broken: the server broke the
	 * protocol, rather than closing or being slow.
	 */
	void (*lost)(void *arg, const char *why, bool broken);
};

/*
 * value is borrowed; NULL with error when it failed, was lost, or took too long (the connection is
 * lost then).
 */
typedef void qmp_done_fn(void *arg, const json_t *value, const char *error);

/*
 * Connect to the listening socket dirfd/name. The server need not be ready: it is listening since
 * before it started. NULL with errno.
 */
struct qmp *qmp_connect(struct event_base *base, int dirfd, const char *name,
			const struct qmp_callbacks *cb, void *arg);

/*
 * Queue a command; takes over args (an object, or NULL for none). -1 with errno: ENOTCONN when the
 * connection is lost, EBUSY when QMP_MAX_QUEUE commands wait already, ENOMEM, EMSGSIZE.
 */
#define QMP_MAX_QUEUE	32u
#define QMP_MAX_LINE	(64u << 10)
#define QMP_MAX_COMMAND (32u << 10)
int qmp_command(struct qmp *q, const char *name, json_t *args, uint32_t timeout_ms,
		qmp_done_fn *done, void *arg);
/* The same with a descriptor beside it (add-fd), which is duplicated. */
int qmp_command_fd(struct qmp *q, const char *name, json_t *args, int fd, uint32_t timeout_ms,
		   qmp_done_fn *done, void *arg);

/*
 * Take in what the server has sent so far: its last words, when it has died. Callbacks run inside
 * this call.
 */
void qmp_drain(struct qmp *q);
/* Close; commands that wait are dropped without a call. */
void qmp_free(struct qmp *q);

#endif
