/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's memory: which guest-physical addresses are RAM and where they are mapped here. Every
 * address a guest gives is turned into a pointer by this file and nowhere else.
 */
#ifndef HUTCH_VSOCK_GMEM_H
#define HUTCH_VSOCK_GMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define GMEM_MAX_REGIONS 64 /* as the kernel's vhost (max_mem_regions) */

struct gmem_region {
	uint64_t gpa;
	uint64_t size; /* bytes */
	uint64_t hva;  /* address in this process */
};

struct gmem {
	unsigned count;
	unsigned last; /* region of the last hit */
	struct gmem_region region[GMEM_MAX_REGIONS];
};

/*
 * Replaces the table. Returns 0; -E2BIG: more than GMEM_MAX_REGIONS; -EINVAL: a region that is
 * empty, wraps around, is mapped at 0, or overlaps another in guest addresses. On error the old
 * table stays.
 */
int gmem_set(struct gmem *mem, const struct gmem_region *region, unsigned count);

/* Pointer to len > 0 bytes that lie in one region, or NULL. */
void *gmem_ptr(struct gmem *mem, uint64_t gpa, uint64_t len);

/*
 * Describes the len > 0 bytes at gpa as at most room pieces in iov. Returns the number of pieces,
 * -EFAULT when any byte is outside the table, -ENOSPC when room is too small.
 */
int gmem_iov(struct gmem *mem, uint64_t gpa, uint64_t len, struct iovec *iov, unsigned room);

/* Whether the len bytes at the local address hva lie in one region. */
bool gmem_maps(const struct gmem *mem, uint64_t hva, uint64_t len);

#endif
