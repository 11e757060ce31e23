/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the C library that the agent brings itself (linked with musl only), because the library's own pull
 * in stdio and floating point, or because Debian's libmsgpackc.a was compiled against glibc and calls what musl
 * lacks.
 */
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/format.h"
#include "guest/log.h"

int __snprintf_chk(char *s, size_t size, int flag, size_t real, const char *fmt, ...);
int __fprintf_chk(FILE *f, int flag, const char *fmt, ...);
_Noreturn void __assert_fail(const char *expr, const char *file, int line, const char *func);

int vsnprintf(char *restrict s, size_t size, const char *restrict fmt, va_list ap)
{
	return format_text(s, size, fmt, ap);
}

int snprintf(char *restrict s, size_t size, const char *restrict fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = format_text(s, size, fmt, ap);
	va_end(ap);
	return n;
}

/* msgpack-c's printing functions call these two, and the agent calls none of them. */
int __snprintf_chk(char *s, size_t size, int flag, size_t real, const char *fmt, ...)
{
	(void)flag;
	(void)real;
	(void)fmt;
	if (size)
		s[0] = '\0';
	return 0;
}

int __fprintf_chk(FILE *f, int flag, const char *fmt, ...)
{
	(void)f;
	(void)flag;
	(void)fmt;
	return -1;
}

_Noreturn void __assert_fail(const char *expr, const char *file, int line, const char *func)
{
	(void)func;
	log_info("%s:%d: %s does not hold", file, line, expr);
	abort();
}

/* musl's setrlimit synchronizes threads; the agent has one. prlimit(2). */
int setrlimit(int resource, const struct rlimit *rlim)
{
	return (int)syscall(SYS_prlimit64, 0, resource, rlim, NULL);
}

int getrlimit(int resource, struct rlimit *rlim)
{
	return (int)syscall(SYS_prlimit64, 0, resource, NULL, rlim);
}

/* Decimal numbers behind blanks are all that the agent reads. */
unsigned long long strtoull(const char *restrict s, char **restrict end, int base)
{
	unsigned long long v = 0;

	(void)base;
	while (*s == ' ' || *s == '\t')
		s++;
	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (unsigned)(*s - '0');
	if (end)
		*end = (char *)(uintptr_t)s;
	return v;
}

long strtol(const char *restrict s, char **restrict end, int base)
{
	return (long)strtoull(s, end, base);
}

/* Without flags it is the plain system call. */
int faccessat(int dir, const char *path, int mode, int flags)
{
	(void)flags;
	return (int)syscall(SYS_faccessat, dir, path, mode);
}
