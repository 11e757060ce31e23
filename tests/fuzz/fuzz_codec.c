/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate against a second opinion: a plain recursive reader of wire.md section 1 must agree with
 * codec_check on every input; what is accepted must decode to the tree that msgpack-c makes of it, and
 * encode to bytes that decode alike.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct in {
	const uint8_t *p;
	size_t left;
	unsigned values;
};

static bool take(struct in *in, size_t n, const uint8_t **at)
{
	if (n > in->left)
		return false;
	*at = in->p;
	in->p += n;
	in->left -= n;
	return true;
}

static bool be(struct in *in, unsigned width, size_t *v)
{
	const uint8_t *at;

	if (!take(in, width, &at))
		return false;
	*v = 0;
	while (width-- > 0)
		*v = *v << 8 | *at++;
	return true;
}

static bool second_opinion(struct in *in, unsigned depth, bool key, const uint8_t **str, size_t *n);

struct seen_key {
	const uint8_t *p;
	size_t n;
};

static bool second_map(struct in *in, size_t count, unsigned depth)
{
	struct seen_key *seen = malloc((count + 1) * sizeof(*seen));
	const uint8_t *ignored;
	size_t ignored_n;
	bool good = seen != NULL;

	for (size_t i = 0; good && i < count; i++) {
		good = second_opinion(in, depth, true, &seen[i].p, &seen[i].n);
		for (size_t j = 0; good && j < i; j++)
			good = seen[i].n != seen[j].n ||
			       (seen[i].n > 0 && memcmp(seen[i].p, seen[j].p, seen[i].n) != 0);
		good = good && second_opinion(in, depth, false, &ignored, &ignored_n);
	}
	free(seen);
	return good;
}

static bool second_container(struct in *in, size_t count, bool map, unsigned depth)
{
	const uint8_t *ignored;
	size_t n, values = map ? 2 * count : count;

	if (depth > 16 || values > in->left || in->values + values > 65536)
		return false;
	in->values += (unsigned)values;
	if (map)
		return second_map(in, count, depth);
	for (size_t i = 0; i < count; i++)
		if (!second_opinion(in, depth, false, &ignored, &n))
			return false;
	return true;
}

static bool second_opinion(struct in *in, unsigned depth, bool key, const uint8_t **str, size_t *n)
{
	const uint8_t *at;
	size_t size = 0;
	uint8_t c;

	if (!take(in, 1, &at))
		return false;
	c = *at;
	if (c >= 0xd9 && c <= 0xdb && be(in, 1u << (c - 0xd9), n))
		return take(in, *n, str);
	if ((c & 0xe0) == 0xa0) {
		*n = c & 0x1f;
		return take(in, *n, str);
	}
	if (key)
		return false;
	if (c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3)
		return true;
	if (c >= 0xc4 && c <= 0xc6)
		return be(in, 1u << (c - 0xc4), &size) && take(in, size, &at);
	if (c == 0xca || c == 0xcb)
		return take(in, c == 0xca ? 4 : 8, &at);
	if (c >= 0xcc && c <= 0xd3)
		return take(in, 1u << ((c - 0xcc) & 3), &at);
	if (c <= 0x9f)
		return second_container(in, c & 0x0f, c < 0x90, depth + 1);
	if (c >= 0xdc && c <= 0xdf)
		return be(in, c & 1 ? 4 : 2, &size) &&
		       second_container(in, size, c >= 0xde, depth + 1);
	return false;
}

static bool second_check(const uint8_t *data, size_t size)
{
	struct in in = {data, size, 0};
	const uint8_t *str;
	size_t n;

	if (size == 0 || !((data[0] & 0xf0) == 0x80 || data[0] == 0xde || data[0] == 0xdf))
		return false;
	return second_opinion(&in, 0, false, &str, &n) && in.left == 0;
}

static void put(struct mp_buf *b, const msgpack_object *o);

static void put_number(struct mp_buf *b, uint8_t type, uint64_t v)
{
	uint8_t raw[9] = {type};

	for (int i = 0; i < 8; i++)
		raw[1 + i] = (uint8_t)(v >> (56 - 8 * i));
	mp_put_raw(b, raw, sizeof(raw));
}

