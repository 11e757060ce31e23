/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack output: a growing buffer with a maximum, and counts that are patched when a container
 * ends.
 */
#include "protocol/codec.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/frame.h"

#define FIRST_CAPACITY 256u

void mp_buf_init(struct mp_buf *b, size_t max)
{
	memset(b, 0, sizeof(*b));
	b->max = max;
}

void mp_buf_free(struct mp_buf *b)
{
	free(b->data);
	mp_buf_init(b, b->max);
}

void mp_buf_reset(struct mp_buf *b)
{
	b->len = 0;
	b->depth = 0;
	b->failed = false;
}

/* Make room for n bytes; their place, or NULL with b failed. */
static uint8_t *reserve(struct mp_buf *b, size_t n)
{
	size_t max = b->max ? b->max : MP_BUF_DEFAULT_MAX;
	size_t cap = b->cap ? b->cap : FIRST_CAPACITY;
	uint8_t *grown;

	if (b->failed)
		return NULL;
	if (b->len > max || n > max - b->len)
		goto fail;
	if (b->data && n <= b->cap - b->len)
		return b->data + b->len;
	while (cap - b->len < n)
		cap *= 2;
	if (cap > max)
		cap = max;
	grown = realloc(b->data, cap ? cap : 1);
	if (!grown)
		goto fail;
	b->data = grown;
	b->cap = cap;
	return b->data + b->len;
fail:
	b->failed = true;
	return NULL;
}

static void append(struct mp_buf *b, const void *p, size_t n)
{
	uint8_t *to = reserve(b, n);

	if (to && n > 0) {
		memcpy(to, p, n);
		b->len += n;
	}
}

static void store(uint8_t *to, uint64_t v, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		to[i] = (uint8_t)(v >> (8 * (width - 1 - i)));
}

/* A type byte and a big-endian number of width bytes. */
static void put_head(struct mp_buf *b, uint8_t type, uint64_t v, unsigned width)
{
	uint8_t head[9] = {type};

	store(head + 1, v, width);
	append(b, head, 1 + width);
}

/* An element of an array counts itself; in a map the key counted. */
static void count_element(struct mp_buf *b)
{
	if (b->depth > 0 && !b->open[b->depth - 1].map)
		b->open[b->depth - 1].count++;
}

static void container_begin(struct mp_buf *b, bool map)
{
	if (b->failed)
		return;
	if (b->depth == MP_BUF_NEST) {
		b->failed = true;
		return;
	}
	count_element(b);
	b->open[b->depth].at = b->len;
	b->open[b->depth].count = 0;
	b->open[b->depth].map = map;
	b->depth++;
	put_head(b, map ? 0xde : 0xdc, 0, 2);
}

static void container_end(struct mp_buf *b, bool map)
{
	if (b->failed)
		return;
	if (b->depth == 0 || b->open[b->depth - 1].map != map ||
	    b->open[b->depth - 1].count > UINT16_MAX) {
		b->failed = true;
		return;
	}
	b->depth--;
	store(b->data + b->open[b->depth].at + 1, b->open[b->depth].count, 2);
}

void mp_map_begin(struct mp_buf *b)
{
	container_begin(b, true);
}

void mp_map_end(struct mp_buf *b)
{
	container_end(b, true);
}

void mp_array_begin(struct mp_buf *b)
{
	container_begin(b, false);
}

void mp_array_end(struct mp_buf *b)
{
	container_end(b, false);
}

static void put_str(struct mp_buf *b, const char *s, size_t n)
{
	if (n < 32)
		put_head(b, (uint8_t)(0xa0 | n), 0, 0);
	else if (n <= UINT8_MAX)
		put_head(b, 0xd9, n, 1);
	else if (n <= UINT16_MAX)
		put_head(b, 0xda, n, 2);
	else if (n <= UINT32_MAX)
		put_head(b, 0xdb, n, 4);
	else
		b->failed = true;
	append(b, s, n);
}

