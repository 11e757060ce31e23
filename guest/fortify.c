/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's libmsgpackc.a was compiled against glibc with _FORTIFY_SOURCE and calls glibc's checking variants,
 * which musl lacks. Only its printing functions do, and the agent calls none of them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

int __snprintf_chk(char *s, size_t size, int flag, size_t real, const char *fmt, ...);
int __fprintf_chk(FILE *f, int flag, const char *fmt, ...);

int __snprintf_chk(char *s, size_t size, int flag, size_t real, const char *fmt, ...)
{
	va_list ap;
	int n;

	(void)flag;
	va_start(ap, fmt);
	n = vsnprintf(s, size < real ? size : real, fmt, ap);
	va_end(ap);
	return n;
}

int __fprintf_chk(FILE *f, int flag, const char *fmt, ...)
{
	va_list ap;
	int n;

	(void)flag;
	va_start(ap, fmt);
	n = vfprintf(f, fmt, ap);
	va_end(ap);
	return n;
}
