/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extents files of memory layers, which a VMM in foreign hands may have written, as another VMM
 * maps them; against a second, plain reading of what is where.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/vsock/vmm_ram.h"

#define GRANULE	 VMM_RAM_MIN_GRANULE
#define GRANULES 8u
#define SIZE	 ((uint64_t)GRANULES * GRANULE - VMM_RAM_PAGE) /* the last one is short */
#define LAYERS	 3u
#define LAYER_FD 200
#define BASE_FD	 190

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

/* A file of RAM's size, whose granules begin with mark. */
static int marked_file(uint8_t mark)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	check(fd >= 0 && ftruncate(fd, (off_t)SIZE) == 0);
	for (unsigned i = 0; i < GRANULES; i++)
		check(pwrite(fd, &mark, 1, (off_t)i * GRANULE) == 1);
	return fd;
}

/* Enter one layer in the table; false when it is none. */
static bool model(uint8_t owner[GRANULES], uint8_t mark, const uint8_t *extents, size_t size)
{
	uint64_t from = 0;

	if (size % 16)
		return false;
	for (size_t i = 0; i < size; i += 16) {
		uint64_t offset, length;

		memcpy(&offset, extents + i, 8);
		memcpy(&length, extents + i + 8, 8);
		if (offset < from || offset >= SIZE || offset % GRANULE || length == 0 ||
		    length > SIZE || offset + length > SIZE ||
		    (length % GRANULE && offset + length != SIZE))
			return false;
		from = offset + length;
		for (uint64_t at = offset; at < from; at += GRANULE)
			owner[at / GRANULE] = mark;
	}
	return true;
}

/* Byte 0: the number of layers; the rest is cut into as many extents files. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int base = -1, layer[LAYERS];
	static struct vmm_ram ram;
	uint8_t owner[GRANULES] = {0};
	unsigned layers;
	bool good = true;
	size_t each;
	char *map;
	int fd;

	if (size == 0)
		return 0;
	for (unsigned i = 0; base < 0 && i < LAYERS; i++)
		layer[i] = marked_file((uint8_t)(i + 1));
	if (base < 0)
		base = marked_file(0);
	layers = data[0] % LAYERS + 1;
	each = (size - 1) / layers;
	check(dup2(base, BASE_FD) == BASE_FD);
	check(vmm_ram_init(&ram, SIZE, BASE_FD, LAYER_FD, layers) == 0);
	for (unsigned i = 0; i < layers; i++) {
		const uint8_t *part = data + 1 + i * each;
		int at = LAYER_FD + 2 * (int)i, extents = memfd_create("fuzz", MFD_CLOEXEC);

		check(extents >= 0 && pwrite(extents, part, each, 0) == (ssize_t)each);
		check(dup2(layer[i], at) == at && dup2(extents, at + 1) == at + 1);
		close(extents);
		good = good && model(owner, (uint8_t)(i + 1), part, each);
	}
	vmm_ram_attach(&ram);
	fd = vmm_ram_open(ram.path);
	map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	check((map != MAP_FAILED) == good);
	for (unsigned i = 0; good && i < GRANULES; i++) {
		check((uint8_t)map[i * GRANULE] == owner[i]);
		map[i * GRANULE] = 99; /* privately */
	}
	if (good)
		munmap(map, SIZE);
	vmm_ram_attach(NULL);
	vmm_ram_close(&ram);
	close(fd);
	return 0;
}
