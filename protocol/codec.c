/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate for MessagePack from outside, and the decoded document.
 *
 * How it works: the check walks the bytes once with an explicit stack of open containers. The keys
 * of all open maps lie on one second stack; when a map closes, its keys are sorted (in place,
 * heapsort: no worst case beyond n log n, no recursion) and equal neighbours refused. The walk also
 * counts values, so that the decoder knows the size of everything before it starts: one chunk is
 * allocated, and only laying out the tree is left to do, which is why it is done here and not by
 * msgpack-c's resumable unpacker (the fuzzer compares the two).
 *
 * A string in the document gets its NUL in place when it is asked for: the byte behind a string is
 * the header of the next value, which nobody needs after parsing, or the spare byte at the end.
 */
#include "protocol/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INLINE_KEYS 64u
#define NIL	    0xc0

/* build_value fills a map's pairs through the array view of the union. */
static_assert(sizeof(msgpack_object_kv) == 2 * sizeof(msgpack_object) &&
		      offsetof(msgpack_object_kv, val) == sizeof(msgpack_object) &&
		      offsetof(msgpack_object_map, ptr) == offsetof(msgpack_object_array, ptr),
	      "pairs are two objects in a row");
static_assert(offsetof(msgpack_object_bin, ptr) == offsetof(msgpack_object_str, ptr),
	      "str and bin lie alike");

enum item_kind { ITEM_SCALAR, ITEM_STR, ITEM_BIN, ITEM_ARRAY, ITEM_MAP, ITEM_REFUSED };

/* The head of one encoded value. */
struct item {
	enum item_kind kind;
	size_t head;   /* bytes of it */
	uint32_t size; /* scalar, str, bin: bytes behind the head; array: elements; map: pairs */
};

struct key_ref {
	uint32_t at, len;
};

struct level {
	uint32_t left; /* values to come; a map has a key first when it is even */
	bool map;
	uint32_t first_key;
};

struct walk {
	const uint8_t *buf;
	size_t len, pos;
	uint32_t values;
	unsigned depth;
	struct level stack[HUTCH_MAX_DEPTH];
	struct key_ref *keys; /* inline_keys until more are open */
	uint32_t nkeys, cap_keys;
	struct key_ref inline_keys[INLINE_KEYS];
	struct hutch_error *err;
};

/*
 * What follows the first bytes 0xc0 to 0xdf: the kind, the width of the size field, the size itself
 * if fixed.
 */
struct form {
	uint8_t kind, width, size;
};

static const struct form forms[32] = {
	{ITEM_SCALAR, 0, 0},  {ITEM_REFUSED, 0, 0}, {ITEM_SCALAR, 0, 0},  {ITEM_SCALAR, 0, 0},
	{ITEM_BIN, 1, 0},     {ITEM_BIN, 2, 0},	    {ITEM_BIN, 4, 0},	  {ITEM_REFUSED, 0, 0},
	{ITEM_REFUSED, 0, 0}, {ITEM_REFUSED, 0, 0}, {ITEM_SCALAR, 0, 4},  {ITEM_SCALAR, 0, 8},
	{ITEM_SCALAR, 0, 1},  {ITEM_SCALAR, 0, 2},  {ITEM_SCALAR, 0, 4},  {ITEM_SCALAR, 0, 8},
	{ITEM_SCALAR, 0, 1},  {ITEM_SCALAR, 0, 2},  {ITEM_SCALAR, 0, 4},  {ITEM_SCALAR, 0, 8},
	{ITEM_REFUSED, 0, 0}, {ITEM_REFUSED, 0, 0}, {ITEM_REFUSED, 0, 0}, {ITEM_REFUSED, 0, 0},
	{ITEM_REFUSED, 0, 0}, {ITEM_STR, 1, 0},	    {ITEM_STR, 2, 0},	  {ITEM_STR, 4, 0},
	{ITEM_ARRAY, 2, 0},   {ITEM_ARRAY, 4, 0},   {ITEM_MAP, 2, 0},	  {ITEM_MAP, 4, 0},
};

/* Read the head at p of left bytes; false when it is cut off. */
static bool read_item(const uint8_t *p, size_t left, struct item *it)
{
	const struct form *form;

	if (left == 0)
		return false;
	it->head = 1;
	it->size = 0;
	if (p[0] < 0x80 || p[0] >= 0xe0) {
		it->kind = ITEM_SCALAR;
	} else if (p[0] < 0xa0) {
		it->kind = p[0] < 0x90 ? ITEM_MAP : ITEM_ARRAY;
		it->size = p[0] & 0x0f;
	} else if (p[0] < 0xc0) {
		it->kind = ITEM_STR;
		it->size = p[0] & 0x1f;
	} else {
		form = &forms[p[0] - 0xc0];
		it->kind = (enum item_kind)form->kind;
		it->size = form->size;
		it->head += form->width;
		if (left < it->head)
			return false;
		for (unsigned i = 1; i <= form->width; i++)
			it->size = it->size << 8 | p[i];
	}
	return true;
}

