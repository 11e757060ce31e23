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

/*
 * Report all own pages of the len bytes at base, both page-aligned. ioctl: use PAGEMAP_SCAN (Linux
 * 6.7) where it is there. Returns 0, -1 with errno of /proc/self/pagemap, or what fn returned.
 */
int vmm_scan_own(const uint8_t *base, size_t len, bool ioctl, vmm_scan_fn *fn, void *arg);

#endif
