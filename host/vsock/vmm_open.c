/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open(), mmap(), madvise() and close() of the whole process. The first two are for the memory of a VM that is restored, close()
 * for that of one which is reloaded (vmm_reload.h).
 *
 * QEMU 7.2 opens a memory-backend-file's path O_RDWR even with share=off. Whoever escapes into a
 * VMM could then write to the file that its sibling VMs map. So open() and its relatives answer
 * that one path, exactly as it is spelt on QEMU's command line, with a duplicate of the read-only
 * descriptor that the VMM was given; a private mapping of it is writable all the same. mmap() tells
 * where QEMU put it.
 *
 * And madvise(), for all VMs: QEMU asks for huge pages for each block of memory, also for the one that holds the ACPI
 * tables, 2 MiB of which 64 KiB are used, and for one that is mostly shared with others (vmm_ram.h). And that no fork has its memory, which is what a zygote's are for (vmm_fork.h).
 */
#undef _FORTIFY_SOURCE /* its inline open() and ours exclude each other */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/vsock/vmm_fork.h"
#include "host/vsock/vmm_ram.h"
#include "host/vsock/vmm_reload.h"

#define HUGE_PAGE (2u << 20)

/* glibc's names for calls whose flags are no constant (_FORTIFY_SOURCE). */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);

static int do_open(int dir, const char *path, int flags, mode_t mode)
{
	int fd = vmm_ram_open(path);

	return fd == -2 ? (int)syscall(SYS_openat, dir, path, flags, mode) : fd;
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

static void *do_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *p = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, offset);
	int error;

	if (p == MAP_FAILED || fd < 0 || vmm_ram_mapped(p, len, fd) == 0)
		return p;
	error = errno;
	munmap(p, len);
	errno = error;
	return MAP_FAILED;
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return do_mmap(addr, len, prot, flags, fd, offset);
}

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return do_mmap(addr, len, prot, flags, fd, offset);
}

int close(int fd)
{
	vmm_reload_closing();
	return (int)syscall(SYS_close, fd);
}

int madvise(void *addr, size_t len, int advice)
{
	if (advice == MADV_HUGEPAGE && (len <= HUGE_PAGE || vmm_ram_is_restored(addr, len)))
		return 0;
	if (advice == MADV_DONTFORK && vmm_fork_is_prepared())
		return 0;
	return (int)syscall(SYS_madvise, addr, len, advice);
}
