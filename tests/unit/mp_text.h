/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack written as text, so that tests can show what they send: JSON with single quotes,
 * b'...' for bin, nil, \xNN in strings, 1.5 for any float, and #d9017a for one value in raw bytes.
 */
#ifndef HUTCH_TESTS_MP_TEXT_H
#define HUTCH_TESTS_MP_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The encoded bytes in memory of exactly that size (an overrun is seen by ASan); free() them. */
uint8_t *mp_text(const char *text, size_t *len);

#endif
