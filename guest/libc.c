/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the C library that the agent brings itself (linked with musl only), because the library's own pull
 * in stdio and floating point, or because Debian's libmsgpackc.a was compiled against glibc and calls what musl
 * lacks.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/alloc.h"
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

/* Memory */

void *malloc(size_t n)
{
	return alloc_get(n);
}

void *calloc(size_t n, size_t size)
{
	size_t total;

	return alloc_get_zeroed(__builtin_mul_overflow(n, size, &total) ? SIZE_MAX : total);
}

void *realloc(void *p, size_t n)
{
	return alloc_resize(p, n);
}

void free(void *p)
{
	alloc_put(p);
}

/*
 * System calls without what musl puts around them: synchronizing threads, of which the agent has one, or standing
 * in for older kernels and 32-bit times. On 64-bit machines the structures are the kernel's own.
 */

int setrlimit(int resource, const struct rlimit *rlim)
{
	return (int)syscall(SYS_prlimit64, 0, resource, rlim, NULL);
}

int getrlimit(int resource, struct rlimit *rlim)
{
	return (int)syscall(SYS_prlimit64, 0, resource, NULL, rlim);
}

_Static_assert(sizeof(time_t) == 8 && sizeof(off_t) == 8 && sizeof(long) == 8, "a 64-bit machine");

int fstatat(int dir, const char *restrict path, struct stat *restrict st, int flags)
{
	return (int)syscall(SYS_newfstatat, dir, path, st, flags);
}

int fstat(int fd, struct stat *st)
{
	return (int)syscall(SYS_fstat, fd, st);
}

int utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
	return (int)syscall(SYS_utimensat, dir, path, times, flags);
}

int futimens(int fd, const struct timespec times[2])
{
	return (int)syscall(SYS_utimensat, fd, NULL, times, 0);
}

/* Without flags, as the agent calls them. */
int fchmodat(int dir, const char *path, mode_t mode, int flags)
{
	(void)flags;
	return (int)syscall(SYS_fchmodat, dir, path, mode);
}

int faccessat(int dir, const char *path, int mode, int flags)
{
	(void)flags;
	return (int)syscall(SYS_faccessat, dir, path, mode);
}

int fcntl(int fd, int command, ...)
{
	va_list ap;
	long arg;

	va_start(ap, command);
	arg = va_arg(ap, long);
	va_end(ap);
	return (int)syscall(SYS_fcntl, fd, command, arg);
}

int socket(int domain, int type, int protocol)
{
	return (int)syscall(SYS_socket, domain, type, protocol);
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
	return (int)syscall(SYS_socketpair, domain, type, protocol, fds);
}

int accept4(int fd, struct sockaddr *restrict addr, socklen_t *restrict len, int flags)
{
	return (int)syscall(SYS_accept4, fd, addr, len, flags);
}

int pipe2(int fds[2], int flags)
{
	return (int)syscall(SYS_pipe2, fds, flags);
}

int dup3(int from, int to, int flags)
{
	return (int)syscall(SYS_dup3, from, to, flags);
}

int fchmod(int fd, mode_t mode)
{
	return (int)syscall(SYS_fchmod, fd, mode);
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	return (int)syscall(SYS_fchown, fd, uid, gid);
}

int fchdir(int fd)
{
	return (int)syscall(SYS_fchdir, fd);
}

int signalfd(int fd, const sigset_t *mask, int flags)
{
	return (int)syscall(SYS_signalfd4, fd, mask, _NSIG / 8, flags);
}

/* Texts */

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

/* For short texts; the library's build a table of all bytes first. */
size_t strspn(const char *s, const char *of)
{
	size_t n = 0;

	while (s[n] && strchr(of, s[n]))
		n++;
	return n;
}

size_t strcspn(const char *s, const char *of)
{
	size_t n = 0;

	while (s[n] && !strchr(of, s[n]))
		n++;
	return n;
}

/* For short texts. */
char *strstr(const char *s, const char *what)
{
	size_t n = strlen(what);

	for (; strncmp(s, what, n) != 0; s++)
		if (!*s)
			return NULL;
	return (char *)(uintptr_t)s;
}

/* clang-format off */
#define TEXTS(X) \
	X(EPERM, "Operation not permitted") \
	X(ENOENT, "No such file or directory") \
	X(ESRCH, "No such process") \
	X(EINTR, "Interrupted system call") \
	X(EIO, "Input/output error") \
	X(ENXIO, "No such device or address") \
	X(E2BIG, "Argument list too long") \
	X(ENOEXEC, "Exec format error") \
	X(EBADF, "Bad file descriptor") \
	X(ECHILD, "No child processes") \
	X(EAGAIN, "Resource temporarily unavailable") \
	X(ENOMEM, "Cannot allocate memory") \
	X(EACCES, "Permission denied") \
	X(EFAULT, "Bad address") \
	X(EBUSY, "Device or resource busy") \
	X(EEXIST, "File exists") \
	X(EXDEV, "Invalid cross-device link") \
	X(ENODEV, "No such device") \
	X(ENOTDIR, "Not a directory") \
	X(EISDIR, "Is a directory") \
	X(EINVAL, "Invalid argument") \
	X(ENFILE, "Too many open files in system") \
	X(EMFILE, "Too many open files") \
	X(ENOTTY, "Inappropriate ioctl for device") \
	X(ETXTBSY, "Text file busy") \
	X(EFBIG, "File too large") \
	X(ENOSPC, "No space left on device") \
	X(ESPIPE, "Illegal seek") \
	X(EROFS, "Read-only file system") \
	X(EMLINK, "Too many links") \
	X(EPIPE, "Broken pipe") \
	X(ENAMETOOLONG, "File name too long") \
	X(ENOSYS, "Function not implemented") \
	X(ENOTEMPTY, "Directory not empty") \
	X(ELOOP, "Too many levels of symbolic links") \
	X(EOPNOTSUPP, "Operation not supported") \
	X(EADDRINUSE, "Address already in use") \
	X(ECONNRESET, "Connection reset by peer") \
	X(ENOBUFS, "No buffer space available") \
	X(ENOTCONN, "Transport endpoint is not connected") \
	X(ETIMEDOUT, "Connection timed out") \
	X(ECONNREFUSED, "Connection refused") \
	X(ESTALE, "Stale file handle") \
	X(EDQUOT, "Disk quota exceeded")
#define NUMBER(num, text) num,
#define TEXT(num, text)	 text "\0"
/* clang-format on */

/* Those that the agent may meet; the library's own table is twice as long. */
char *strerror(int errnum)
{
	static const uint8_t numbers[] = {TEXTS(NUMBER)};
	static const char texts[] = TEXTS(TEXT);
	static char other[24];
	const char *text = texts;

	for (size_t i = 0; i < sizeof(numbers); i++, text += strlen(text) + 1)
		if (numbers[i] == errnum)
			return (char *)(uintptr_t)text;
	snprintf(other, sizeof(other), "error %d", errnum);
	return other;
}
