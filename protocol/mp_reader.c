/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Typed, range-checked values out of a decoded map; the first failure sticks and names its field.
 */
#include "protocol/codec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LABEL_SIZE 96u /* "env[...]": how a field is called in messages */

static int params_map(struct mp_doc *doc, const void *params, size_t len, struct hutch_error *err)
{
	static const uint8_t empty_map = 0x80;

	return params ? mp_doc_parse(doc, params, len, err)
		      : mp_doc_parse(doc, &empty_map, sizeof(empty_map), err);
}

int mp_params_open(struct mp_doc *doc, struct mp_reader *r, const void *params, size_t len,
		   const char *what, struct hutch_error *err)
{
	if (params_map(doc, params, len, err) < 0) {
		hutch_error_prefix(err, "%s", what ? what : "params");
		return -1;
	}
	mp_reader_init(r, doc, &doc->root, what, err);
	return 0;
}

int mp_close(struct mp_reader *r)
{
	mp_doc_free(r->doc);
	return mp_ok(r) ? 0 : -1;
}

void mp_reader_init(struct mp_reader *r, struct mp_doc *doc, const msgpack_object *map,
		    const char *what, struct hutch_error *err)
{
	r->doc = doc;
	r->map = map;
	r->what = what;
	r->err = err;
}

static bool is_text(const msgpack_object *o)
{
	return o->type == MSGPACK_OBJECT_STR || o->type == MSGPACK_OBJECT_BIN;
}

/* msgpack-c leaves the pointer of an empty str or bin wherever it was. */
static const char *text_bytes(const msgpack_object *o)
{
	return o->via.str.size > 0 ? o->via.str.ptr : "";
}

const msgpack_object *mp_find(const struct mp_reader *r, const char *key)
{
	size_t len = strlen(key);

	for (uint32_t i = 0; i < r->map->via.map.size; i++) {
		const msgpack_object_kv *kv = &r->map->via.map.ptr[i];

		if (kv->key.via.str.size == len && memcmp(text_bytes(&kv->key), key, len) == 0)
			return kv->val.type == MSGPACK_OBJECT_NIL ? NULL : &kv->val;
	}
	return NULL;
}

bool mp_ok(const struct mp_reader *r)
{
	return r->err->kind == HUTCH_OK;
}

/* "exec.start: " or "exec.start: pty." or nothing. */
static int print_what(const struct mp_reader *r, char *to, size_t size)
{
	size_t len = r->what ? strlen(r->what) : 0;

	if (len == 0)
		return 0;
	return snprintf(to, size, "%s%s", r->what, r->what[len - 1] == '.' ? "" : ": ");
}

void mp_fail(struct mp_reader *r, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	if (!mp_ok(r))
		return;
	n = print_what(r, text, sizeof(text) / 2);
	if (n < 0 || (size_t)n >= sizeof(text) / 2)
		n = 0;
	va_start(ap, fmt);
	if (vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap) < 0)
		text[n] = '\0';
	va_end(ap);
	hutch_error_set(r->err, HUTCH_E_INVALID, 0, "%s", text);
}

static const char *type_name(const msgpack_object *o)
{
	switch (o->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		return "a boolean";
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		return "an integer";
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		return "a float";
	case MSGPACK_OBJECT_STR:
	case MSGPACK_OBJECT_BIN:
		return "a text";
	case MSGPACK_OBJECT_ARRAY:
		return "an array";
	case MSGPACK_OBJECT_MAP:
		return "a map";
	default:
		return "nil";
	}
}

static void fail_type(struct mp_reader *r, const char *label, const msgpack_object *o,
		      const char *wanted)
{
	mp_fail(r, "%s is %s; it must be %s", label, type_name(o), wanted);
}

void mp_require(struct mp_reader *r, const char *key)
{
	if (mp_ok(r) && !mp_find(r, key))
		mp_fail(r, "%s is missing", key);
}

/* The value of key, or NULL when there is nothing to do: absent, nil, or an error is held. */
static const msgpack_object *pick(struct mp_reader *r, const char *key)
{
	return mp_ok(r) ? mp_find(r, key) : NULL;
}