static int refuse(struct walk *w, const char *why)
{
	return hutch_error_set(w->err, HUTCH_E_PROTOCOL, 0, "payload: byte %zu of %zu: %s", w->pos,
			       w->len, why);
}

static int compare_keys(const struct walk *w, struct key_ref a, struct key_ref b)
{
	if (a.len != b.len)
		return a.len < b.len ? -1 : 1;
	return memcmp(w->buf + a.at, w->buf + b.at, a.len);
}

/* Heapsort's step: move k[root] down until no child is greater. */
static void sift_down(const struct walk *w, struct key_ref *k, uint32_t root, uint32_t n)
{
	struct key_ref moved = k[root];
	uint32_t child;

	for (; (child = 2 * root + 1) < n; root = child) {
		if (child + 1 < n && compare_keys(w, k[child], k[child + 1]) < 0)
			child++;
		if (compare_keys(w, moved, k[child]) >= 0)
			break;
		k[root] = k[child];
	}
	k[root] = moved;
}

static void sort_keys(const struct walk *w, struct key_ref *k, uint32_t n)
{
	struct key_ref last;

	for (uint32_t i = n / 2; i-- > 0;)
		sift_down(w, k, i, n);
	for (uint32_t end = n; end-- > 1;) {
		last = k[end];
		k[end] = k[0];
		k[0] = last;
		sift_down(w, k, 0, end);
	}
}

/* The innermost container is complete. */
static int close_level(struct walk *w)
{
	const struct level *lv = &w->stack[w->depth - 1];
	struct key_ref *k = w->keys + lv->first_key;
	uint32_t n = w->nkeys - lv->first_key;

	if (lv->map && n > 1) {
		sort_keys(w, k, n);
		for (uint32_t i = 1; i < n; i++)
			if (compare_keys(w, k[i - 1], k[i]) == 0)
				return hutch_error_set(w->err, HUTCH_E_PROTOCOL, 0,
						       "payload: key \"%.*s\" is there twice",
						       k[i].len < 64 ? (int)k[i].len : 64,
						       (const char *)w->buf + k[i].at);
	}
	w->nkeys = lv->first_key;
	w->depth--;
	return 0;
}

static int grow_keys(struct walk *w)
{
	uint32_t cap = w->cap_keys * 2;
	struct key_ref *old = w->keys == w->inline_keys ? NULL : w->keys;
	struct key_ref *grown = realloc(old, cap * sizeof(*grown));

	if (!grown)
		return hutch_error_set(w->err, HUTCH_E_INTERNAL, ENOMEM,
				       "payload: no memory to check the keys of a map");
	if (!old)
		memcpy(grown, w->inline_keys, sizeof(w->inline_keys));
	w->keys = grown;
	w->cap_keys = cap;
	return 0;
}

static int push_key(struct walk *w, const struct item *it)
{
	if (it->kind != ITEM_STR)
		return refuse(w, "a map's key is not a str");
	if (w->nkeys == w->cap_keys && grow_keys(w) < 0)
		return -1;
	w->keys[w->nkeys++] = (struct key_ref){(uint32_t)(w->pos + it->head), it->size};
	return 0;
}

static int open_level(struct walk *w, const struct item *it)
{
	uint64_t values = it->kind == ITEM_MAP ? 2 * (uint64_t)it->size : it->size;

	if (w->depth == HUTCH_MAX_DEPTH)
		return refuse(w, "nested more than 16 levels deep");
	if (values > w->len - w->pos - it->head)
		return refuse(w, "a count is larger than the bytes that are left");
	if (values > HUTCH_MAX_VALUES - w->values)
		return refuse(w, "more than 65536 values");
	w->values += (uint32_t)values;
	w->stack[w->depth++] = (struct level){
		.left = (uint32_t)values,
		.map = it->kind == ITEM_MAP,
		.first_key = w->nkeys,
	};
	w->pos += it->head;
	return 0;
}

