/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4). */
#ifndef HUTCH_GUEST_SHA256_H
#define HUTCH_GUEST_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
	uint32_t h[8];
	uint64_t bytes;
	uint8_t block[64]; /* what is not hashed yet */
};

/* The constants of section 4.2.2, for those who do the rounds otherwise (host/hutchd/sha256_x86.c). */
extern const uint32_t sha256_k[64];

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* 64 lower-case hex digits and a NUL. */
void sha256_hex(struct sha256 *s, char out[65]);

#endif
