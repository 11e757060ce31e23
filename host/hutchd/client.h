/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client: its socket, who it is (from the kernel, at accept), HELLO, and one call at a time.
 *
 *   hello -> open -> closing        any -> dead
 *
 * A call is an object of its own (relay, create, wait) that hangs on client::call and answers with client_reply or
 * client_error; it is told when input comes, when the output drains and when the client has gone. What breaks the
 * protocol costs this client its connection, after an ERROR that says why.
 */
#ifndef HUTCH_HOST_CLIENT_H
#define HUTCH_HOST_CLIENT_H

#include "host/hutchd/broker.h"
#include "host/hutchd/call_ends.h"
#include "host/hutchd/stream.h"
#include "protocol/msg.h"

#define CLIENT_HELLO_MS	  10000u /* to say HELLO */
#define CLIENT_CLOSING_MS 5000u	 /* to read the last frame, when it is closed for a fault */

enum client_state { CLIENT_HELLO, CLIENT_OPEN, CLIENT_CLOSING, CLIENT_DEAD };

struct call_ops {
	/* STDIN or EVENT of an open call; NULL: this method takes none, it is dropped. */
	void (*input)(void *call, const struct frame *f, const uint8_t *raw);
	/* The client closed or broke the protocol before the answer. The call is off the client by then. */
	void (*gone)(void *call);
	/* The client's queue fell to STREAM_LOW. NULL: of no interest. */
	void (*drained)(void *call);
};

struct client {
	TAILQ_ENTRY(client) next;
	struct deferred deferred;
	struct broker *b;
	struct stream s;
	enum client_state state;
	uint32_t uid;
	int32_t pid;
	bool admin;
	uint32_t
		member_of; /* the CID of the shared VM of another that it last turned to; 0: none */
	char object[64];   /* "client 12 (uid 1000, pid 4711)" */
	struct call_ends ends;
	const struct call_ops *ops; /* of the call that runs; NULL: none, or it was answered */
	void *call;
	struct event timer; /* HELLO, then closing */
};

/* Takes over fd. NULL when memory is gone. */
struct client *client_new(struct broker *b, int fd, uint32_t uid, int32_t pid);
/* Close it now; its call is told that it has gone. */
void client_close(struct client *c);

/* From a handler: the answer comes later, from this call. */
void client_begin(struct client *c, const struct call_ops *ops, void *call);
/* A frame of from's that is no answer yet: EVENT, STDOUT, STDERR. raw: header and payload. */
void client_forward(struct client *c, struct stream *from, const uint8_t *raw, size_t len);
/* The RESULT or ERROR, whole; the call is off the client then. */
void client_reply(struct client *c, const uint8_t *raw, size_t len);
void client_error(struct client *c, const struct hutch_error *err);
/* RESULT from a buffer that holds one whole frame from start 0; ERROR too_large when it failed. Frees b. */
void client_reply_buf(struct client *c, struct mp_buf *b);
void client_reply_empty(struct client *c);
/* ERROR {protocol}, then close. */
void client_fault(struct client *c, const char *why);

#endif
