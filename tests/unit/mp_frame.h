/* SPDX-License-Identifier: Apache-2.0 */
/* What the encoders' tests need: the payload of the only frame in a buffer. */
#ifndef HUTCH_TESTS_MP_FRAME_H
#define HUTCH_TESTS_MP_FRAME_H

#include <check.h>

#include "protocol/codec.h"
#include "protocol/frame.h"

/* Fails the test unless b holds exactly one frame of this type with these flags. */
static inline const uint8_t *only_payload(const struct mp_buf *b, enum frame_type type,
					  unsigned flags, size_t *len)
{
	struct hutch_error err;
	struct frame f;

	ck_assert_uint_ge(b->len, HUTCH_FRAME_HEADER);
	ck_assert_int_eq(frame_decode(b->data, &f, &err), 0);
	ck_assert_int_eq(f.type, type);
	ck_assert_uint_eq(f.flags, flags);
	*len = f.length;
	ck_assert_uint_eq(*len + HUTCH_FRAME_HEADER, b->len);
	return b->data + HUTCH_FRAME_HEADER;
}

#endif
