/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's memory table: validation and translation. */
#include "host/vsock/gmem.h"

#include <errno.h>
#include <string.h>

static bool region_sane(const struct gmem_region *r)
{
	return r->size > 0 && r->hva != 0 && r->size <= UINT64_MAX - r->gpa &&
	       r->size <= (uint64_t)UINTPTR_MAX - r->hva;
}

static bool regions_overlap(const struct gmem_region *a, const struct gmem_region *b)
{
	return a->gpa < b->gpa + b->size && b->gpa < a->gpa + a->size;
}

int gmem_set(struct gmem *mem, const struct gmem_region *region, unsigned count)
{
	if (count > GMEM_MAX_REGIONS)
		return -E2BIG;
	for (unsigned i = 0; i < count; i++) {
		if (!region_sane(&region[i]))
			return -EINVAL;
		for (unsigned j = 0; j < i; j++) {
			if (regions_overlap(&region[i], &region[j]))
				return -EINVAL;
		}
	}
	memcpy(mem->region, region, count * sizeof(*region));
	mem->count = count;
	mem->last = 0;
	return 0;
}

static bool region_has(const struct gmem_region *r, uint64_t gpa)
{
	return gpa >= r->gpa && gpa - r->gpa < r->size;
}

static const struct gmem_region *region_find(struct gmem *mem, uint64_t gpa)
{
	if (mem->last < mem->count && region_has(&mem->region[mem->last], gpa))
		return &mem->region[mem->last];
	for (unsigned i = 0; i < mem->count; i++) {
		if (region_has(&mem->region[i], gpa)) {
			mem->last = i;
			return &mem->region[i];
		}
	}
	return NULL;
}

/* Pointer to gpa and, in *run, how many bytes from there on are in the same region. */
static void *region_ptr(const struct gmem_region *r, uint64_t gpa, uint64_t *run)
{
	uint64_t off = gpa - r->gpa;

	*run = r->size - off;
	return (void *)(uintptr_t)(r->hva + off);
}

void *gmem_ptr(struct gmem *mem, uint64_t gpa, uint64_t len)
{
	const struct gmem_region *r = region_find(mem, gpa);
	uint64_t run;
	void *p;

	if (!r)
		return NULL;
	p = region_ptr(r, gpa, &run);
	return len <= run ? p : NULL;
}

int gmem_iov(struct gmem *mem, uint64_t gpa, uint64_t len, struct iovec *iov, unsigned room)
{
	unsigned n = 0;

	while (len > 0) {
		const struct gmem_region *r = region_find(mem, gpa);
		uint64_t run;

		if (!r)
			return -EFAULT;
		if (n == room)
			return -ENOSPC;
		iov[n].iov_base = region_ptr(r, gpa, &run);
		if (run > len)
			run = len;
		iov[n++].iov_len = run;
		len -= run;
		gpa += run; /* region_sane: no region ends beyond 2^64 - 1 */
	}
	return (int)n;
}

bool gmem_maps(const struct gmem *mem, uint64_t hva, uint64_t len)
{
	for (unsigned i = 0; i < mem->count; i++) {
		const struct gmem_region *r = &mem->region[i];

		if (hva >= r->hva && hva - r->hva < r->size && len <= r->size - (hva - r->hva))
			return true;
	}
	return false;
}
