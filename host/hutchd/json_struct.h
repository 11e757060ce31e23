/* SPDX-License-Identifier: Apache-2.0 */
/* A struct's plain members to and from a JSON object, by a table: records and manifests. */
#ifndef HUTCH_HOST_JSON_STRUCT_H
#define HUTCH_HOST_JSON_STRUCT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/error.h"

enum json_type { JSON_TEXT, JSON_U32, JSON_U64, JSON_BOOL };

struct json_member {
	const char *name;
	enum json_type type;
	size_t offset, size;
	bool optional; /* missing, it stays as it is: files of older brokers have none */
};
/* type: TEXT (char array), U32, U64, BOOL; member may be a path: traits.vmm. */
#define JSON_MEMBER(type, of, key, member)   JSON_MEMBER_(type, of, key, member, false)
#define JSON_OPTIONAL(type, of, key, member) JSON_MEMBER_(type, of, key, member, true)
#define JSON_MEMBER_(type, of, key, member, optional)                                             \
	{                                                                                         \
		key, JSON_##type, offsetof(of, member), sizeof(((const of *)0)->member), optional \
	}

/* 0, or -1 when memory is gone. */
int json_put_members(json_t *o, const void *from, const struct json_member *members, size_t count);
/*
 * All but the optional ones must be there, and all fit and have their type: -1 with HUTCH_E_INVALID, "<file>: '<member>' is
 * missing or wrong". A U64 uses all 64 bits, which JSON's signed integer holds as they are.
 */
int json_get_members(const json_t *o, void *to, const struct json_member *members, size_t count,
		     const char *file, struct hutch_error *err);
/* The error alone, for members that are not in a table. */
int json_member_wrong(const char *file, const char *member, struct hutch_error *err);

#endif
