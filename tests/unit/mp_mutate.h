/* SPDX-License-Identifier: Apache-2.0 */
/* Every prefix and every one-byte change of a valid message, each in memory of exactly its size. */
#ifndef HUTCH_TESTS_MP_MUTATE_H
#define HUTCH_TESTS_MP_MUTATE_H

#include <stddef.h>

#include "protocol/error.h"

/* Decode and free; the decoder's own return value. */
typedef int (*decode_fn)(const void *buf, size_t len, struct hutch_error *err);

/*
 * text (mp_text.h) itself must decode; every prefix must be refused as HUTCH_E_PROTOCOL, and every
 * change decoded or refused with a kind and a message. Fails the check test otherwise.
 */
void mp_mutate(const char *text, decode_fn decode);

#endif
