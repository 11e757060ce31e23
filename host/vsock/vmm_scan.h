/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of a private mapping are this process's own: written since they were mapped, present
 * or swapped out. From /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
 */
#ifndef HUTCH_VSOCK_VMM_SCAN_H
#define HUTCH_VSOCK_VMM_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Own pages from p on, len bytes, one run a call, ascending. A failure: -1 with errno. */
typedef int vmm_scan_fn(void *arg, const uint8_t *p, size_t len);

enum vmm_scan {
	VMM_SCAN_OWN,	  /* by PAGEMAP_SCAN (Linux 6.7) where it is there, else by reading */
	VMM_SCAN_READ,	  /* the same by reading */
	VMM_SCAN_PROTECT, /* and protect those that are reported; the range is tracked */
	VMM_SCAN_WRITTEN, /* only those that were written since they were protected, or are new */
};

/*
 * Report own pages of the len bytes at base, both page-aligned. Returns 0, -1 with errno (of
 * /proc/self/pagemap; EPERM: the range is not tracked), or what fn returned.
 */
int vmm_scan(const uint8_t *base, size_t len, enum vmm_scan what, vmm_scan_fn *fn, void *arg);

/*
 * Track writes to the range, until the descriptor that is returned is closed: the first write to a
 * page that was protected costs the writer a page fault, which the kernel resolves by itself
 * (userfaultfd(2), UFFD_FEATURE_WP_ASYNC, Linux 6.7). -1 with errno where it can't.
 */
int vmm_scan_track(const uint8_t *base, size_t len);

#endif
