/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error that reaches the user: a kind, an errno where there is one, and a sentence (wire.md,
 * ERROR).
 */
#ifndef HUTCH_PROTOCOL_ERROR_H
#define HUTCH_PROTOCOL_ERROR_H

#include <stdbool.h>
#include <stddef.h>

enum hutch_error_kind {
	HUTCH_OK = 0,
	HUTCH_E_PROTOCOL,
	HUTCH_E_UNSUPPORTED,
	HUTCH_E_UNKNOWN_METHOD,
	HUTCH_E_INVALID,
	HUTCH_E_NOT_FOUND,
	HUTCH_E_EXISTS,
	HUTCH_E_DENIED,
	HUTCH_E_STATE,
	HUTCH_E_TOO_LARGE,
	HUTCH_E_BUSY,
	HUTCH_E_QUOTA,
	HUTCH_E_TIMEOUT,
	HUTCH_E_CANCELED,
	HUTCH_E_NOT_DISPATCHED,
	HUTCH_E_OUTCOME_UNKNOWN,
	HUTCH_E_VM_DIED,
	HUTCH_E_BOOT_FAILED,
	HUTCH_E_START_FAILED,
	HUTCH_E_IO,
	HUTCH_E_INTERNAL,
	HUTCH_E_COUNT
};

struct hutch_error {
	enum hutch_error_kind kind; /* HUTCH_OK: no error is held */
	int errnum;		    /* 0: none */
	bool retryable;
	char stage[32];	    /* empty: none */
	char path[256];	    /* empty: none */
	char message[2048]; /* one sentence, NUL-terminated; longer text is cut at a character */
};

/*
 * Fill e (NULL: nobody wants to know). retryable is set for the kinds whose nature it is (busy,
 * not_dispatched). errnum 0 = none. In the message, what is not UTF-8 and control characters other
 * than newline and tab become '?': it may quote names that others chose. errno is preserved.
 * Returns -1, so that a failing function can say: return hutch_error_set(...).
 */
int hutch_error_set(struct hutch_error *e, enum hutch_error_kind kind, int errnum, const char *fmt,
		    ...) __attribute__((format(printf, 4, 5)));
/* Put "PREFIX: " before the message: the caller adds what it was doing. */
void hutch_error_prefix(struct hutch_error *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void hutch_error_clear(struct hutch_error *e);

/* The kind's name on the wire ("not_found"); never NULL. */
const char *hutch_error_kind_name(enum hutch_error_kind kind);
/* Reverse of it; HUTCH_E_INTERNAL for a name that this version does not know. */
enum hutch_error_kind hutch_error_kind_from_name(const char *name, size_t len);
/* "ENOENT" for ENOENT, NULL when the number has no name here. */
const char *hutch_errno_name(int errnum);

/*
 * Length in bytes of the UTF-8 character at s (RFC 3629), of which len bytes are there; 0 when it
 * is none.
 */
size_t hutch_utf8_char(const char *s, size_t len);

#endif
