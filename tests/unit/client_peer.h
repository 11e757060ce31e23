/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of a client's connection, played by a thread of the test. */
#ifndef HUTCH_TESTS_CLIENT_PEER_H
#define HUTCH_TESTS_CLIENT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/msg.h"

struct peer {
	int fd;
	void *arg;
	uint8_t *payload;     /* of the last frame */
	struct msg_call call; /* the last CALL; points into call_payload */
	uint8_t *call_payload;
	unsigned call_flags;
};

void peer_free(struct peer *p);

/* The next frame; false at the end of the stream. Its payload is p->payload. */
bool peer_frame(struct peer *p, struct frame *f);
/*
 * The next CALL, HELLO before it included, input left over from the last call skipped. False at the
 * end of the stream.
 */
bool peer_call(struct peer *p);

void peer_bytes(struct peer *p, const void *data, size_t len);
void peer_hello(struct peer *p);
void peer_data(struct peer *p, enum frame_type type, const void *data, size_t len);
void peer_text(struct peer *p, enum frame_type type, const char *text);
void peer_event(struct peer *p, const char *name);
void peer_error(struct peer *p, enum hutch_error_kind kind, int errnum, const char *message);
/* RESULT with END: build the map in b, between mp_frame_begin and this. */
void peer_finish(struct peer *p, struct mp_buf *b, enum frame_type type, unsigned flags);
void peer_exit(struct peer *p, unsigned exit_code); /* a plain exec result */
void peer_empty(struct peer *p);		    /* RESULT {} */

#endif
