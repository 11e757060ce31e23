/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker says, as JSON. */
#include <stdlib.h>
#include <string.h>

#include "protocol/error.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

static char *base64(const unsigned char *p, size_t n)
{
	static const char digit[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = malloc((n + 2) / 3 * 4 + 1), *o = out;

	if (out == NULL)
		return NULL;
	for (; n > 0; p += 3) {
		size_t take = n < 3 ? n : 3;
		unsigned v = (unsigned)p[0] << 16 | (take > 1 ? (unsigned)p[1] << 8 : 0) |
			     (take > 2 ? p[2] : 0);

		*o++ = digit[v >> 18];
		*o++ = digit[v >> 12 & 63];
		*o++ = take > 1 ? digit[v >> 6 & 63] : '=';
		*o++ = take > 2 ? digit[v & 63] : '=';
		n -= take;
	}
	*o = '\0';
	return out;
}

json_t *json_from_bytes(const char *data, size_t len)
{
	json_t *j;
	char *text;

	if (utf8_valid(data, len))
		return json_stringn_nocheck(len ? data : "", len);
	text = base64((const unsigned char *)data, len);
	j = text ? json_pack("{s:s}", "base64", text) : NULL;
	free(text);
	return j;
}

static json_t *from_array(const struct hutch_value *v)
{
	json_t *j = json_array();

	for (size_t i = 0; i < v->as.array.count; i++)
		json_array_append_new(j, json_from_value(&v->as.array.items[i]));
	return j;
}

static json_t *from_map(const struct hutch_value *v)
{
	json_t *j = json_object();

	for (size_t i = 0; i < v->as.map.count; i++) {
		const struct hutch_pair *p = &v->as.map.pairs[i];

		/* A key that is not UTF-8 has no place in JSON and is left out. */
		json_object_set_new(j, p->key, json_from_value(&p->value));
	}
	return j;
}

json_t *json_from_value(const struct hutch_value *v)
{
	switch (v->type) {
	case HUTCH_BOOL:
		return json_boolean(v->as.boolean);
	case HUTCH_UINT:
		return v->as.u <= INT64_MAX ? json_integer((json_int_t)v->as.u)
					    : json_real((double)v->as.u);
	case HUTCH_INT:
		return json_integer(v->as.i);
	case HUTCH_REAL:
		return json_real(v->as.real);
	case HUTCH_TEXT:
		return json_from_bytes(v->as.text.data, v->as.text.len);
	case HUTCH_ARRAY:
		return from_array(v);
	case HUTCH_MAP:
		return from_map(v);
	case HUTCH_NIL:
		break;
	}
	return json_null();
}

static void set_text(json_t *j, const char *key, const char *text)
{
	if (text != NULL && *text != '\0')
		json_object_set_new(j, key, json_from_bytes(text, strlen(text)));
}

json_t *json_from_failure(const struct hutch_failure *why)
{
	json_t *e = json_object();

	set_text(e, "kind", why->kind);
	set_text(e, "message", why->message);
	if (why->errnum != 0) {
		json_object_set_new(e, "errno", json_integer(why->errnum));
		set_text(e, "errno_name", hutch_errno_name(why->errnum));
	}
	set_text(e, "stage", why->stage);
	set_text(e, "path", why->path);
	json_object_set_new(e, "retryable", json_boolean(why->retryable));
	return json_pack("{s:o}", "error", e);
}

int json_print(FILE *f, json_t *j)
{
	int r = j == NULL ? -1 : json_dumpf(j, f, JSON_COMPACT);

	json_decref(j);
	return r < 0 || fputc('\n', f) == EOF ? -1 : 0;
}
