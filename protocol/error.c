/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as values: filling them, their names on the wire, and text that is safe to print. */
#include "protocol/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char kind_names[][16] = {
	[HUTCH_OK] = "ok",
	[HUTCH_E_PROTOCOL] = "protocol",
	[HUTCH_E_UNSUPPORTED] = "unsupported",
	[HUTCH_E_UNKNOWN_METHOD] = "unknown_method",
	[HUTCH_E_INVALID] = "invalid",
	[HUTCH_E_NOT_FOUND] = "not_found",
	[HUTCH_E_EXISTS] = "exists",
	[HUTCH_E_DENIED] = "denied",
	[HUTCH_E_STATE] = "state",
	[HUTCH_E_TOO_LARGE] = "too_large",
	[HUTCH_E_BUSY] = "busy",
	[HUTCH_E_QUOTA] = "quota",
	[HUTCH_E_TIMEOUT] = "timeout",
	[HUTCH_E_CANCELED] = "canceled",
	[HUTCH_E_NOT_DISPATCHED] = "not_dispatched",
	[HUTCH_E_OUTCOME_UNKNOWN] = "outcome_unknown",
	[HUTCH_E_VM_DIED] = "vm_died",
	[HUTCH_E_BOOT_FAILED] = "boot_failed",
	[HUTCH_E_START_FAILED] = "start_failed",
	[HUTCH_E_IO] = "io",
	[HUTCH_E_INTERNAL] = "internal",
};
static_assert(sizeof(kind_names) / sizeof(kind_names[0]) == HUTCH_E_COUNT,
	      "every error kind has a name");

/* clang-format off */
/* The names one behind the other, in the order of the numbers: no pointers, no padding. */
#define ERRNOS(X) \
	X(EPERM) X(ENOENT) X(ESRCH) X(EINTR) X(EIO) X(ENXIO) X(E2BIG) X(ENOEXEC) X(EBADF) \
	X(ECHILD) X(EAGAIN) X(ENOMEM) X(EACCES) X(EFAULT) X(ENOTBLK) X(EBUSY) X(EEXIST) \
	X(EXDEV) X(ENODEV) X(ENOTDIR) X(EISDIR) X(EINVAL) X(ENFILE) X(EMFILE) X(ENOTTY) \
	X(ETXTBSY) X(EFBIG) X(ENOSPC) X(ESPIPE) X(EROFS) X(EMLINK) X(EPIPE) X(EDOM) X(ERANGE) \
	X(EDEADLK) X(ENAMETOOLONG) X(ENOSYS) X(ENOTEMPTY) X(ELOOP) X(ENODATA) X(ETIME) \
	X(EPROTO) X(EBADMSG) X(EOVERFLOW) X(EILSEQ) X(EUSERS) X(ENOTSOCK) X(EDESTADDRREQ) \
	X(EMSGSIZE) X(ENOPROTOOPT) X(EOPNOTSUPP) X(EAFNOSUPPORT) X(EADDRINUSE) \
	X(EADDRNOTAVAIL) X(ENETDOWN) X(ENETUNREACH) X(ECONNABORTED) X(ECONNRESET) X(ENOBUFS) \
	X(EISCONN) X(ENOTCONN) X(ETIMEDOUT) X(ECONNREFUSED) X(EHOSTUNREACH) X(EALREADY) \
	X(EINPROGRESS) X(ESTALE) X(EDQUOT) X(ECANCELED)
#define NUMBER(name) name,
#define NAME(name)   #name "\0"
static const uint8_t errno_numbers[] = {ERRNOS(NUMBER)};
static const char errno_names[] = ERRNOS(NAME);
/* clang-format on */

static bool is_continuation(unsigned char c)
{
	return (c & 0xc0) == 0x80;
}

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
size_t hutch_utf8_char(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t n;

	if (len == 0)
		return 0;
	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (len < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if (!is_continuation(p[i]))
			return 0;
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* Drop a character that a full buffer cut in half. */
static void trim_cut_character(char *s)
{
	size_t len = strlen(s), at = len;

	while (at > 0 && len - at < 3 && is_continuation((unsigned char)s[at - 1]))
		at--;
	if (at > 0 && (unsigned char)s[at - 1] >= 0xc2 &&
	    hutch_utf8_char(s + at - 1, len - at + 1) == 0)
		s[at - 1] = '\0';
}

/*
 * Messages quote names that others chose: what is not text, or would steer a terminal, becomes '?'.
 */
static void make_printable(char *s)
{
	size_t left = strlen(s);

	while (left > 0) {
		size_t n = hutch_utf8_char(s, left);
		unsigned char c = (unsigned char)s[0];
		bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ||
			       (c == 0xc2 && n == 2 && (unsigned char)s[1] < 0xa0);

		if (n == 0 || control) {
			s[0] = '?';
			n = 1;
		}
		s += n;
		left -= n;
	}
}

int hutch_error_set(struct hutch_error *e, enum hutch_error_kind kind, int errnum, const char *fmt,
		    ...)
{
	int saved = errno, n;
	va_list ap;

	if (!e)
		return -1;
	e->kind = kind;
	e->errnum = errnum;
	e->retryable = kind == HUTCH_E_BUSY || kind == HUTCH_E_NOT_DISPATCHED;
	e->stage[0] = '\0';
	e->path[0] = '\0';
	va_start(ap, fmt);
	n = vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	if (n < 0)
		e->message[0] = '\0';
	else if ((size_t)n >= sizeof(e->message))
		trim_cut_character(e->message);
	make_printable(e->message);
	errno = saved;
	return -1;
}

void hutch_error_prefix(struct hutch_error *e, const char *fmt, ...)
{
	char prefix[256];
	int saved = errno, n;
	size_t plen, mlen;
	va_list ap;

	if (!e)
		return;
	va_start(ap, fmt);
	n = vsnprintf(prefix, sizeof(prefix) - 2, fmt, ap);
	va_end(ap);
	errno = saved;
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(prefix) - 2)
		trim_cut_character(prefix);
	make_printable(prefix);
	memcpy(prefix + strlen(prefix), ": ", 3);

	plen = strlen(prefix);
	mlen = strlen(e->message);
	if (mlen > sizeof(e->message) - 1 - plen) {
		e->message[sizeof(e->message) - 1 - plen] = '\0';
		trim_cut_character(e->message);
		mlen = strlen(e->message);
	}
	memmove(e->message + plen, e->message, mlen + 1);
	memcpy(e->message, prefix, plen);
}

void hutch_error_clear(struct hutch_error *e)
{
	if (!e)
		return;
	e->kind = HUTCH_OK;
	e->errnum = 0;
	e->retryable = false;
	e->stage[0] = '\0';
	e->path[0] = '\0';
	e->message[0] = '\0';
}

const char *hutch_error_kind_name(enum hutch_error_kind kind)
{
	if ((unsigned)kind >= HUTCH_E_COUNT)
		return kind_names[HUTCH_E_INTERNAL];
	return kind_names[kind];
}

enum hutch_error_kind hutch_error_kind_from_name(const char *name, size_t len)
{
	for (unsigned k = HUTCH_OK + 1; k < HUTCH_E_COUNT; k++)
		if (strlen(kind_names[k]) == len && memcmp(kind_names[k], name, len) == 0)
			return (enum hutch_error_kind)k;
	return HUTCH_E_INTERNAL;
}

const char *hutch_errno_name(int errnum)
{
	const char *name = errno_names;

	for (size_t i = 0; i < sizeof(errno_numbers); i++, name += strlen(name) + 1)
		if (errno_numbers[i] == errnum)
			return name;
	return NULL;
}
