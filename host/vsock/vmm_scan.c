/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vsock/vmm_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	4096u
#define REGIONS 512 /* of one PAGEMAP_SCAN */
#define ENTRIES 512 /* of one read */

/* linux/fs.h and linux/userfaultfd.h, which Debian 12's headers do not have yet. */
struct page_region {
	uint64_t start, end, categories;
};
struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN		   _IOWR('f', 16, struct pm_scan_arg)
#define SCAN_WP_MATCHING   (1u << 0)
#define SCAN_CHECK_WPASYNC (1u << 1)
#define SCAN_IS_WRITTEN	   (1u << 1)
#define SCAN_FILE	   (1u << 2) /* a page of the file, or of a shared mapping */
#define SCAN_PRESENT	   (1u << 3)
#define SCAN_SWAPPED	   (1u << 4)
#define SCAN_ZERO	   (1u << 5) /* the kernel's page of zeros */

/* An entry of /proc/self/pagemap. */
#define MAP_PRESENT (1ull << 63)
#define MAP_SWAPPED (1ull << 62)
#define MAP_FILE    (1ull << 61)

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#define TRACK_UNPOPULATED (1ull << 13)
#define TRACK_ASYNC	  (1ull << 15)

/* 1: done; 0: this kernel has no PAGEMAP_SCAN; -1: failed. */
static int scan_by_ioctl(int fd, const uint8_t *base, size_t len, enum vmm_scan what,
			 vmm_scan_fn *fn, void *arg)
{
	struct page_region region[REGIONS];
	struct pm_scan_arg scan = {.size = sizeof(scan),
				   .start = (uintptr_t)base,
				   .end = (uintptr_t)base + len,
				   .vec = (uintptr_t)region,
				   .vec_len = REGIONS,
				   .category_inverted = SCAN_FILE | SCAN_ZERO,
				   .category_mask = SCAN_FILE | SCAN_ZERO,
				   .category_anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
				   .return_mask = SCAN_PRESENT};

	if (what == VMM_SCAN_PROTECT)
		scan.flags = SCAN_WP_MATCHING | SCAN_CHECK_WPASYNC;
	if (what == VMM_SCAN_WRITTEN) {
		scan.flags = SCAN_CHECK_WPASYNC;
		scan.category_mask |= SCAN_IS_WRITTEN;
	}
	while (scan.start < scan.end) {
		long n = syscall(SYS_ioctl, fd, SCAN, &scan);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == ENOTTY ? 0 : -1;
		for (long i = 0; i < n; i++) {
			const uint8_t *p = base + (region[i].start - (uintptr_t)base);
			int r = fn(arg, p, (size_t)(region[i].end - region[i].start));

			if (r < 0)
				return r;
		}
		scan.start = scan.walk_end;
	}
	return 1;
}

static bool is_own(uint64_t entry)
{
	return (entry & (MAP_PRESENT | MAP_SWAPPED)) && !(entry & MAP_FILE);
}

static int scan_by_read(int fd, const uint8_t *base, size_t len, vmm_scan_fn *fn, void *arg)
{
	uint64_t entry[ENTRIES];
	size_t pages = len / PAGE;

	for (size_t at = 0; at < pages;) {
		size_t want = pages - at < ENTRIES ? pages - at : ENTRIES, end;
		off_t offset = (off_t)(((uintptr_t)base / PAGE + at) * sizeof(entry[0]));
		ssize_t n = pread(fd, entry, want * sizeof(entry[0]), offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n != (ssize_t)(want * sizeof(entry[0]))) {
			errno = n < 0 ? errno : EIO;
			return -1;
		}
		for (size_t i = 0; i < want; i = end) {
			bool own = is_own(entry[i]);
			int r;

			for (end = i + 1; end < want && is_own(entry[end]) == own;)
				end++;
			r = own ? fn(arg, base + (at + i) * PAGE, (end - i) * PAGE) : 0;
			if (r < 0)
				return r;
		}
		at += want;
	}
	return 0;
}

int vmm_scan(const uint8_t *base, size_t len, enum vmm_scan what, vmm_scan_fn *fn, void *arg)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), r, error;

	if (fd < 0)
		return -1;
	r = what != VMM_SCAN_READ ? scan_by_ioctl(fd, base, len, what, fn, arg) : 0;
	if (r == 0 && (what == VMM_SCAN_OWN || what == VMM_SCAN_READ)) {
		r = scan_by_read(fd, base, len, fn, arg);
	} else if (r == 0) {
		errno = ENOTTY;
		r = -1;
	}
	error = errno;
	close(fd);
	errno = error;
	return r < 0 ? r : 0;
}

int vmm_scan_track(const uint8_t *base, size_t len)
{
	struct uffdio_api api = {.api = UFFD_API, .features = TRACK_ASYNC | TRACK_UNPOPULATED};
	struct uffdio_register range = {.range = {(uintptr_t)base, len},
					.mode = UFFDIO_REGISTER_MODE_WP};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	int error;

	if (fd < 0)
		return -1;
	if (syscall(SYS_ioctl, fd, UFFDIO_API, &api) == 0 &&
	    syscall(SYS_ioctl, fd, UFFDIO_REGISTER, &range) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}