void mp_get_bool(struct mp_reader *r, const char *key, bool *out)
{
	const msgpack_object *o = pick(r, key);

	if (!o)
		return;
	if (o->type != MSGPACK_OBJECT_BOOLEAN)
		fail_type(r, key, o, "a boolean");
	else
		*out = o->via.boolean;
}

void mp_get_uint(struct mp_reader *r, const char *key, uint64_t min, uint64_t max, uint64_t *out)
{
	const msgpack_object *o = pick(r, key);

	if (!o)
		return;
	if (o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		mp_fail(r, "%s is %" PRId64 "; it must be %" PRIu64 " to %" PRIu64, key, o->via.i64,
			min, max);
	else if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		fail_type(r, key, o, "an integer");
	else if (o->via.u64 < min || o->via.u64 > max)
		mp_fail(r, "%s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64, key, o->via.u64,
			min, max);
	else
		*out = o->via.u64;
}

void mp_get_u32(struct mp_reader *r, const char *key, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t v = *out;

	mp_get_uint(r, key, min, max, &v);
	if (mp_ok(r))
		*out = (uint32_t)v;
}

/* o as min..max bytes without a NUL. */
static bool check_text(struct mp_reader *r, const char *label, const msgpack_object *o, size_t max,
		       const char **p, size_t *n)
{
	if (!is_text(o)) {
		fail_type(r, label, o, "a text");
		return false;
	}
	*p = text_bytes(o);
	*n = o->via.str.size;
	if (*n > max) {
		mp_fail(r, "%s is %zu bytes long; it must be at most %zu", label, *n, max);
		return false;
	}
	if (memchr(*p, '\0', *n)) {
		mp_fail(r, "%s holds a NUL byte; it must not", label);
		return false;
	}
	return true;
}

/* p lies in the doc's copy; see codec.c for why the byte behind it is free. */
static char *terminate(struct mp_doc *doc, const char *p, size_t n)
{
	char *s = n > 0 ? doc->bytes + (p - doc->bytes) : doc->bytes + doc->len;

	s[n] = '\0';
	return s;
}

static char *get_text(struct mp_reader *r, const char *label, const msgpack_object *o, size_t max)
{
	const char *p;
	size_t n;

	return check_text(r, label, o, max, &p, &n) ? terminate(r->doc, p, n) : NULL;
}

void mp_get_text(struct mp_reader *r, const char *key, size_t max, char **out)
{
	const msgpack_object *o = pick(r, key);
	char *s = o ? get_text(r, key, o, max) : NULL;

	if (s)
		*out = s;
}

void mp_get_str(struct mp_reader *r, const char *key, size_t max, const char **out)
{
	char *s = NULL;

	mp_get_text(r, key, max, &s);
	if (s)
		*out = s;
}

void mp_get_strbuf(struct mp_reader *r, const char *key, char *out, size_t size)
{
	const msgpack_object *o = pick(r, key);
	const char *p;
	size_t n;

	if (!o || !check_text(r, key, o, size - 1, &p, &n))
		return;
	memcpy(out, p, n);
	out[n] = '\0';
}

void mp_get_strcut(struct mp_reader *r, const char *key, char *out, size_t size)
{
	const msgpack_object *o = pick(r, key);
	const char *p;
	size_t n;

	if (!o || !check_text(r, key, o, SIZE_MAX, &p, &n))
		return;
	if (n > size - 1) {
		n = size - 1;
		for (int i = 0; i < 3 && n > 0 && ((unsigned char)p[n] & 0xc0) == 0x80; i++)
			n--;
	}
	memcpy(out, p, n);
	out[n] = '\0';
}

void mp_get_bytes(struct mp_reader *r, const char *key, size_t min, size_t max, const uint8_t **out,
		  size_t *len)
{
	const msgpack_object *o = pick(r, key);

	if (!o)
		return;
	if (!is_text(o)) {
		fail_type(r, key, o, "bytes");
	} else if (o->via.bin.size < min || o->via.bin.size > max) {
		mp_fail(r, "%s is %u bytes long; it must be %zu to %zu", key,
			(unsigned)o->via.bin.size, min, max);
	} else {
		*out = (const uint8_t *)text_bytes(o);
		*len = o->via.bin.size;
	}
}

void mp_get_map(struct mp_reader *r, const char *key, const msgpack_object **out)
{
	const msgpack_object *o = pick(r, key);

	if (!o)
		return;
	if (o->type != MSGPACK_OBJECT_MAP)
		fail_type(r, key, o, "a map");
	else
		*out = o;
}

/* A vector of n pointers and a NULL in the doc's memory. */
static char **new_vector(struct mp_reader *r, size_t n)
{
	char **v = msgpack_zone_malloc(&r->doc->zone, (n + 1) * sizeof(*v));

	if (!v)
		hutch_error_set(r->err, HUTCH_E_INTERNAL, ENOMEM, "no memory for %zu texts", n);
	else
		v[n] = NULL;
	return v;
}

void mp_get_strv(struct mp_reader *r, const char *key, size_t max_count, char ***out, size_t *count)
{
	const msgpack_object *o = pick(r, key);
	char label[LABEL_SIZE];
	char **v;
	size_t n;

	if (!o)
		return;
	if (o->type != MSGPACK_OBJECT_ARRAY) {
		fail_type(r, key, o, "an array of texts");
		return;
	}
	n = o->via.array.size;
	if (n > max_count) {
		mp_fail(r, "%s has %zu entries; it must have at most %zu", key, n, max_count);
		return;
	}
	v = new_vector(r, n);
	for (size_t i = 0; v && i < n; i++) {
		snprintf(label, sizeof(label), "%s[%zu]", key, i);
		v[i] = get_text(r, label, &o->via.array.ptr[i], SIZE_MAX);
		if (!v[i])
			return;
	}
	if (v) {
		*out = v;
		*count = n;
	}
}

/* One pair into v[0] and v[1]; false when it failed. */
static bool get_pair(struct mp_reader *r, const char *key, const msgpack_object_kv *kv, char **v)
{
	uint32_t len = kv->key.via.str.size;
	char label[LABEL_SIZE];

	snprintf(label, sizeof(label), "a name in %s", key);
	v[0] = get_text(r, label, &kv->key, SIZE_MAX);
	if (!v[0])
		return false;
	if (kv->val.type == MSGPACK_OBJECT_NIL) {
		v[1] = NULL;
		return true;
	}
	snprintf(label, sizeof(label), "%s[\"%.*s\"]", key, len < 48 ? (int)len : 48, v[0]);
	v[1] = get_text(r, label, &kv->val, SIZE_MAX);
	return v[1] != NULL;
}

void mp_get_strmap(struct mp_reader *r, const char *key, size_t max_count, char ***out,
		   size_t *pairs)
{
	const msgpack_object *o = pick(r, key);
	char **v;
	size_t n;

	if (!o)
		return;
	if (o->type != MSGPACK_OBJECT_MAP) {
		fail_type(r, key, o, "a map of texts");
		return;
	}
	n = o->via.map.size;
	if (n > max_count) {
		mp_fail(r, "%s has %zu entries; it must have at most %zu", key, n, max_count);
		return;
	}
	v = new_vector(r, 2 * n);
	for (size_t i = 0; v && i < n; i++)
		if (!get_pair(r, key, &o->via.map.ptr[i], &v[2 * i]))
			return;
	if (v) {
		*out = v;
		*pairs = n;
	}
}

static bool name_character(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       c == '.' || c == '_' || c == '-';
}

bool hutch_name_valid(const char *s, size_t len, size_t max)
{
	if (len == 0 || len > max || s[0] == '.' || s[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!name_character(s[i]))
			return false;
	return true;
}

void mp_get_name(struct mp_reader *r, const char *key, size_t max, char *out, size_t size)
{
	const msgpack_object *o = pick(r, key);
	size_t n;

	if (!o)
		return;
	if (!is_text(o)) {
		fail_type(r, key, o, "a text");
		return;
	}
	n = o->via.str.size;
	if (max > size - 1)
		max = size - 1;
	if (!hutch_name_valid(text_bytes(o), n, max)) {
		mp_fail(r,
			"%s is \"%.*s\"; it must be 1 to %zu of A-Z a-z 0-9 . _ -, not starting with "
			". or -",
			key, n < 80 ? (int)n : 80, text_bytes(o), max);
		return;
	}
	memcpy(out, text_bytes(o), n);
	out[n] = '\0';
}
