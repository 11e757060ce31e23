/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), small rather than fast. */
#include "guest/sha256.h"

#include <string.h>

/* Section 4.2.2. */
const uint32_t sha256_k[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

static uint32_t rotr(uint32_t v, unsigned n)
{
	return v >> n | v << (32 - n);
}

/* Section 6.2.2, with the message schedule in a ring of 16 words. */
static void hash_block(uint32_t h[8], const uint8_t *p)
{
	uint32_t w[16], v[8];

	memcpy(v, h, sizeof(v));
	for (unsigned t = 0; t < 64; t++) {
		uint32_t t1, t2, *wt = &w[t % 16];

		if (t < 16) {
			*wt = (uint32_t)p[4 * t] << 24 | (uint32_t)p[4 * t + 1] << 16 |
			      (uint32_t)p[4 * t + 2] << 8 | p[4 * t + 3];
		} else {
			uint32_t a = w[(t + 1) % 16], b = w[(t + 14) % 16];

			*wt += w[(t + 9) % 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) +
			       (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
		}
		t1 = v[7] + (rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25)) +
		     ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha256_k[t] + *wt;
		t2 = (rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22)) +
		     ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (unsigned i = 0; i < 8; i++)
		h[i] += v[i];
}

/* Section 5.3.3. */
void sha256_init(struct sha256 *s)
{
	static const uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
				      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

	memcpy(s->h, h, sizeof(h));
	s->bytes = 0;
}

void sha256_add(struct sha256 *s, const void *data, size_t n)
{
	const uint8_t *p = data;
	size_t have = s->bytes % 64;

	s->bytes += n;
	while (n > 0) {
		size_t take = 64 - have;

		if (have == 0 && n >= 64) {
			hash_block(s->h, p);
			take = 64;
		} else {
			if (take > n)
				take = n;
			memcpy(s->block + have, p, take);
			have = (have + take) % 64;
			if (have == 0)
				hash_block(s->h, s->block);
		}
		p += take;
		n -= take;
	}
}

/* Section 5.1.1: a 1 bit, zeros, the length in bits. */
void sha256_hex(struct sha256 *s, char out[65])
{
	uint64_t bits = s->bytes * 8;
	uint8_t pad[72] = {0x80};
	size_t n = 64 - (s->bytes + 8) % 64;

	for (unsigned i = 0; i < 8; i++)
		pad[n + i] = (uint8_t)(bits >> (56 - 8 * i));
	sha256_add(s, pad, n + 8);
	for (unsigned i = 0; i < 64; i++)
		out[i] = "0123456789abcdef"[s->h[i / 8] >> (28 - 4 * (i % 8)) & 15];
	out[64] = '\0';
}