/* One value, or the end of a container. */
static int step(struct walk *w)
{
	struct level *lv = &w->stack[w->depth - 1];
	bool key = lv->map && lv->left % 2 == 0;
	struct item it;

	if (lv->left == 0)
		return close_level(w);
	if (!read_item(w->buf + w->pos, w->len - w->pos, &it))
		return refuse(w, "the bytes end inside a value");
	lv->left--;
	if (key && push_key(w, &it) < 0)
		return -1;
	if (it.kind == ITEM_REFUSED)
		return refuse(w, "an ext type or the unused type 0xc1");
	if (it.kind == ITEM_ARRAY || it.kind == ITEM_MAP)
		return open_level(w, &it);
	if (it.size > w->len - w->pos - it.head)
		return refuse(w, "the bytes end inside a value");
	w->pos += it.head + it.size;
	return 0;
}

static int walk(struct walk *w)
{
	struct item it;

	if (w->len > HUTCH_MAX_CALL)
		return hutch_error_set(w->err, HUTCH_E_PROTOCOL, 0,
				       "payload: %zu bytes; at most %u are allowed", w->len,
				       HUTCH_MAX_CALL);
	if (!read_item(w->buf, w->len, &it) || it.kind != ITEM_MAP)
		return refuse(w, "not a MessagePack map");
	if (open_level(w, &it) < 0)
		return -1;
	while (w->depth > 0)
		if (step(w) < 0)
			return -1;
	if (w->pos != w->len)
		return refuse(w, "bytes behind the map");
	return 0;
}

/* codec_check that also tells how many values there are. */
static int check(const void *buf, size_t len, uint32_t *values, struct hutch_error *err)
{
	struct walk w;
	int rc;

	w.buf = buf;
	w.len = len;
	w.pos = 0;
	w.values = 0;
	w.depth = 0;
	w.keys = w.inline_keys;
	w.nkeys = 0;
	w.cap_keys = INLINE_KEYS;
	w.err = err;
	rc = walk(&w);
	if (w.keys != w.inline_keys)
		free(w.keys);
	*values = w.values;
	return rc;
}

int codec_check(const void *buf, size_t len, struct hutch_error *err)
{
	uint32_t values;

	return check(buf, len, &values, err);
}

/* The position behind the value at pos, in checked bytes. */
static size_t skip_value(const uint8_t *buf, size_t len, size_t pos)
{
	struct item it;
	uint64_t left = 1;

	while (left > 0 && read_item(buf + pos, len - pos, &it)) {
		left--;
		pos += it.head;
		if (it.kind == ITEM_ARRAY)
			left += it.size;
		else if (it.kind == ITEM_MAP)
			left += 2 * (uint64_t)it.size;
		else
			pos += it.size;
	}
	return pos;
}

/* Where the value of key lies in the outer map of checked bytes; false when there is none. */
static bool find_raw(const uint8_t *buf, size_t len, const char *key, size_t *at, size_t *end)
{
	struct item map, it;
	size_t pos, klen = strlen(key);

	if (!read_item(buf, len, &map))
		return false;
	pos = map.head;
	for (uint32_t i = 0; i < map.size && read_item(buf + pos, len - pos, &it); i++) {
		const uint8_t *k = buf + pos + it.head;

		*at = pos + it.head + it.size;
		*end = skip_value(buf, len, *at);
		if (it.size == klen && memcmp(k, key, klen) == 0)
			return true;
		pos = *end;
	}
	return false;
}

static uint64_t read_number(const uint8_t *p, uint32_t n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | *p++;
	return v;
}

static void set_int(msgpack_object *o, int64_t v)
{
	o->type = v < 0 ? MSGPACK_OBJECT_NEGATIVE_INTEGER : MSGPACK_OBJECT_POSITIVE_INTEGER;
	o->via.i64 = v;
}

static void set_float(msgpack_object *o, uint64_t bits, uint32_t size)
{
	uint32_t bits32 = (uint32_t)bits;
	float single;

	if (size == 4) {
		o->type = MSGPACK_OBJECT_FLOAT32;
		memcpy(&single, &bits32, sizeof(single));
		o->via.f64 = single;
	} else {
		o->type = MSGPACK_OBJECT_FLOAT64;
		memcpy(&o->via.f64, &bits, sizeof(bits));
	}
}

static void build_scalar(msgpack_object *o, const uint8_t *p, uint32_t size)
{
	uint64_t v = read_number(p + 1, size);

	if (p[0] < 0x80 || p[0] >= 0xe0) {
		set_int(o, (int8_t)p[0]);
	} else if (p[0] == NIL) {
		o->type = MSGPACK_OBJECT_NIL;
	} else if (p[0] < 0xca) { /* 0xc2, 0xc3 */
		o->type = MSGPACK_OBJECT_BOOLEAN;
		o->via.boolean = p[0] & 1;
	} else if (p[0] < 0xcc) {
		set_float(o, v, size);
	} else if (p[0] < 0xd0) {
		o->type = MSGPACK_OBJECT_POSITIVE_INTEGER;
		o->via.u64 = v;
	} else { /* 0xd0 to 0xd3: shift the sign to its place and back */
		const unsigned spare = (64 - 8 * (unsigned)size) & 63; /* size is 1, 2, 4 or 8 */

		set_int(o, (int64_t)(v << spare) >> spare);
	}
}

