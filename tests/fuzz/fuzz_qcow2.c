/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlays that a VMM in foreign hands may have written: read as a layer below an empty one. What can be merged at all is, merged
 * once more, the same.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/qcow2.h"

#define SIZE ((600ull << 20) - 512) /* two tables, neither of them full */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static int file(void)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	check(fd >= 0);
	return fd;
}

static void compare(int a, int b)
{
	static char one[QCOW2_CLUSTER], other[QCOW2_CLUSTER];
	struct stat x, y;

	check(fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_size == y.st_size);
	for (off_t at = 0; at < x.st_size; at += QCOW2_CLUSTER) {
		ssize_t n = pread(a, one, sizeof(one), at);

		check(n > 0 && pread(b, other, sizeof(other), at) == n);
		check(memcmp(one, other, (size_t)n) == 0);
	}
}

/* The tables are in the first clusters; the input is spread over them, so that it need not be large. */
static int spread(const uint8_t *data, size_t size)
{
	int fd = file();

	for (unsigned i = 0; size > 0; i++) {
		size_t n = size < 128 ? size : 128;

		check(pwrite(fd, data, n, (off_t)i * QCOW2_CLUSTER) == (ssize_t)n);
		data += n;
		size -= n;
		check(ftruncate(fd, (off_t)(i + 1) * QCOW2_CLUSTER) == 0);
	}
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int layers[2] = {spread(data, size > 4096 ? 4096 : size), file()}, once = file(),
	    again = file();
	const char *why;

	check(qcow2_create(layers[1], SIZE) == 0);
	if (qcow2_merge(layers, 2, SIZE, once, NULL, &why) == 0) {
		check(!qcow2_check(once, SIZE));
		check(qcow2_merge(&once, 1, SIZE, again, NULL, &why) == 0);
		compare(once, again);
	}
	close(layers[0]);
	close(layers[1]);
	close(once);
	close(again);
	return 0;
}
