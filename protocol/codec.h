/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded MessagePack, over msgpack-c.
 *
 * Reading: codec_check walks the bytes without allocating and refuses what wire.md section 1
 * forbids; only then does msgpack-c build its object tree (struct mp_doc), so that a hostile count
 * costs nothing. Getters then take typed, range-checked values out of a map; the first failure
 * sticks in the reader (struct mp_reader), later getters do nothing, and the caller checks once at
 * the end.
 *
 * Writing: struct mp_buf is a growing buffer with a hard maximum and a sticky failure (out of
 * memory or too large); maps and arrays count their own entries.
 */
#ifndef HUTCH_PROTOCOL_CODEC_H
#define HUTCH_PROTOCOL_CODEC_H

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/error.h"
#include "protocol/limits.h"

/*
 * 0 when buf holds exactly one MessagePack map within the limits of wire.md section 1 (depth,
 * counts, keys are str and distinct, no ext types, nothing behind it); else -1 with
 * HUTCH_E_PROTOCOL (or HUTCH_E_INTERNAL, ENOMEM). Time is O(len log len), whatever the bytes: the
 * keys of a map are sorted to find equal ones. It allocates nothing while at most 64 keys are open,
 * and 8 to 16 bytes per open key beyond that.
 */
int codec_check(const void *buf, size_t len, struct hutch_error *err);

/* A decoded payload. Owns its memory; objects and strings from it live until mp_doc_free. */
struct mp_doc {
	msgpack_zone zone;   /* one chunk: the copy, the tree, and room for vectors of strings */
	msgpack_object root; /* a map */
	char *bytes;	     /* the copy that objects point into, with one spare byte behind it */
	size_t len;
	bool live;
};

/*
 * codec_check, then decode. The bytes are copied: buf may be reused at once. One allocation of at
 * most len + 32 bytes per value. err is cleared first; -1 leaves nothing to free.
 */
int mp_doc_parse(struct mp_doc *doc, const void *buf, size_t len, struct hutch_error *err);
/*
 * The same, but the value of key in the outer map is neither copied nor decoded (it reads as
 * absent): *raw are its encoded bytes inside buf, NULL when it is absent or nil.
 */
int mp_doc_parse_except(struct mp_doc *doc, const void *buf, size_t len, const char *key,
			const uint8_t **raw, size_t *raw_len, struct hutch_error *err);
void mp_doc_free(struct mp_doc *doc); /* harmless on a zeroed or freed doc */

/* Typed access to one map of a doc, with a sticky error that names the key. */
struct mp_reader {
	struct mp_doc *doc;
	const msgpack_object *map;
	struct hutch_error *err; /* kind HUTCH_OK while all went well */
	const char
		*what; /* begins every message: "exec.start" or, inside of it, "exec.start: pty." */
};

/*
 * err is not NULL and must be clear (mp_doc_parse leaves it so) or hold the failure of a reader
 * before.
 */
void mp_reader_init(struct mp_reader *r, struct mp_doc *doc, const msgpack_object *map,
		    const char *what, struct hutch_error *err);
/* The value of key, or NULL when it is absent or nil. */
const msgpack_object *mp_find(const struct mp_reader *r, const char *key);
/* False when an error is held. */
bool mp_ok(const struct mp_reader *r);
/*
 * A method's params in one go: parse them into doc (NULL, 0 is an empty map) and set up r, or -1
 * with err set and nothing to free.
 */
int mp_params_open(struct mp_doc *doc, struct mp_reader *r, const void *params, size_t len,
		   const char *what, struct hutch_error *err);
/* Free r's doc; 0, or -1 when an error is held. */
int mp_close(struct mp_reader *r);
/* A failure when key is absent or nil. */
void mp_require(struct mp_reader *r, const char *key);

/*
 * Each leaves *out as it is when the key is absent or nil; a wrong type or range is
 * HUTCH_E_INVALID.
 */