static void put_map(struct mp_buf *b, const msgpack_object *o)
{
	mp_map_begin(b);
	for (uint32_t i = 0; i < o->via.map.size; i++) {
		const msgpack_object_kv *kv = &o->via.map.ptr[i];
		char *key = malloc(kv->key.via.str.size + 1u);

		if (!key)
			abort();
		memcpy(key, kv->key.via.str.size ? kv->key.via.str.ptr : "", kv->key.via.str.size);
		key[kv->key.via.str.size] = '\0';
		mp_key(b, key); /* a NUL inside cuts it: the second pass sees the same */
		free(key);
		put(b, &kv->val);
	}
	mp_map_end(b);
}

static void put(struct mp_buf *b, const msgpack_object *o)
{
	uint64_t bits;

	switch (o->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		mp_put_bool(b, o->via.boolean);
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		mp_put_uint(b, o->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		put_number(b, 0xd3, (uint64_t)o->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		memcpy(&bits, &o->via.f64, sizeof(bits));
		put_number(b, 0xcb, bits);
		break;
	case MSGPACK_OBJECT_STR:
		mp_put_strn(b, o->via.str.size ? o->via.str.ptr : "", o->via.str.size);
		break;
	case MSGPACK_OBJECT_BIN:
		mp_put_bin(b, o->via.bin.size ? o->via.bin.ptr : "", o->via.bin.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		mp_array_begin(b);
		for (uint32_t i = 0; i < o->via.array.size; i++)
			put(b, &o->via.array.ptr[i]);
		mp_array_end(b);
		break;
	case MSGPACK_OBJECT_MAP:
		put_map(b, o);
		break;
	case MSGPACK_OBJECT_NIL:
		mp_put_nil(b);
		break;
	default:
		abort();
	}
}

/*
 * Encode, decode, encode: the same bytes. Deeper than MP_BUF_NEST or cut keys that meet: no claim.
 */
static void round_trip(const struct mp_doc *doc)
{
	struct mp_buf first, second;
	struct hutch_error err;
	struct mp_doc again;

	mp_buf_init(&first, HUTCH_MAX_CALL);
	mp_buf_init(&second, HUTCH_MAX_CALL);
	put(&first, &doc->root);
	if (!first.failed && mp_doc_parse(&again, first.data, first.len, &err) == 0) {
		put(&second, &again.root);
		if (second.failed || first.len != second.len ||
		    memcmp(first.data, second.data, first.len) != 0)
			abort();
		mp_doc_free(&again);
	}
	mp_buf_free(&first);
	mp_buf_free(&second);
}

static void same_as_msgpack_c(const struct mp_doc *doc, const uint8_t *data, size_t size)
{
	struct mp_buf ours, theirs;
	msgpack_object root;
	msgpack_zone zone;
	size_t off = 0;

	mp_buf_init(&ours, HUTCH_MAX_CALL);
	mp_buf_init(&theirs, HUTCH_MAX_CALL);
	if (!msgpack_zone_init(&zone, 4096) ||
	    msgpack_unpack((const char *)data, size, &off, &zone, &root) != MSGPACK_UNPACK_SUCCESS)
		abort();
	put(&ours, &doc->root);
	put(&theirs, &root);
	if (ours.failed != theirs.failed || ours.len != theirs.len ||
	    (ours.len && memcmp(ours.data, theirs.data, ours.len) != 0))
		abort();
	msgpack_zone_destroy(&zone);
	mp_buf_free(&ours);
	mp_buf_free(&theirs);
}

static void check_except(const uint8_t *data, size_t size)
{
	struct hutch_error err;
	const uint8_t *raw;
	struct mp_doc doc;
	size_t raw_len;

	if (mp_doc_parse_except(&doc, data, size, "k", &raw, &raw_len, &err) < 0)
		abort();
	if (raw && (raw <= data || raw_len == 0 || raw + raw_len > data + size))
		abort();
	mp_doc_free(&doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct hutch_error err = {0};
	bool good = codec_check(data, size, &err) == 0;
	struct mp_doc doc;

	if (!good && err.kind != HUTCH_E_PROTOCOL)
		abort();
	if (size <= 4096 && good != second_check(data, size)) /* it compares keys quadratically */
		abort();
	if ((mp_doc_parse(&doc, data, size, &err) == 0) != good)
		abort();
	if (good) {
		same_as_msgpack_c(&doc, data, size);
		round_trip(&doc);
		check_except(data, size);
	}
	mp_doc_free(&doc);
	return 0;
}
