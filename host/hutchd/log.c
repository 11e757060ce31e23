/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on stderr. A line is one write(2), so that lines of several processes do not mix. Bytes
 * that are not printable UTF-8 text are escaped: what a guest or a client wrote may be quoted in a
 * line and must not forge another.
 */
#include "host/hutchd/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "protocol/error.h"

#define LINE_MAX_BYTES 8192u
/* Where escaped text stops, so that the line is always closed properly. */
#define LINE_RESERVE   64u
#define TEXT_MAX_BYTES 3072u

static const char *log_who = "hutchd";
static enum log_level log_least = LOG_LEVEL_INFO;
static bool log_json;

static const char *const level_names[] = {
	[LOG_LEVEL_DEBUG] = "debug",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_ERROR] = "error",
};

struct line {
	char buf[LINE_MAX_BYTES];
	size_t len;
};

void log_setup(const char *who, enum log_level least, int json)
{
	log_who = who;
	log_least = least;
	log_json = json != 0;
}

void log_set_who(const char *who)
{
	log_who = who;
}

static void put(struct line *l, const char *text, size_t len)
{
	if (len > sizeof(l->buf) - 3 - l->len)
		return;
	memcpy(l->buf + l->len, text, len);
	l->len += len;
}

static void put_text(struct line *l, const char *text)
{
	put(l, text, strlen(text));
}

/* Control characters and stray bytes become \u00XX, which both formats can hold. */
static void put_escaped(struct line *l, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t left = strlen(text);

	while (*s && l->len < sizeof(l->buf) - LINE_RESERVE) {
		size_t n = hutch_utf8_char((const char *)s, left);
		char esc[8];

		if (n == 0 || *s < 0x20 || *s == 0x7f || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0)) {
			snprintf(esc, sizeof(esc), "\\u%04x", *s);
			put(l, esc, 6);
			n = n > 1 ? n : 1;
		} else if (log_json && (*s == '"' || *s == '\\')) {
			esc[0] = '\\';
			esc[1] = (char)*s;
			put(l, esc, 2);
		} else {
			put(l, (const char *)s, n);
		}
		s += n;
		left -= n;
	}
}

static void put_time(struct line *l)
{
	struct timespec now;
	struct tm tm;
	char text[40];
	size_t n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(text + n, sizeof(text) - n, ".%03ldZ", now.tv_nsec / 1000000);
	put(l, text, n);
}

static void put_field(struct line *l, const char *name, const char *value)
{
	put_text(l, ",\"");
	put_text(l, name);
	put_text(l, "\":\"");
	put_escaped(l, value);
	put_text(l, "\"");
}

static void log_line(enum log_level level, const char *object, const char *text)
{
	struct line l = {.len = 0};
	ssize_t n;

	if (log_json) {
		put_text(&l, "{\"time\":\"");
		put_time(&l);
		put_text(&l, "\"");
		put_field(&l, "level", level_names[level]);
		put_field(&l, "who", log_who);
		put_field(&l, "object", object);
		put_field(&l, "message", text);
	} else {
		put_time(&l);
		put_text(&l, " ");
		put_text(&l, log_who);
		put_text(&l, " ");
		put_text(&l, level_names[level]);
		put_text(&l, ": ");
		put_escaped(&l, object);
		put_text(&l, ": ");
		put_escaped(&l, text);
	}
	if (log_json)
		l.buf[l.len++] = '}';
	l.buf[l.len++] = '\n';
	/* A log that cannot be written is lost; there is nobody to tell. */
	n = write(STDERR_FILENO, l.buf, l.len);
	(void)n;
}

static void log_v(enum log_level level, const char *object, int errnum, const char *fmt, va_list ap)
	__attribute__((format(printf, 4, 0)));
static void log_v(enum log_level level, const char *object, int errnum, const char *fmt, va_list ap)
{
	char text[TEXT_MAX_BYTES];
	int n = vsnprintf(text, sizeof(text), fmt, ap);

	if (errnum != 0 && n >= 0 && (size_t)n < sizeof(text))
		snprintf(text + n, sizeof(text) - (size_t)n, ": %s", strerror(errnum));
	log_line(level, object, text);
}

void log_at(enum log_level level, const char *object, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	if (level < log_least)
		return;
	va_start(ap, fmt);
	log_v(level, object, 0, fmt, ap);
	va_end(ap);
	errno = saved;
}

void log_errno(enum log_level level, const char *object, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	if (level < log_least)
		return;
	va_start(ap, fmt);
	log_v(level, object, saved, fmt, ap);
	va_end(ap);
	errno = saved;
}
