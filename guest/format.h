/* SPDX-License-Identifier: Apache-2.0 */
/* A small vsnprintf: in the agent it stands in for the C library's, which weighs 13 KiB (see libc.c). */
#ifndef HUTCH_GUEST_FORMAT_H
#define HUTCH_GUEST_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/*
 * As vsnprintf(3), for the conversions % d u x s m with the flag 0, a width, a precision (also *) and the
 * lengths l ll z j t. The unit test reads the agent's sources and fails when they use anything else.
 */
int format_text(char *out, size_t size, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));

#endif
