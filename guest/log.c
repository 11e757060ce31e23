/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines; see log.h. */
#include "guest/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int log_fd = 2;
static bool log_verbose;
static void (*panic_fn)(void) = abort;

void log_setup(int fd, bool verbose)
{
	log_fd = fd;
	log_verbose = verbose;
}

void log_on_panic(void (*fn)(void))
{
	panic_fn = fn;
}

static void __attribute__((format(printf, 2, 0))) emit(int errnum, const char *fmt, va_list ap)
{
	static const char prefix[] = "hutch-agent: ";
	char line[512];
	size_t len = sizeof(prefix) - 1;
	int saved = errno, n;

	memcpy(line, prefix, len);
	errno = saved; /* for %m */
	n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	if (n > 0)
		len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n : sizeof(line) - len - 2;
	if (errnum) {
		n = snprintf(line + len, sizeof(line) - len - 1, ": %s", strerror(errnum));
		if (n > 0)
			len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n
								  : sizeof(line) - len - 2;
	}
	line[len++] = '\n';
	if (write(log_fd, line, len) < 0) {
		/* A console that takes nothing must not stop the agent. */
	}
	errno = saved;
}

void log_debug(const char *fmt, ...)
{
	va_list ap;

	if (!log_verbose)
		return;
	va_start(ap, fmt);
	emit(0, fmt, ap);
	va_end(ap);
}

void log_info(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(0, fmt, ap);
	va_end(ap);
}

void log_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(errno, fmt, ap);
	va_end(ap);
}

void log_panic(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	emit(0, fmt, ap);
	va_end(ap);
	panic_fn();
	_exit(70);
}
