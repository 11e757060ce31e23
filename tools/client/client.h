/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside libhutch.
 *
 * A connection holds two byte queues. Outgoing frames are queued whole and sent as the socket takes
 * them; at most one CALL (1 MiB) and one STDIN frame (64 KiB) are queued at a time. Incoming bytes
 * are read into the other one, which holds one control frame at most; payload of data frames is
 * handed out as it arrives, frame by frame or in parts, straight from the queue.
 */
#ifndef HUTCH_CLIENT_H
#define HUTCH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/codec.h"
#include "protocol/error.h"
#include "protocol/frame.h"
#include "protocol/limits.h"
#include "tools/client/hutch.h"

struct bytes {
	uint8_t *data;
	size_t start, len, cap; /* what is queued: data[start .. start + len) */
};

struct hutch {
	int fd; /* -1 once broken */
	char *socket_path;
	struct hutch_failure broken; /* why, once fd is -1 */

	struct bytes out;
	/* bytes of out up to the end of the CALL: 0 = the broker may have all of it */
	size_t call_unsent;
	bool deaf; /* the peer takes no more bytes; what it still says is read */

	struct bytes in;
	size_t given;		   /* bytes at the start of in that the last item pointed to */
	uint32_t left;		   /* payload of the data frame under way, still to come */
	enum frame_type data_type; /* its type */
	bool greeted;		   /* the peer's HELLO was read */

	bool open;			   /* a call waits for its RESULT */
	bool input;			   /* the END of its input was not queued yet */
	char method[HUTCH_MAX_METHOD + 1]; /* of the last call, for messages */
};

struct hutch_doc {
	struct mp_doc mp;
	struct hutch_value root;
	uint8_t *payload; /* as it came */
	size_t len;
};

/* failure.c: fill *why (NULL is fine). Return -1. */
int fail_set(struct hutch_failure *why, enum hutch_error_kind kind, int errnum, const char *fmt,
	     ...) __attribute__((format(printf, 4, 5)));
int fail_from(struct hutch_failure *why, const struct hutch_error *err);

/* connect.c: a connected socket and the path that it was reached by (malloc), or -1. */
int connect_broker(const char *explicit_path, char **path, struct hutch_failure *why);

/* bytes.c. Room for n more bytes at the end; NULL when memory is short. */
uint8_t *bytes_room(struct bytes *b, size_t n);
int bytes_append(struct bytes *b, const void *p, size_t n);
void bytes_consume(struct bytes *b, size_t n);
void bytes_free(struct bytes *b);

/* conn.c */
/* Send what is queued, as far as the socket takes it. -1: the connection is broken. */
int conn_flush(struct hutch *h);
/* Read once. 1: something came, 0: nothing there, -1: the connection is broken. */
int conn_fill(struct hutch *h);
/* Close the socket and keep why. */
int conn_break(struct hutch *h, enum hutch_error_kind kind, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/*
 * Wait until something can be done, at most until deadline_ms of CLOCK_MONOTONIC (0: none). 0, or
 * -1 = broken by timeout.
 */
int conn_wait(struct hutch *h, uint64_t deadline_ms);
uint64_t conn_now_ms(void);

/* call.c: params is one encoded map, or NULL. */
int call_start(struct hutch *h, const struct hutch_call *call, const struct mp_buf *params,
	       struct hutch_failure *why);

/* value.c */
struct hutch_doc *doc_parse(const void *payload, size_t len, struct hutch_error *err);
/* Append v to out. -1: nested too deeply. */
int value_encode(struct mp_buf *out, const struct hutch_value *v, unsigned depth);

#endif
