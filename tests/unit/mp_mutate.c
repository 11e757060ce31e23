/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of mp_mutate.h. */
#include "tests/unit/mp_mutate.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/mp_text.h"

static void prefixes(const uint8_t *whole, size_t len, decode_fn decode)
{
	struct hutch_error err;

	for (size_t n = 1; n < len; n++) {
		uint8_t *part = malloc(n);

		ck_assert_ptr_nonnull(part);
		memcpy(part, whole, n);
		memset(&err, 0xff, sizeof(err));
		ck_assert_int_eq(decode(part, n, &err), -1);
		ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
		free(part);
	}
}

static void changes(uint8_t *whole, size_t len, decode_fn decode)
{
	struct hutch_error err;

	for (size_t at = 0; at < len; at++) {
		uint8_t was = whole[at];

		for (unsigned v = 0; v < 256; v++) {
			whole[at] = (uint8_t)v;
			memset(&err, 0xff, sizeof(err));
			if (decode(whole, len, &err) == 0)
				continue;
			if (err.kind <= HUTCH_OK || err.kind >= HUTCH_E_COUNT || !err.message[0])
				ck_abort_msg("byte %zu as 0x%02x: no error is set", at, v);
		}
		whole[at] = was;
	}
}

void mp_mutate(const char *text, decode_fn decode)
{
	size_t len;
	uint8_t *whole = mp_text(text, &len);
	struct hutch_error err;

	memset(&err, 0xff, sizeof(err));
	ck_assert_int_eq(decode(whole, len, &err), 0);
	prefixes(whole, len, decode);
	changes(whole, len, decode);
	free(whole);
}
