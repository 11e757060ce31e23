/* SPDX-License-Identifier: Apache-2.0 */
/* A small allocator; see alloc.h. */
#include "guest/alloc.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "guest/log.h"

#define CHUNK	16384u
#define PAGE	4096u
#define CLASSES 40u
#define LARGE	0xffu
#define USED	0x10cca7edu
#define FREE	0xf7eeb10cu

struct block {
	uint32_t state; /* USED, FREE */
	uint32_t class; /* of the small ones; LARGE */
	size_t size;	/* with the header; of a large one its mapping's */
};
_Static_assert(sizeof(struct block) == 16, "what is behind a header is aligned to 16 bytes");

static struct block *lists[CLASSES]; /* the next one's address is behind the header */
static char *chunk, *chunk_end;

static struct block *block_of(void *p)
{
	struct block *b = (struct block *)p - 1;

	if (b->state != USED)
		log_panic("memory: a block is freed twice or damaged");
	return b;
}

/* The class of a size, and the size rounded up to it: multiples of 1/4 of a power of two, at least 16. */
static uint32_t class_of(size_t *n)
{
	uint32_t class = 0;
	size_t step = 16, size = 32;

	for (; size < *n; size += step, class ++)
		if (size >= 8 * step)
			step *= 2;
	*n = size;
	return class;
}

static struct block *cut(size_t size)
{
	struct block *b;

	if ((size_t)(chunk_end - chunk) <
	    size) { /* what is left of it is lost: less than ALLOC_SMALL */
		char *p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);

		if (p == MAP_FAILED)
			return NULL;
		chunk = p;
		chunk_end = p + CHUNK;
	}
	b = (struct block *)(void *)chunk;
	chunk += size;
	return b;
}

static struct block *get_small(size_t size)
{
	uint32_t class = class_of(&size);
	struct block *b = lists[class];

	if (b)
		memcpy(&lists[class], b + 1, sizeof(void *));
	else
		b = cut(size);
	if (b)
		*b = (struct block){USED, class, size};
	return b;
}

static struct block *get_large(size_t size)
{
	struct block *b;

	size = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
	b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED)
		return NULL;
	*b = (struct block){USED, LARGE, size};
	return b;
}

void *alloc_get(size_t n)
{
	struct block *b = NULL;

	if (n <= ALLOC_SMALL)
		b = get_small(n + sizeof(*b));
	else if (n < PTRDIFF_MAX - PAGE)
		b = get_large(n + sizeof(*b));
	if (!b)
		errno = ENOMEM;
	return b ? b + 1 : NULL;
}

void *alloc_get_zeroed(size_t n)
{
	void *p = alloc_get(n);

	if (p && block_of(p)->class != LARGE)
		memset(p, 0, n);
	return p;
}

void alloc_put(void *p)
{
	int saved = errno;
	struct block *b;

	if (!p)
		return;
	b = block_of(p);
	b->state = FREE;
	if (b->class == LARGE) {
		munmap(b, b->size);
	} else {
		memcpy(p, &lists[b->class], sizeof(void *));
		lists[b->class] = b;
	}
	errno = saved;
}

static void *resize_large(struct block *b, size_t n)
{
	size_t size = (n + sizeof(*b) + PAGE - 1) & ~(size_t)(PAGE - 1);

	if (size != b->size) {
		b = mremap(b, b->size, size, MREMAP_MAYMOVE);
		if (b == MAP_FAILED)
			return NULL;
		b->size = size;
	}
	return b + 1;
}

void *alloc_resize(void *p, size_t n)
{
	struct block *b;
	size_t had;
	void *q;

	if (!p)
		return alloc_get(n);
	b = block_of(p);
	had = b->size - sizeof(*b);
	if (b->class == LARGE && n > ALLOC_SMALL && n < PTRDIFF_MAX - PAGE)
		return resize_large(b, n);
	if (n <= had && n >= had / 2)
		return p;
	q = alloc_get(n);
	if (!q)
		return n <= had ? p : NULL;
	memcpy(q, p, n < had ? n : had);
	alloc_put(p);
	return q;
}
