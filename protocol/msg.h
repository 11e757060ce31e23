/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages that every connection has: HELLO, the CALL envelope, ERROR (wire.md section 2).
 *
 * A decoder turns a payload into a checked plain struct or a struct hutch_error; an encoder appends
 * one whole frame to a struct mp_buf (and returns -1 when that failed, which only memory or size
 * can cause).
 */
#ifndef HUTCH_PROTOCOL_MSG_H
#define HUTCH_PROTOCOL_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/codec.h"
#include "protocol/error.h"
#include "protocol/frame.h"
#include "protocol/limits.h"

enum msg_role { ROLE_CLIENT = 1, ROLE_BROKER, ROLE_AGENT };

struct msg_hello {
	uint32_t proto;
	enum msg_role role;
	char name[HUTCH_MAX_PEER_NAME + 1];
	char boot_id[HUTCH_UUID_LEN + 1]; /* empty: none */
	uint64_t generation;
	bool pid1;
	bool held; /* by snapshot.prepare */
};

/*
 * -1 with HUTCH_E_UNSUPPORTED when proto is not one that this side speaks, HUTCH_E_PROTOCOL
 * otherwise.
 */
int msg_hello_decode(struct msg_hello *m, const void *payload, size_t len, struct hutch_error *err);
int msg_hello_encode(struct mp_buf *out, const struct msg_hello *m);

struct msg_call {
	char method[HUTCH_MAX_METHOD + 1];
	char vm[HUTCH_MAX_VM_NAME + 1]; /* empty: none; so for id and key */
	char id[HUTCH_MAX_ID + 1];
	char key[HUTCH_MAX_KEY + 1];
	const uint8_t *params; /* one encoded map inside the payload; NULL: none was given */
	size_t params_len;
};

/* The struct points into payload. params is checked to be a map, and not looked into further. */
int msg_call_decode(struct msg_call *m, const void *payload, size_t len, struct hutch_error *err);
/* flags: FRAME_END when no input follows. params NULL leaves it out. */
int msg_call_encode(struct mp_buf *out, const struct msg_call *m, unsigned flags);

int msg_error_decode(struct hutch_error *e, const void *payload, size_t len,
		     struct hutch_error *err);
/* With END. */
int msg_error_encode(struct mp_buf *out, const struct hutch_error *e);

/* RESULT {} with END. */
int msg_empty_result_encode(struct mp_buf *out);

/*
 * mp_close for a message of the peer's own (not params): what is invalid in it is HUTCH_E_PROTOCOL.
 */
int msg_close(struct mp_reader *r);

#endif
