/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The little of qcow2 that hutch needs (QEMU, docs/interop/qcow2.txt): overlays of version 3 with clusters of 64 KiB that
 * name no backing file, since what lies under one is always said beside it.
 *
 * An overlay that a VMM has written may be forged in every byte. Nothing here believes it: a header must be what
 * qcow2_create wrote but for what QEMU moves, and each offset is checked before it is used.
 */
#ifndef HUTCH_HOST_QCOW2_H
#define HUTCH_HOST_QCOW2_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define QCOW2_CLUSTER  65536u
#define QCOW2_MAX_SIZE (1ull << 40)

/* Into an empty file: an overlay of size bytes with nothing in it. -1 with errno. */
int qcow2_create(int fd, uint64_t size);
/* The length of such a file. */
uint64_t qcow2_empty_length(uint64_t size);

/*
 * NULL when the header is one of ours for size bytes; else what is wrong with it, a clause. Only what QEMU would go by is looked
 * at: no backing file, no other data file, no encryption, no snapshots, no features.
 */
const char *qcow2_check(int fd, uint64_t size);
/* The same for one that lies below others, whose disk may have been smaller: of at most most bytes. */
const char *qcow2_check_below(int fd, uint64_t most);

/*
 * All that the overlays in from, the lowest first, of at most size bytes each, hold together, into the empty file to, of size bytes: for
 * whoever reads, to is what they are.
 * 0; -1 with errno: EINVAL one of them is broken (*why tells), EFBIG, ECANCELED when *cancel (may be NULL) was set meanwhile.
 */
int qcow2_merge(const int *from, size_t count, uint64_t size, int to, const atomic_bool *cancel,
		const char **why);

#endif
