/* SPDX-License-Identifier: Apache-2.0 */
/* A recursive-descent reader of the notation in mp_text.h, with its own plain encoder. */
#include "tests/unit/mp_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
	const char *p;
	uint8_t *out;
	size_t len, cap;
};

static void byte(struct text *t, unsigned v)
{
	if (t->len == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 64;
		t->out = realloc(t->out, t->cap);
		if (!t->out)
			abort();
	}
	t->out[t->len++] = (uint8_t)v;
}

static void number(struct text *t, uint64_t v, unsigned width)
{
	while (width-- > 0)
		byte(t, (unsigned)(v >> (8 * width)) & 0xff);
}

static _Noreturn void bad(const struct text *t)
{
	fprintf(stderr, "mp_text: cannot read: %s\n", t->p);
	abort();
}

static char next(struct text *t)
{
	while (*t->p == ' ')
		t->p++;
	return *t->p;
}

static bool eat(struct text *t, const char *word)
{
	size_t n = strlen(word);

	next(t);
	if (strncmp(t->p, word, n) != 0)
		return false;
	t->p += n;
	return true;
}

static unsigned hex(struct text *t)
{
	char digits[3] = {t->p[0], t->p[0] ? t->p[1] : '\0', '\0'};

	if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
		bad(t);
	t->p += 2;
	return (unsigned)strtoul(digits, NULL, 16);
}

/* fixstr where it fits, else a length of 16 bits. */
static void string(struct text *t, bool bin)
{
	size_t at = t->len, n;

	byte(t, bin ? 0xc5 : 0xda);
	number(t, 0, 2);
	t->p++;
	while (*t->p != '\'') {
		if (!*t->p)
			bad(t);
		if (t->p[0] == '\\' && t->p[1] == 'x') {
			t->p += 2;
			byte(t, hex(t));
		} else {
			byte(t, (unsigned char)*t->p++);
		}
	}
	t->p++;
	n = t->len - at - 3;
	if (!bin && n < 32) {
		t->out[at] = (uint8_t)(0xa0 | n);
		memmove(t->out + at + 1, t->out + at + 3, n);
		t->len -= 2;
		return;
	}
	t->out[at + 1] = (uint8_t)(n >> 8);
	t->out[at + 2] = (uint8_t)n;
}

static void integer(struct text *t)
{
	char *end;

	if (*t->p == '-') {
		byte(t, 0xd3);
		number(t, (uint64_t)strtoll(t->p, &end, 10), 8);
	} else {
		uint64_t v = strtoull(t->p, &end, 10);

		byte(t, v < 0x80 ? (unsigned)v : 0xcf);
		if (v >= 0x80)
			number(t, v, 8);
	}
	t->p = end;
	if (*t->p == '.') { /* 1.5 stands for any float */
		t->p += 2;
		t->len -= t->out[t->len - 1] < 0x80 ? 1 : 9;
		byte(t, 0xca);
		number(t, 0x3fc00000, 4);
	}
}

static void value(struct text *t);

static void container(struct text *t, bool map)
{
	const char *close = map ? "}" : "]";
	size_t at = t->len;
	unsigned count = 0;

	t->p++;
	byte(t, map ? 0xde : 0xdc);
	number(t, 0, 2);
	while (!eat(t, close)) {
		if (count > 0 && !eat(t, ","))
			bad(t);
		value(t);
		if (map && !eat(t, ":"))
			bad(t);
		if (map)
			value(t);
		count++;
	}
	t->out[at + 1] = (uint8_t)(count >> 8);
	t->out[at + 2] = (uint8_t)count;
}

static void value(struct text *t)
{
	char c = next(t);

	if (c == '{' || c == '[') {
		container(t, c == '{');
	} else if (c == '\'') {
		string(t, false);
	} else if (c == 'b') {
		t->p++;
		string(t, true);
	} else if (c == '#') {
		t->p++;
		while (isxdigit((unsigned char)*t->p))
			byte(t, hex(t));
	} else if (isdigit((unsigned char)c) || c == '-') {
		integer(t);
	} else if (eat(t, "nil")) {
		byte(t, 0xc0);
	} else if (eat(t, "false")) {
		byte(t, 0xc2);
	} else if (eat(t, "true")) {
		byte(t, 0xc3);
	} else {
		bad(t);
	}
}

uint8_t *mp_text(const char *text, size_t *len)
{
	struct text t = {.p = text};
	uint8_t *exact;

	value(&t);
	if (next(&t))
		bad(&t);
	exact = t.len > 0 ? malloc(t.len) : NULL;
	if (!exact)
		abort();
	memcpy(exact, t.out, t.len);
	free(t.out);
	*len = t.len;
	return exact;
}
