/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vsock/vmm_ram.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/vsock/vmm.h"

static struct vmm_ram *active;

void vmm_ram_attach(struct vmm_ram *ram)
{
	active = ram;
}

int vmm_ram_init(struct vmm_ram *ram, uint64_t size, int base_fd, int layer_fd, unsigned layers)
{
	*ram = (struct vmm_ram){.base_fd = base_fd, .opened_fd = -1, .layers = layers};
	if (size % VMM_RAM_PAGE || layers > VMM_RAM_MAX_LAYERS || (base_fd >= 0 && !size)) {
		vmm_log("RAM of %llu bytes with %u layers is out of range",
			(unsigned long long)size, layers);
		return -1;
	}
	for (unsigned i = 0; i < 2 * layers; i++)
		ram->layer_fds[i] = layer_fd + (int)i;
	ram->size = size;
	ram->granule = VMM_RAM_MIN_GRANULE;
	while (size / ram->granule >= VMM_RAM_GRANULES)
		ram->granule *= 2;
	snprintf(ram->path, sizeof(ram->path), "/proc/self/fd/%d", base_fd);
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void vmm_ram_close_layers(struct vmm_ram *ram)
{
	for (unsigned i = 0; i < 2 * ram->layers; i++)
		close(ram->layer_fds[i]);
	ram->layers = 0;
}

void vmm_ram_close(struct vmm_ram *ram)
{
	vmm_ram_close_layers(ram);
	close_fd(&ram->base_fd);
}

void vmm_ram_learn(struct vmm_ram *ram, const struct gmem_region *region, unsigned count)
{
	if (ram->base_fd >= 0)
		return;
	for (unsigned i = 0; i < count; i++)
		if (region[i].gpa == 0)
			ram->base = (uint8_t *)(uintptr_t)region[i].hva;
}

bool vmm_ram_is_restored(const void *p, size_t len)
{
	const uint8_t *at = p;

	return active && active->base_fd >= 0 && active->base && at >= active->base &&
	       len <= active->size && (size_t)(at - active->base) <= active->size - len;
}

int vmm_ram_open(const char *path)
{
	if (!active || active->base_fd < 0 || strcmp(path, active->path) != 0)
		return -2;
	active->opened_fd = fcntl(active->base_fd, F_DUPFD_CLOEXEC, 0);
	return active->opened_fd;
}

/* ---- layers ---- */

static int bad_layer(unsigned layer, const char *why)
{
	vmm_log("memory layer %u: %s", layer, why);
	errno = EINVAL;
	return -1;
}

/* Whether e can follow what ends at from. */
static bool extent_ok(const struct vmm_ram *ram, const struct vmm_extent *e, uint64_t from)
{
	return e->offset >= from && e->offset < ram->size && e->offset % ram->granule == 0 &&
	       e->length > 0 && e->length <= ram->size - e->offset &&
	       (e->length % ram->granule == 0 || e->offset + e->length == ram->size);
}

void vmm_ram_mark(const struct vmm_ram *ram, uint8_t *table, const uint8_t *p, size_t len,
		  uint8_t mark)
{
	size_t first = (size_t)(p - ram->base) / ram->granule;
	size_t last = ((size_t)(p - ram->base) + len - 1) / ram->granule;

	memset(table + first, mark, last - first + 1);
}

static void own(struct vmm_ram *ram, const struct vmm_extent *e, unsigned layer)
{
	uint64_t first = e->offset / ram->granule;
	uint64_t end = (e->offset + e->length + ram->granule - 1) / ram->granule;

	memset(ram->owner + first, (int)layer + 1, end - first);
}

/* Read and check one layer's extents, and enter them in the table of owners. */
int vmm_ram_take_layer(struct vmm_ram *ram, unsigned layer)
{
	int data_fd = ram->layer_fds[2 * layer], extents_fd = ram->layer_fds[2 * layer + 1];
	struct vmm_extent *extents;
	struct stat data, table;
	uint64_t from = 0;
	size_t size;
	int r = 0;

	if (fstat(data_fd, &data) < 0 || fstat(extents_fd, &table) < 0)
		return bad_layer(layer, strerrordesc_np(errno));
	size = (size_t)table.st_size;
	if (table.st_size < 0 || size % sizeof(*extents) ||
	    size > VMM_RAM_GRANULES * sizeof(*extents))
		return bad_layer(layer, "its extents file has a wrong size");
	if (size == 0)
		return 0;
	extents = malloc(size);
	if (!extents || pread(extents_fd, extents, size, 0) != (ssize_t)size)
		r = bad_layer(layer, "its extents cannot be read");
	for (size_t i = 0; r == 0 && i < size / sizeof(*extents); i++) {
		if (!extent_ok(ram, &extents[i], from))
			r = bad_layer(layer, "an extent is misplaced");
		else if (extents[i].offset + extents[i].length > (uint64_t)data.st_size)
			r = bad_layer(layer, "its data file is too short");
		else
			own(ram, &extents[i], layer);
		from = extents[i].offset + extents[i].length;
	}
	free(extents);
	return r;
}

/* ---- the base's holes ---- */

/* Whole granules of them. */
static void add_hole(struct vmm_ram *ram, uint64_t from, uint64_t to)
{
	size_t first = (size_t)((from + ram->granule - 1) / ram->granule);
	size_t end = to >= ram->size ? vmm_ram_granules(ram) : (size_t)(to / ram->granule);

	if (end > first)
		memset(ram->hole + first, 1, end - first);
}

static void find_holes(struct vmm_ram *ram)
{
	for (uint64_t at = 0; at < ram->size;) {
		off_t data = lseek(ram->base_fd, (off_t)at, SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(ram->base_fd, data, SEEK_HOLE);

		if (data < 0 && errno != ENXIO)
			return; /* this file system does not tell */
		add_hole(ram, at, data < 0 ? ram->size : (uint64_t)data);
		if (hole <= data)
			return;
		at = (uint64_t)hole;
	}
}

/* ---- mapping ---- */

/* Its file; -1: none. */
static int source_fd(const struct vmm_ram *ram, size_t granule)
{
	if (ram->owner[granule])
		return ram->layer_fds[2 * (ram->owner[granule] - 1)];
	return ram->hole[granule] ? -1 : ram->base_fd;
}

bool vmm_ram_same_source(const struct vmm_ram *ram, size_t a, size_t b)
{
	return ram->owner[a] == ram->owner[b] && (ram->owner[a] || ram->hole[a] == ram->hole[b]);
}

static void *map(void *place, const struct vmm_extent *e, int prot, int flags, int fd)
{
	long r = syscall(SYS_mmap, place, e->length, prot,
			 MAP_PRIVATE | flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd,
			 fd < 0 ? 0 : e->offset);

	return r < 0 ? NULL : (void *)r;
}

int vmm_ram_map(const struct vmm_ram *ram, size_t first, size_t count)
{
	struct vmm_extent e = vmm_ram_extent(ram, first, count);
	int fd = source_fd(ram, first);

	if (!map(ram->base + e.offset, &e, PROT_READ | PROT_WRITE, MAP_FIXED, fd)) {
		vmm_log("a part of the memory cannot be mapped: %s", strerrordesc_np(errno));
		return -1;
	}
	/* As a file's pages: what one VM touches is to be little. A kernel without them refuses. */
	if (fd < 0)
		syscall(SYS_madvise, ram->base + e.offset, e.length, MADV_NOHUGEPAGE);
	return 0;
}

void *vmm_ram_map_copy(const struct vmm_ram *ram, size_t first, size_t count)
{
	struct vmm_extent e = vmm_ram_extent(ram, first, count);

	return map(NULL, &e, PROT_READ, MAP_POPULATE, source_fd(ram, first));
}

/* QEMU mapped the base; what is not to be seen of it is mapped over. */
static int map_over_base(struct vmm_ram *ram)
{
	size_t granules = vmm_ram_granules(ram), end;

	for (unsigned i = 0; i < ram->layers; i++)
		if (vmm_ram_take_layer(ram, i) < 0)
			return -1;
	find_holes(ram);
	for (size_t at = 0; at < granules; at = end) {
		for (end = at + 1; end < granules && vmm_ram_same_source(ram, at, end);)
			end++;
		if ((ram->owner[at] || ram->hole[at]) && vmm_ram_map(ram, at, end - at) < 0)
			return -1;
	}
	return 0;
}

int vmm_ram_mapped(void *p, size_t len, int fd)
{
	struct vmm_ram *ram = active;

	if (!ram || fd < 0 || fd != ram->opened_fd || ram->base)
		return 0;
	if (len < ram->size)
		return 0; /* QEMU wants something else of it */
	ram->base = p;
	if (map_over_base(ram) < 0) {
		ram->base = NULL;
		return -1;
	}
	vmm_ram_close_layers(ram);
	return 0;
}
