/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's RAM as a whole: where QEMU mapped it, and what lies under it.
 *
 * A VM that boots has anonymous RAM; where it is, the vhost memory table tells. A VM that is
 * restored maps a file, the base, privately; over it the library maps the layers, of which the
 * topmost wins in each granule. Nobody can write to these files through the VMM: their descriptors
 * are read-only, and QEMU, which asks for a writable one, is given a duplicate of the base's.
 *
 * Where the base has a hole, the memory is anonymous: a page of a file's hole would be made in the
 * file system's cache before it is copied, and in the file itself where that is in memory (tmpfs),
 * which may be full: SIGBUS.
 */
#ifndef HUTCH_VSOCK_VMM_RAM_H
#define HUTCH_VSOCK_VMM_RAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/vsock/gmem.h"

#define VMM_RAM_PAGE	   4096u
#define VMM_RAM_MAX_LAYERS 100u
/*
 * A layer consists of granules, so that the mappings of RAM stay below the kernel's bound of 65530
 * however many layers there are.
 */
#define VMM_RAM_GRANULES    16384u
#define VMM_RAM_MIN_GRANULE 65536u

struct vmm_extent {
	uint64_t offset, length; /* bytes from the start of RAM */
};

struct vmm_ram {
	uint8_t *base;	  /* NULL: not known yet */
	uint64_t size;	  /* bytes; 0: not told */
	uint64_t granule; /* bytes */
	int base_fd;	  /* restored: the base; -1: booted */
	char path[40];	  /* the base's name on QEMU's command line */
	int opened_fd;	  /* what the open of path gave; -1: not opened yet */
	unsigned layers;
	int layer_fds
		[2 * VMM_RAM_MAX_LAYERS]; /* data, extents, data, ...; open until they are mapped */
	uint8_t owner[VMM_RAM_GRANULES]; /* layer + 1 that a granule was mapped from; 0: the base */
	uint8_t hole[VMM_RAM_GRANULES];	 /* 1: the base has nothing there */
};

static inline size_t vmm_ram_granules(const struct vmm_ram *ram)
{
	return (size_t)((ram->size + ram->granule - 1) / ram->granule);
}

/* Count granules from first on; the last one of RAM may be shorter. */
static inline struct vmm_extent vmm_ram_extent(const struct vmm_ram *ram, size_t first,
					       size_t count)
{
	struct vmm_extent e = {first * ram->granule, count * ram->granule};

	if (e.length > ram->size - e.offset)
		e.length = ram->size - e.offset;
	return e;
}

/* Each granule that has a byte of [p, p + len), in a table with one entry for each. */
void vmm_ram_mark(const struct vmm_ram *ram, uint8_t *table, const uint8_t *p, size_t len,
		  uint8_t mark);

/*
 * size: of RAM, 0 when unknown. base_fd -1: none. The library takes over all descriptors. 0, or -1
 * with the reason logged: a number is out of range.
 */
int vmm_ram_init(struct vmm_ram *ram, uint64_t size, int base_fd, int layer_fd, unsigned layers);
void vmm_ram_close(struct vmm_ram *ram);

/* The vhost memory table of a VM that boots says where RAM is. */
void vmm_ram_learn(struct vmm_ram *ram, const struct gmem_region *region, unsigned count);

/* The process's RAM, that open(), mmap() and madvise() look for; NULL: none. */
void vmm_ram_attach(struct vmm_ram *ram);
/* It was restored, and [p, p + len) is of it. */
bool vmm_ram_is_restored(const void *p, size_t len);
/* A descriptor for path when it is the base's; -1 with errno; -2 when it is another path. */
int vmm_ram_open(const char *path);
/* QEMU mapped len bytes of fd at p. 0, or -1 with errno when it was the base and its layers could
   not be mapped. */
int vmm_ram_mapped(void *p, size_t len, int fd);

/* The parts of that, for vmm_reload.c: check a layer's extents and enter them as owners. */
int vmm_ram_take_layer(struct vmm_ram *ram, unsigned layer);
/* Whether two granules come out of the same file, or both out of none. */
bool vmm_ram_same_source(const struct vmm_ram *ram, size_t a, size_t b);
/* Map granules of one source: at their place; elsewhere, to be read (NULL with errno). */
int vmm_ram_map(const struct vmm_ram *ram, size_t first, size_t count);
void *vmm_ram_map_copy(const struct vmm_ram *ram, size_t first, size_t count);
void vmm_ram_close_layers(struct vmm_ram *ram);

#endif
