/* SPDX-License-Identifier: Apache-2.0 */
/* A struct's plain members to and from a JSON object. */
#include "host/hutchd/json_struct.h"

#include <stdbool.h>
#include <string.h>

static json_t *member_json(const struct json_member *m, const void *at)
{
	switch (m->type) {
	case JSON_TEXT:
		return json_string(at);
	case JSON_U32:
		return json_integer(*(const uint32_t *)at);
	case JSON_U64:
		return json_integer((json_int_t) * (const uint64_t *)at);
	case JSON_BOOL:
		return json_boolean(*(const bool *)at);
	}
	return NULL;
}

int json_put_members(json_t *o, const void *from, const struct json_member *members, size_t count)
{
	int rc = 0;

	for (size_t i = 0; i < count; i++)
		rc |= json_object_set_new(o, members[i].name,
					  member_json(&members[i],
						      (const char *)from + members[i].offset));
	return rc;
}

int json_member_wrong(const char *file, const char *member, struct hutch_error *err)
{
	return hutch_error_set(err, HUTCH_E_INVALID, 0, "%s: '%s' is missing or wrong", file,
			       member);
}

static bool get_text(const json_t *v, char *at, size_t size)
{
	const char *s = json_string_value(v);

	if (!s || strlen(s) != json_string_length(v) || strlen(s) >= size)
		return false;
	memcpy(at, s, strlen(s) + 1);
	return true;
}

static bool get_number(const json_t *v, const struct json_member *m, void *at)
{
	uint64_t n = (uint64_t)json_integer_value(v);

	if (!json_is_integer(v) || (m->type == JSON_U32 && n > UINT32_MAX))
		return false;
	if (m->type == JSON_U32)
		*(uint32_t *)at = (uint32_t)n;
	else
		*(uint64_t *)at = n;
	return true;
}

static bool get_member(const json_t *v, const struct json_member *m, void *at)
{
	if (m->type == JSON_TEXT)
		return get_text(v, at, m->size);
	if (m->type != JSON_BOOL)
		return get_number(v, m, at);
	*(bool *)at = json_is_true(v);
	return json_is_boolean(v);
}

int json_get_members(const json_t *o, void *to, const struct json_member *members, size_t count,
		     const char *file, struct hutch_error *err)
{
	for (size_t i = 0; i < count; i++) {
		const json_t *v = json_object_get(o, members[i].name);

		if (!v && members[i].optional)
			continue;
		if (!get_member(v, &members[i], (char *)to + members[i].offset))
			return json_member_wrong(file, members[i].name, err);
	}
	return 0;
}
