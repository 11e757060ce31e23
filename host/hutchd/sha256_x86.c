/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 with the SHA extensions (Intel SDM volume 2, SHA256RNDS2, SHA256MSG1, SHA256MSG2). They keep the eight words of
 * the state as ABEF and CDGH, and do two rounds each; four words of the message schedule are made at once.
 */
#include "host/hutchd/sha256_x86.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define FAST __attribute__((target("sha,sse4.1,ssse3")))

FAST static __m128i next_words(const __m128i m[4], unsigned i)
{
	const __m128i *w0 = &m[i % 4], *w1 = &m[(i + 1) % 4], *w2 = &m[(i + 2) % 4],
		      *w3 = &m[(i + 3) % 4];
	__m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(*w0, *w1), _mm_alignr_epi8(*w3, *w2, 4));

	return _mm_sha256msg2_epu32(sum, *w3);
}

FAST static void one_block(__m128i *abef, __m128i *cdgh, const uint8_t *p)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i a = *abef, c = *cdgh, m[4];

	for (unsigned i = 0; i < 4; i++)
		m[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)p + i),
					swap);
	for (unsigned i = 0; i < 16; i++) {
		__m128i wk = _mm_add_epi32(
			m[i % 4], _mm_load_si128((const __m128i *)(const void *)&sha256_k[4 * i]));

		c = _mm_sha256rnds2_epu32(c, a, wk);
		a = _mm_sha256rnds2_epu32(a, c, _mm_shuffle_epi32(wk, 0x0e));
		if (i < 12)
			m[i % 4] = next_words(m, i);
	}
	*abef = _mm_add_epi32(*abef, a);
	*cdgh = _mm_add_epi32(*cdgh, c);
}

FAST static void hash_blocks(uint32_t h[8], const uint8_t *p, size_t count)
{
	__m128i *state = (__m128i *)(void *)h;
	__m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(state), 0xb1);
	__m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(state + 1), 0x1b);
	__m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
	__m128i feba, dchg;

	for (; count > 0; count--, p += 64)
		one_block(&abef, &cdgh, p);
	feba = _mm_shuffle_epi32(abef, 0x1b);
	dchg = _mm_shuffle_epi32(cdgh, 0xb1);
	_mm_storeu_si128(state, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128(state + 1, _mm_alignr_epi8(dchg, feba, 8));
}

/* Leaf 1: SSSE3 and SSE4.1; leaf 7: SHA. */
static bool have(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#else
static bool have(void)
{
	return false;
}

static void hash_blocks(uint32_t h[8], const uint8_t *p, size_t count)
{
	(void)h;
	(void)p;
	(void)count;
}
#endif

/* CPUID is slow in a virtual machine: asked once. */
static bool fast(void)
{
	static atomic_int known; /* 0: not asked yet; 1: no; 2: yes */

	if (atomic_load_explicit(&known, memory_order_relaxed) == 0)
		atomic_store_explicit(&known, have() ? 2 : 1, memory_order_relaxed);
	return atomic_load_explicit(&known, memory_order_relaxed) == 2;
}

void sha256_add_fast(struct sha256 *s, const void *data, size_t n)
{
	const uint8_t *p = data;
	size_t part = s->bytes % 64, whole;

	if (!fast()) {
		sha256_add(s, data, n);
		return;
	}
	if (part > 0) {
		part = 64 - part < n ? 64 - part : n;
		sha256_add(s, p, part);
		p += part;
		n -= part;
	}
	whole = n / 64;
	hash_blocks(s->h, p, whole);
	s->bytes += 64 * whole;
	sha256_add(s, p + 64 * whole, n % 64);
}
