/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's small vsnprintf against the C library's, on every conversion that the agent's sources use: they
 * are read here, so that one which it lacks cannot slip in.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/format.h"

#define MAX_SPECS 64

static char specs[MAX_SPECS][16];
static size_t nspecs;

static int ours(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int ours(char *out, size_t size, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = format_text(out, size, fmt, ap);
	va_end(ap);
	return n;
}

/* The same into buffers of every size up to 80, and untouched behind them. */
#define SAME(...)                                                                               \
	do {                                                                                    \
		for (size_t size = 0; size <= 80; size++) {                                     \
			char a[96], b[96];                                                      \
			memset(a, '#', sizeof(a));                                              \
			memset(b, '#', sizeof(b));                                              \
			errno = ENOENT;                                                         \
			int want = snprintf(a, size, __VA_ARGS__);                              \
			errno = ENOENT;                                                         \
			ck_assert_int_eq(ours(b, size, __VA_ARGS__), want);                     \
			ck_assert_int_eq(errno, ENOENT);                                        \
			ck_assert_msg(memcmp(a, b, sizeof(a)) == 0, "%s: %.80s", size ? b : "", \
				      size ? a : "");                                           \
		}                                                                               \
	} while (0)

static void add_spec(const char *from, size_t n, char conversion)
{
	char spec[16];

	ck_assert_uint_lt(n + 1, sizeof(spec));
	memcpy(spec, from, n);
	spec[n] = conversion;
	spec[n + 1] = '\0';
	for (size_t i = 0; i < nspecs; i++)
		if (strcmp(specs[i], spec) == 0)
			return;
	ck_assert_uint_lt(nspecs, MAX_SPECS);
	memcpy(specs[nspecs++], spec, sizeof(spec));
}

/* Conversions in the string literals of one line; %" PRIu64 counts as %lu. */
static void scan_line(const char *s)
{
	for (; (s = strchr(s, '%')); s++) {
		size_t n = 1 + strspn(s + 1, "-+ #'0123456789.*hlLqjzt");

		if (s[n] == '%')
			s += n;
		else if (strncmp(s + n, "\" PRI", 5) == 0)
			add_spec("%l", 2, s[n + 5]);
		else if (s[n] && strchr("diouxXeEfFgGaAcspnmCS", s[n]) && s[1] != ' ')
			add_spec(s, n, s[n]);
	}
}

static void scan_sources(const char *dir)
{
	char path[512], line[1024];
	struct dirent *d;
	DIR *dp;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", SOURCE_DIR, dir);
	dp = opendir(path);
	ck_assert_ptr_nonnull(dp);
	while ((d = readdir(dp))) {
		size_t n = strlen(d->d_name);

		if (n < 2 || strcmp(d->d_name + n - 2, ".c") != 0 ||
		    strcmp(d->d_name, "format.c") == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s", SOURCE_DIR, dir, d->d_name);
		f = fopen(path, "r");
		ck_assert_ptr_nonnull(f);
		while (fgets(line, sizeof(line), f))
			if (strchr(line, '"') && !strstr(line, "asm"))
				scan_line(line);
		fclose(f);
	}
	closedir(dp);
}

#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wformat-truncation"
#endif

static void try_number(const char *spec)
{
	static const int64_t values[] = {0,	    1,	       9,	10,	 42,
					 -1,	    -12345,    INT_MAX, INT_MIN, UINT32_MAX,
					 INT64_MAX, INT64_MIN, 0xabcdef};
	bool wide = strpbrk(spec, "lzjt") != NULL;

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		if (wide)
			SAME(spec, values[i]);
		else
			SAME(spec, (int)values[i]);
	}
}

static void try_string(const char *spec)
{
	static const char *const texts[] = {"", "x", "a text", "caf\xc3\xa9 \xff\x01",
					    "a text that is longer than the buffers are"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strchr(spec, '*'))
			for (int n = 0; n < 50; n += 7)
				SAME(spec, n, texts[i]);
		else
			SAME(spec, texts[i]);
	}
}

START_TEST(all_that_is_used)
{
	scan_sources("guest");
	scan_sources("protocol");
	ck_assert_uint_gt(nspecs, 5);
	for (size_t i = 0; i < nspecs; i++) {
		char last = specs[i][strlen(specs[i]) - 1];

		if (last == 'm')
			SAME(specs[i], 0); /* takes no argument; one more is harmless */
		else if (last == 's')
			try_string(specs[i]);
		else
			try_number(specs[i]);
	}
}
END_TEST

START_TEST(literal_and_mixed)
{
	SAME("%s", "");
	SAME("plain text");
	SAME("100%% of %s", "it");
	SAME("%s:%d: %s (%02x, %016llx, %llu)%%", "file", -3, "why", 7, 0xfeedULL,
	     12345678901234ULL);
	SAME("%.*s|%5d|%05d|%zu|%m", 3, "abcdef", -42, -42, (size_t)9);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format");
	TCase *t = tcase_create("format");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(t, all_that_is_used);
	tcase_add_test(t, literal_and_mixed);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