void mp_get_bool(struct mp_reader *r, const char *key, bool *out);
void mp_get_uint(struct mp_reader *r, const char *key, uint64_t min, uint64_t max, uint64_t *out);
void mp_get_u32(struct mp_reader *r, const char *key, uint32_t min, uint32_t max, uint32_t *out);
/* NUL-terminated, in the doc's memory, at most max bytes, no NUL inside (str or bin). */
void mp_get_str(struct mp_reader *r, const char *key, size_t max, const char **out);
/* The same, writable. */
void mp_get_text(struct mp_reader *r, const char *key, size_t max, char **out);
/* The same into a caller's array of size bytes, NUL included. */
void mp_get_strbuf(struct mp_reader *r, const char *key, char *out, size_t size);
/* For people's eyes: a text that is too long for out is cut, at a character, instead of refused. */
void mp_get_strcut(struct mp_reader *r, const char *key, char *out, size_t size);
/* Bytes inside the doc (str or bin). */
void mp_get_bytes(struct mp_reader *r, const char *key, size_t min, size_t max, const uint8_t **out,
		  size_t *len);
/* NULL-terminated vector of NUL-terminated strings in the doc's memory; count without the NULL. */
void mp_get_strv(struct mp_reader *r, const char *key, size_t max_count, char ***out,
		 size_t *count);
/* A map of texts as NULL-terminated pairs key, value, key, value, ...; value NULL for nil. */
void mp_get_strmap(struct mp_reader *r, const char *key, size_t max_count, char ***out,
		   size_t *pairs);
/* A nested map (NULL when absent); use it with mp_reader_init. */
void mp_get_map(struct mp_reader *r, const char *key, const msgpack_object **out);
/* An id, key or name: 1..max bytes of A-Za-z0-9._-, not starting with '.' or '-'. */
void mp_get_name(struct mp_reader *r, const char *key, size_t max, char *out, size_t size);
bool hutch_name_valid(const char *s, size_t len, size_t max);
/* Record a failure about key in r (first one wins). */
void mp_fail(struct mp_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * A growing output buffer. Zero it (max 0: MP_BUF_DEFAULT_MAX) or mp_buf_init it; every put is a
 * no-op once failed is set. Failures are: no memory, too large, nested too deep, more than 65535
 * entries, unbalanced begin and end.
 */
#define MP_BUF_NEST	   8
#define MP_BUF_DEFAULT_MAX (HUTCH_FRAME_HEADER + HUTCH_MAX_CALL)
struct mp_buf {
	uint8_t *data;
	size_t len, cap, max;
	bool failed;
	unsigned depth;
	struct {
		size_t at;
		uint32_t count;
		bool map;
	} open[MP_BUF_NEST];
};

void mp_buf_init(struct mp_buf *b, size_t max);
void mp_buf_free(struct mp_buf *b);
void mp_buf_reset(struct mp_buf *b); /* empty it, keep the memory */

void mp_map_begin(
	struct mp_buf *b); /* as value, element or root; map16 whose count is patched at the end */
void mp_map_end(struct mp_buf *b);
void mp_array_begin(struct mp_buf *b);
void mp_array_end(struct mp_buf *b);
void mp_key(struct mp_buf *b, const char *key);
/* Values: after mp_key in a map, or as elements of an array (each counts one element). */
void mp_put_nil(struct mp_buf *b);
void mp_put_bool(struct mp_buf *b, bool v);
void mp_put_uint(struct mp_buf *b, uint64_t v);
void mp_put_str(struct mp_buf *b, const char *s); /* NULL: nil; bin when it is not UTF-8 */
void mp_put_strn(struct mp_buf *b, const char *s, size_t n);
void mp_put_bin(struct mp_buf *b, const void *p, size_t n);
void mp_put_raw(struct mp_buf *b, const void *p, size_t n); /* one already encoded value */
/* key and value in one */
void mp_kv_bool(struct mp_buf *b, const char *key, bool v);
void mp_kv_uint(struct mp_buf *b, const char *key, uint64_t v);
void mp_kv_str(struct mp_buf *b, const char *key, const char *s);
/* The same, left out when the value is the default, false, or NULL or empty. */
void mp_kv_uint_unless(struct mp_buf *b, const char *key, uint64_t v, uint64_t dflt);
void mp_kv_true(struct mp_buf *b, const char *key, bool v);
void mp_kv_text(struct mp_buf *b, const char *key, const char *s);

/*
 * A whole frame in b: frame_begin reserves the header, the caller puts one map, frame_finish
 * patches the header. frame_finish returns 0; or -1 when b failed or the payload is above
 * frame_max(type): the frame is then taken out of b again, which holds whole frames only, and
 * failed is set. A caller that handles it clears failed, and may put an ERROR in its place.
 */
size_t mp_frame_begin(struct mp_buf *b);
int mp_frame_finish(struct mp_buf *b, size_t start, unsigned type, unsigned flags);

#endif