/* Lay out the checked value at pos; the position behind it, or 0 when there is no memory. */
static size_t build_value(struct mp_doc *doc, size_t pos, msgpack_object *o)
{
	const uint8_t *p = (const uint8_t *)doc->bytes + pos;
	uint32_t values;
	msgpack_object *v;
	struct item it;

	read_item(p, doc->len - pos, &it);
	pos += it.head;
	if (it.kind == ITEM_SCALAR) {
		build_scalar(o, p, it.size);
		return pos + it.size;
	}
	if (it.kind == ITEM_STR || it.kind == ITEM_BIN) {
		o->type = it.kind == ITEM_STR ? MSGPACK_OBJECT_STR : MSGPACK_OBJECT_BIN;
		o->via.str.ptr = doc->bytes + pos;
		o->via.str.size = it.size;
		return pos + it.size;
	}
	values = it.kind == ITEM_MAP ? 2 * it.size : it.size;
	v = msgpack_zone_malloc(&doc->zone, values * sizeof(*v));
	if (!v)
		return 0;
	o->type = it.kind == ITEM_MAP ? MSGPACK_OBJECT_MAP : MSGPACK_OBJECT_ARRAY;
	o->via.array.size = it.size;
	o->via.array.ptr = v; /* a map's pairs are two objects each, and lie the same */
	for (uint32_t i = 0; i < values && pos; i++)
		pos = build_value(doc, pos, &v[i]);
	return pos;
}

/*
 * Decode len checked bytes, with nil in the place of those from cut to cut_end (cut == len: all of
 * them).
 */
static int build(struct mp_doc *doc, const uint8_t *buf, size_t len, size_t cut, size_t cut_end,
		 uint32_t values, struct hutch_error *err)
{
	size_t tail = cut < len ? len - cut_end : 0, total = cut < len ? cut + 1 + tail : len;
	size_t count = values < total ? values : total;
	/*
	 * The copy, the tree, a pointer per value for vectors, and the words of exec.start's shell
	 * form.
	 */
	size_t chunk = total + 1 + count * (sizeof(msgpack_object) + sizeof(char *)) + 128;

	if (!msgpack_zone_init(&doc->zone, chunk))
		goto no_memory;
	doc->live = true;
	doc->bytes = msgpack_zone_malloc_no_align(&doc->zone, total + 1);
	if (!doc->bytes)
		goto no_memory;
	doc->len = total;
	memcpy(doc->bytes, buf, cut);
	if (cut < len) {
		doc->bytes[cut] = (char)NIL;
		memcpy(doc->bytes + cut + 1, buf + cut_end, tail);
	}
	doc->bytes[total] = '\0';
	if (build_value(doc, 0, &doc->root))
		return 0;
no_memory:
	mp_doc_free(doc);
	return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM,
			       "payload: no memory to decode %zu bytes", total);
}

int mp_doc_parse(struct mp_doc *doc, const void *buf, size_t len, struct hutch_error *err)
{
	uint32_t values;

	memset(doc, 0, sizeof(*doc));
	hutch_error_clear(err);
	if (check(buf, len, &values, err) < 0)
		return -1;
	return build(doc, buf, len, len, len, values, err);
}

int mp_doc_parse_except(struct mp_doc *doc, const void *buf, size_t len, const char *key,
			const uint8_t **raw, size_t *raw_len, struct hutch_error *err)
{
	const uint8_t *bytes = buf;
	size_t at, end;
	uint32_t values;

	memset(doc, 0, sizeof(*doc));
	hutch_error_clear(err);
	*raw = NULL;
	*raw_len = 0;
	if (check(buf, len, &values, err) < 0)
		return -1;
	if (!find_raw(bytes, len, key, &at, &end) || bytes[at] == NIL)
		return build(doc, bytes, len, len, len, values, err);
	if (build(doc, bytes, len, at, end, values, err) < 0)
		return -1;
	*raw = bytes + at;
	*raw_len = end - at;
	return 0;
}

void mp_doc_free(struct mp_doc *doc)
{
	if (doc->live)
		msgpack_zone_destroy(&doc->zone);
	memset(doc, 0, sizeof(*doc));
}
