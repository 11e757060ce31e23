/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory file stays read-only.
 *
 * QEMU 7.2 opens a memory-backend-file's path O_RDWR even with share=off. Whoever escapes into a
 * VMM could then write to the file that its sibling VMs map. So open() and its relatives answer
 * that one path, exactly as it is spelt on QEMU's command line, with a read-only descriptor; a
 * private mapping of it is writable all the same.
 */
#undef _FORTIFY_SOURCE /* its inline open() and ours exclude each other */
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/vsock/vmm.h"

/* glibc's names for calls whose flags are no constant (_FORTIFY_SOURCE). */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

static const char *read_only_path;

void vmm_open_read_only(const char *path)
{
	read_only_path = path;
}

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
	if (read_only_path && strcmp(path, read_only_path) == 0)
		flags = (flags & ~(O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND)) | O_RDONLY;
	return (int)syscall(SYS_openat, dir, path, flags, mode);
}

/* The mode, which is there only when a file may be made. */
#define TAKE_MODE(flags, mode)                           \
	do {                                             \
		if ((flags) & (O_CREAT | __O_TMPFILE)) { \
			va_list ap_;                     \
			va_start(ap_, flags);            \
			(mode) = va_arg(ap_, mode_t);    \
			va_end(ap_);                     \
		}                                        \
	} while (0)

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return do_open(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return do_open(AT_FDCWD, path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return do_open(dir, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return do_open(dir, path, flags, mode);
}

int __open_2(const char *path, int flags)
{
	return do_open(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return do_open(AT_FDCWD, path, flags, 0);
}

int __openat_2(int dir, const char *path, int flags)
{
	return do_open(dir, path, flags, 0);
}

int __openat64_2(int dir, const char *path, int flags)
{
	return do_open(dir, path, flags, 0);
}
