/* SPDX-License-Identifier: Apache-2.0 */
/* struct hutch_value: made from a received map, and encoded into parameters. */
#include <stdlib.h>
#include <string.h>

#include "tools/client/client.h"

#define ENCODE_DEPTH 6 /* of MP_BUF_NEST, as parameters are nested in a call */

/* ---- Made by the caller ---- */

struct hutch_value hutch_text(const char *text)
{
	struct hutch_value v = {.type = HUTCH_NIL};

	if (text != NULL) {
		v.type = HUTCH_TEXT;
		v.as.text.data = text;
		v.as.text.len = strlen(text);
	}
	return v;
}

struct hutch_value hutch_uint(uint64_t n)
{
	return (struct hutch_value){.type = HUTCH_UINT, .as.u = n};
}

struct hutch_value hutch_bool(bool b)
{
	return (struct hutch_value){.type = HUTCH_BOOL, .as.boolean = b};
}

struct hutch_value hutch_map(const struct hutch_pair *pairs, size_t count)
{
	return (struct hutch_value){.type = HUTCH_MAP, .as.map = {pairs, count}};
}

struct hutch_value hutch_array(const struct hutch_value *items, size_t count)
{
	return (struct hutch_value){.type = HUTCH_ARRAY, .as.array = {items, count}};
}

static int encode_array(struct mp_buf *out, const struct hutch_value *v, unsigned depth)
{
	mp_array_begin(out);
	for (size_t i = 0; i < v->as.array.count; i++)
		if (value_encode(out, &v->as.array.items[i], depth + 1) < 0)
			return -1;
	mp_array_end(out);
	return 0;
}

static int encode_map(struct mp_buf *out, const struct hutch_value *v, unsigned depth)
{
	mp_map_begin(out);
	for (size_t i = 0; i < v->as.map.count; i++) {
		mp_key(out, v->as.map.pairs[i].key);
		if (value_encode(out, &v->as.map.pairs[i].value, depth + 1) < 0)
			return -1;
	}
	mp_map_end(out);
	return 0;
}

int value_encode(struct mp_buf *out, const struct hutch_value *v, unsigned depth)
{
	switch (v->type) {
	case HUTCH_BOOL:
		mp_put_bool(out, v->as.boolean);
		return 0;
	case HUTCH_UINT:
		mp_put_uint(out, v->as.u);
		return 0;
	case HUTCH_TEXT:
		mp_put_strn(out, v->as.text.data, v->as.text.len);
		return 0;
	case HUTCH_ARRAY:
		return depth < ENCODE_DEPTH ? encode_array(out, v, depth) : -1;
	case HUTCH_MAP:
		return depth < ENCODE_DEPTH ? encode_map(out, v, depth) : -1;
	case HUTCH_NIL:
	case HUTCH_INT:
	case HUTCH_REAL:
		break;
	}
	mp_put_nil(out); /* no parameter of the protocol is negative or a fraction */
	return 0;
}

/* ---- Received ---- */

static int convert(msgpack_zone *zone, const msgpack_object *o, struct hutch_value *v);

static int convert_text(msgpack_zone *zone, const char *p, size_t len, struct hutch_value *v)
{
	char *copy = msgpack_zone_malloc(zone, len + 1);

	if (copy == NULL)
		return -1;
	if (len > 0)
		memcpy(copy, p, len);
	copy[len] = '\0';
	v->type = HUTCH_TEXT;
	v->as.text.data = copy;
	v->as.text.len = len;
	return 0;
}

static int convert_array(msgpack_zone *zone, const msgpack_object_array *a, struct hutch_value *v)
{
	struct hutch_value *items = msgpack_zone_malloc(zone, (a->size + 1) * sizeof(*items));

	if (items == NULL)
		return -1;
	for (uint32_t i = 0; i < a->size; i++)
		if (convert(zone, &a->ptr[i], &items[i]) < 0)
			return -1;
	*v = hutch_array(items, a->size);
	return 0;
}