static void put_bin(struct mp_buf *b, const void *p, size_t n)
{
	if (n <= UINT8_MAX)
		put_head(b, 0xc4, n, 1);
	else if (n <= UINT16_MAX)
		put_head(b, 0xc5, n, 2);
	else if (n <= UINT32_MAX)
		put_head(b, 0xc6, n, 4);
	else
		b->failed = true;
	append(b, p, n);
}

void mp_key(struct mp_buf *b, const char *key)
{
	if (b->depth == 0 || !b->open[b->depth - 1].map) {
		b->failed = true;
		return;
	}
	b->open[b->depth - 1].count++;
	put_str(b, key, strlen(key));
}

void mp_put_nil(struct mp_buf *b)
{
	count_element(b);
	put_head(b, 0xc0, 0, 0);
}

void mp_put_bool(struct mp_buf *b, bool v)
{
	count_element(b);
	put_head(b, v ? 0xc3 : 0xc2, 0, 0);
}

void mp_put_uint(struct mp_buf *b, uint64_t v)
{
	count_element(b);
	if (v < 0x80)
		put_head(b, (uint8_t)v, 0, 0);
	else if (v <= UINT8_MAX)
		put_head(b, 0xcc, v, 1);
	else if (v <= UINT16_MAX)
		put_head(b, 0xcd, v, 2);
	else if (v <= UINT32_MAX)
		put_head(b, 0xce, v, 4);
	else
		put_head(b, 0xcf, v, 8);
}

static bool is_utf8(const char *s, size_t n)
{
	while (n > 0) {
		size_t c = hutch_utf8_char(s, n);

		if (c == 0)
			return false;
		s += c;
		n -= c;
	}
	return true;
}

void mp_put_strn(struct mp_buf *b, const char *s, size_t n)
{
	count_element(b);
	if (is_utf8(s, n))
		put_str(b, s, n);
	else
		put_bin(b, s, n);
}

void mp_put_str(struct mp_buf *b, const char *s)
{
	if (s)
		mp_put_strn(b, s, strlen(s));
	else
		mp_put_nil(b);
}

void mp_put_bin(struct mp_buf *b, const void *p, size_t n)
{
	count_element(b);
	put_bin(b, p, n);
}

void mp_put_raw(struct mp_buf *b, const void *p, size_t n)
{
	count_element(b);
	append(b, p, n);
}

void mp_kv_bool(struct mp_buf *b, const char *key, bool v)
{
	mp_key(b, key);
	mp_put_bool(b, v);
}

void mp_kv_uint(struct mp_buf *b, const char *key, uint64_t v)
{
	mp_key(b, key);
	mp_put_uint(b, v);
}

void mp_kv_str(struct mp_buf *b, const char *key, const char *s)
{
	mp_key(b, key);
	mp_put_str(b, s);
}

void mp_kv_uint_unless(struct mp_buf *b, const char *key, uint64_t v, uint64_t dflt)
{
	if (v != dflt)
		mp_kv_uint(b, key, v);
}

void mp_kv_true(struct mp_buf *b, const char *key, bool v)
{
	if (v)
		mp_kv_bool(b, key, true);
}

void mp_kv_text(struct mp_buf *b, const char *key, const char *s)
{
	if (s && s[0])
		mp_kv_str(b, key, s);
}

size_t mp_frame_begin(struct mp_buf *b)
{
	static const uint8_t header[HUTCH_FRAME_HEADER];
	size_t start = b->len;

	append(b, header, sizeof(header));
	return start;
}

int mp_frame_finish(struct mp_buf *b, size_t start, unsigned type, unsigned flags)
{
	bool good = !b->failed && b->depth == 0 && b->len - start >= HUTCH_FRAME_HEADER;

	if (good && b->len - start - HUTCH_FRAME_HEADER <= frame_max(type)) {
		struct frame f = {
			.type = (enum frame_type)type,
			.flags = (uint8_t)flags,
			.length = (uint32_t)(b->len - start - HUTCH_FRAME_HEADER),
		};

		frame_encode(b->data + start, &f);
		return 0;
	}
	b->len = start;
	b->depth = 0;
	b->failed = true;
	return -1;
}
