/* SPDX-License-Identifier: Apache-2.0 */
/* Texts from others, made fit for a terminal; tables. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/hutch/text.h"

size_t utf8_char(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	uint32_t c;

	if (len <= 1 || p[0] > 0xf4)
		return len <= 1 ? len : 0;
	if (len > n)
		return 0;
	c = p[0] & (0xffu >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if ((len == 3 && c < 0x800) || (len == 4 && c < 0x10000) || c > 0x10ffff ||
	    (c >= 0xd800 && c < 0xe000))
		return 0;
	return len;
}

bool utf8_valid(const char *s, size_t n)
{
	while (n > 0) {
		size_t len = utf8_char(s, n);

		if (len == 0)
			return false;
		s += len;
		n -= len;
	}
	return true;
}

static bool harmless(const unsigned char *p, size_t len, bool lines)
{
	if (len == 1)
		return (p[0] >= 0x20 && p[0] != 0x7f) || (lines && (p[0] == '\n' || p[0] == '\t'));
	return len > 2 || (len == 2 && !(p[0] == 0xc2 && p[1] < 0xa0));
}

void text_put(FILE *f, const char *s, size_t n, bool lines)
{
	while (n > 0) {
		size_t len = utf8_char(s, n);

		if (harmless((const unsigned char *)s, len, lines)) {
			fwrite(s, 1, len, f);
		} else {
			len = 1;
			fprintf(f, "\\x%02x", (unsigned char)*s);
		}
		s += len;
		n -= len;
	}
}

void text_duration(char *out, size_t size, uint64_t ms)
{
	uint64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(out, size, "%" PRIu64 "ms", ms);
	else if (s < 60)
		snprintf(out, size, "%" PRIu64 "s", s);
	else if (s < 3600)
		snprintf(out, size, "%" PRIu64 "m %" PRIu64 "s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(out, size, "%" PRIu64 "h %" PRIu64 "m", s / 3600, s / 60 % 60);
	else
		snprintf(out, size, "%" PRIu64 "d %" PRIu64 "h", s / 86400, s / 3600 % 24);
}

void text_date(char *out, size_t size, uint64_t unix_ms)
{
	time_t t = (time_t)(unix_ms / 1000);
	struct tm tm;

	if (gmtime_r(&t, &tm) == NULL || strftime(out, size, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
		snprintf(out, size, "%" PRIu64 " ms", unix_ms);
}

void text_bytes(char *out, size_t size, uint64_t bytes)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double n = (double)bytes;
	size_t i = 0;

	while (n >= 1024 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
		n /= 1024;
		i++;
	}
	snprintf(out, size, i ? "%.1f %s" : "%.0f %s", n, unit[i]);
}

/* ---- Tables ---- */

void table_cell(struct table *t, const char *text)
{
	size_t size;
	FILE *f;

	if (t->count == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		char **p = realloc(t->cells, room * sizeof(*p));

		if (p == NULL) {
			t->failed = true;
			return;
		}
		t->cells = p;
		t->room = room;
	}
	f = open_memstream(&t->cells[t->count], &size);
	if (f == NULL) {
		t->failed = true;
		return;
	}
	text_put(f, text, strlen(text), false);
	if (fclose(f) == 0)
		t->count++;
	else
		t->failed = true;
}

void table_number(struct table *t, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, n);
	table_cell(t, text);
}

/* Characters, for texts that text_put let through. */
static size_t width(const char *s)
{
	size_t n = 0;

	for (; *s != '\0'; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

int table_print(struct table *t)
{
	size_t widest[TABLE_COLUMNS] = {0};

	for (size_t i = 0; i < t->count; i++) {
		size_t *w = &widest[i % t->columns], n = width(t->cells[i]);

		*w = n > *w ? n : *w;
	}
	for (size_t i = 0; i < t->count; i++) {
		bool last = i % t->columns == t->columns - 1;
		size_t pad = last ? 0 : widest[i % t->columns] - width(t->cells[i]) + 2;

		printf("%s%*s%s", t->cells[i], (int)pad, "", last ? "\n" : "");
	}
	table_free(t);
	return t->failed ? -1 : 0;
}

void table_free(struct table *t)
{
	while (t->count > 0)
		free(t->cells[--t->count]);
	free(t->cells);
	t->cells = NULL;
	t->room = 0;
}