static int convert_map(msgpack_zone *zone, const msgpack_object_map *m, struct hutch_value *v)
{
	struct hutch_pair *pairs = msgpack_zone_malloc(zone, (m->size + 1) * sizeof(*pairs));
	struct hutch_value key;

	if (pairs == NULL)
		return -1;
	for (uint32_t i = 0; i < m->size; i++) {
		if (convert(zone, &m->ptr[i].key, &key) < 0 || key.type != HUTCH_TEXT ||
		    convert(zone, &m->ptr[i].val, &pairs[i].value) < 0)
			return -1;
		pairs[i].key = key.as.text.data;
	}
	*v = hutch_map(pairs, m->size);
	return 0;
}

/* The depth is bounded by codec_check. */
static int convert(msgpack_zone *zone, const msgpack_object *o, struct hutch_value *v)
{
	*v = (struct hutch_value){.type = HUTCH_NIL};
	switch (o->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		*v = hutch_bool(o->via.boolean);
		return 0;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		*v = hutch_uint(o->via.u64);
		return 0;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		v->type = HUTCH_INT;
		v->as.i = o->via.i64;
		return 0;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		v->type = HUTCH_REAL;
		v->as.real = o->via.f64;
		return 0;
	case MSGPACK_OBJECT_STR:
		return convert_text(zone, o->via.str.ptr, o->via.str.size, v);
	case MSGPACK_OBJECT_BIN:
		return convert_text(zone, o->via.bin.ptr, o->via.bin.size, v);
	case MSGPACK_OBJECT_ARRAY:
		return convert_array(zone, &o->via.array, v);
	case MSGPACK_OBJECT_MAP:
		return convert_map(zone, &o->via.map, v);
	case MSGPACK_OBJECT_NIL:
	case MSGPACK_OBJECT_EXT:
		break;
	}
	return 0;
}

struct hutch_doc *doc_parse(const void *payload, size_t len, struct hutch_error *err)
{
	struct hutch_doc *doc = calloc(1, sizeof(*doc));

	if (doc == NULL)
		goto memory;
	if (mp_doc_parse(&doc->mp, payload, len, err) < 0)
		goto fail;
	doc->payload = malloc(len);
	if (doc->payload == NULL || convert(&doc->mp.zone, &doc->mp.root, &doc->root) < 0)
		goto memory;
	memcpy(doc->payload, payload, len);
	doc->len = len;
	return doc;
memory:
	hutch_error_set(err, HUTCH_E_IO, 0, "no memory to decode it");
fail:
	hutch_doc_free(doc);
	return NULL;
}

void hutch_doc_free(struct hutch_doc *doc)
{
	if (doc == NULL)
		return;
	mp_doc_free(&doc->mp);
	free(doc->payload);
	free(doc);
}

const struct hutch_value *hutch_doc_root(const struct hutch_doc *doc)
{
	return &doc->root;
}

const struct hutch_value *hutch_get(const struct hutch_value *map, const char *key)
{
	if (map == NULL || map->type != HUTCH_MAP)
		return NULL;
	for (size_t i = 0; i < map->as.map.count; i++) {
		const struct hutch_pair *p = &map->as.map.pairs[i];

		if (strcmp(p->key, key) == 0)
			return p->value.type == HUTCH_NIL ? NULL : &p->value;
	}
	return NULL;
}

const char *hutch_get_text(const struct hutch_value *map, const char *key, const char *dflt)
{
	const struct hutch_value *v = hutch_get(map, key);

	return v != NULL && v->type == HUTCH_TEXT ? v->as.text.data : dflt;
}

uint64_t hutch_get_uint(const struct hutch_value *map, const char *key, uint64_t dflt)
{
	const struct hutch_value *v = hutch_get(map, key);

	return v != NULL && v->type == HUTCH_UINT ? v->as.u : dflt;
}

bool hutch_get_bool(const struct hutch_value *map, const char *key, bool dflt)
{
	const struct hutch_value *v = hutch_get(map, key);

	return v != NULL && v->type == HUTCH_BOOL ? v->as.boolean : dflt;
}
