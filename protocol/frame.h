/* SPDX-License-Identifier: Apache-2.0 */
/* The 8-byte frame header of wire.md section 1. Pure: no I/O, no allocation. */
#ifndef HUTCH_PROTOCOL_FRAME_H
#define HUTCH_PROTOCOL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/error.h"
#include "protocol/limits.h"

enum frame_type {
	FRAME_HELLO = 1,
	FRAME_CALL = 2,
	FRAME_RESULT = 3,
	FRAME_ERROR = 4,
	FRAME_EVENT = 5,
	FRAME_STDIN = 16,
	FRAME_STDOUT = 17,
	FRAME_STDERR = 18,
};

#define FRAME_END 0x01u /* last frame of this direction of the call */

struct frame {
	enum frame_type type;
	uint8_t flags;	 /* FRAME_END or 0 */
	uint32_t length; /* of the payload, bytes */
};

/* Write the header of f. The caller keeps length within frame_max(type). */
void frame_encode(uint8_t out[HUTCH_FRAME_HEADER], const struct frame *f);

/*
 * Read a header of HUTCH_FRAME_HEADER bytes. 0, or -1 with HUTCH_E_PROTOCOL: unknown type, flag or
 * reserved bit set, or a length above the type's maximum.
 */
int frame_decode(const uint8_t in[HUTCH_FRAME_HEADER], struct frame *f, struct hutch_error *err);

/* Largest payload of a type in bytes; 0 for an unknown type. */
uint32_t frame_max(unsigned type);
/* "CALL"; "?" for an unknown type. */
const char *frame_type_name(unsigned type);
/* STDIN, STDOUT, STDERR: raw bytes; all others hold one map. */
bool frame_is_data(enum frame_type type);

#endif
