/* SPDX-License-Identifier: Apache-2.0 */
/* The little of qcow2 that hutch needs. */
#include "host/hutchd/qcow2.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC	     0x514649fbu /* "QFI\xfb" */
#define CLUSTER_BITS 16u
#define ENTRIES	     (QCOW2_CLUSTER / 8) /* of a table of one cluster */
#define PER_L2	     ((uint64_t)ENTRIES * QCOW2_CLUSTER)
#define PER_BLOCK    (QCOW2_CLUSTER / 2) /* refcounts of 16 bits in a cluster */
#define HEADER	     112u
#define OFFSET_MASK  0x00fffffffffffe00ull /* of an entry of L1 and L2 */
#define COPIED	     (1ull << 63)
#define COMPRESSED   (1ull << 62)
#define ZERO	     1ull

/* All numbers big-endian. */
struct header {
	uint32_t magic, version;
	uint64_t backing_offset;
	uint32_t backing_size, cluster_bits;
	uint64_t size;
	uint32_t crypt, l1_size;
	uint64_t l1_offset, refcount_offset;
	uint32_t refcount_clusters, snapshots;
	uint64_t snapshots_offset;
	uint64_t incompatible, compatible, autoclear;
	uint32_t refcount_order, header_length;
	uint8_t compression, padding[7];
};
_Static_assert(sizeof(struct header) == HEADER, "as it is in the file");

static uint32_t l1_entries(uint64_t size)
{
	return (uint32_t)((size + PER_L2 - 1) / PER_L2);
}

static uint64_t l1_clusters(uint64_t size)
{
	return (l1_entries(size) * 8ull + QCOW2_CLUSTER - 1) / QCOW2_CLUSTER;
}

static int write_at(int fd, const void *data, size_t len, uint64_t at)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		at += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* What lies behind the end of the file is zeros. */
static int read_at(int fd, void *data, size_t len, uint64_t at)
{
	char *p = data;

	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0) {
			memset(p, 0, len);
			return 0;
		}
		p += n;
		at += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

/* ---- writing ---- */

/*
 * The header, the table of refcount blocks (one cluster of it counts 16 TiB), L1; then whatever follows, and the refcounts at
 * the end.
 */
#define TABLE_AT QCOW2_CLUSTER
#define L1_AT	 (2ull * QCOW2_CLUSTER)

/* Reference counts of all clusters up to *end, which are used once each, and of those that hold the counts. */
static int write_refcounts(int fd, uint64_t *end)
{
	uint64_t used = *end / QCOW2_CLUSTER, blocks = 0, at;
	uint16_t *block = malloc(QCOW2_CLUSTER);
	int rc = block ? 0 : -1;

	while (blocks * PER_BLOCK < used + blocks)
		blocks++;
	for (uint64_t b = 0; b < blocks && rc == 0; b++) {
		uint64_t here = used + blocks - b * PER_BLOCK;

		if (here > PER_BLOCK)
			here = PER_BLOCK;
		for (uint64_t i = 0; i < here; i++)
			block[i] = htobe16(1);
		at = htobe64(*end);
		rc = write_at(fd, block, here * sizeof(*block), *end);
		if (rc == 0)
			rc = write_at(fd, &at, sizeof(at), TABLE_AT + b * sizeof(at));
		*end += QCOW2_CLUSTER;
	}
	free(block);
	return rc;
}

static int write_header(int fd, uint64_t size)
{
	const struct header h = {
		.magic = htobe32(MAGIC),
		.version = htobe32(3),
		.cluster_bits = htobe32(CLUSTER_BITS),
		.size = htobe64(size),
		.l1_size = htobe32(l1_entries(size)),
		.l1_offset = htobe64(L1_AT),
		.refcount_offset = htobe64(TABLE_AT),
		.refcount_clusters = htobe32(1),
		.refcount_order = htobe32(4),
		.header_length = htobe32(HEADER),
	};

	return write_at(fd, &h, sizeof(h), 0);
}

static int finish(int fd, uint64_t size, uint64_t end)
{
	return write_refcounts(fd, &end) < 0 || ftruncate(fd, (off_t)end) < 0
		       ? -1
		       : write_header(fd, size);
}

static uint64_t first_free(uint64_t size)
{
	return L1_AT + l1_clusters(size) * QCOW2_CLUSTER;
}

uint64_t qcow2_empty_length(uint64_t size)
{
	return first_free(size) + QCOW2_CLUSTER;
}

int qcow2_create(int fd, uint64_t size)
{
	if (size == 0 || size > QCOW2_MAX_SIZE || size % 512) {
		errno = EINVAL;
		return -1;
	}
	return finish(fd, size, first_free(size));
}

/* ---- reading ---- */

static const char *check(const struct header *h, uint64_t least, uint64_t most, uint64_t length)
{
	uint64_t size = be64toh(h->size);

	if (be32toh(h->magic) != MAGIC || be32toh(h->version) != 3)
		return "it is no qcow2 of version 3";
	if (h->backing_offset || h->backing_size)
		return "it names a backing file";
	if (h->incompatible)
		return "it asks for features that it was not made with";
	if (h->autoclear)
		return "it has bitmaps or raw data";
	if (h->crypt)
		return "it is encrypted";
	if (h->snapshots)
		return "it has snapshots of its own";
	if (be32toh(h->cluster_bits) != CLUSTER_BITS || be32toh(h->refcount_order) != 4)
		return "its clusters are of another size";
	if (size < least || size > most || size % 512 || be32toh(h->l1_size) != l1_entries(size))
		return "it is of another size";
	if (be64toh(h->l1_offset) % QCOW2_CLUSTER || be64toh(h->l1_offset) == 0 ||
	    be64toh(h->l1_offset) >= length)
		return "its table lies outside of it";
	return NULL;
}

static const char *read_header(int fd, uint64_t least, uint64_t most, struct header *h)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || read_at(fd, h, sizeof(*h), 0) < 0)
		return "it cannot be read";
	return check(h, least, most, (uint64_t)st.st_size);
}

const char *qcow2_check(int fd, uint64_t size)
{
	struct header h;

	return read_header(fd, size, size, &h);
}

const char *qcow2_check_below(int fd, uint64_t most)
{
	struct header h;

	return read_header(fd, 512, most, &h);
}

/* ---- merging ---- */

struct layer {
	int fd;
	uint64_t length;
	uint64_t *l1; /* as it is in the file */
	uint64_t *l2; /* that of the part which is being merged */
	bool has_l2;
};

struct merge {
	struct layer *layers;
	size_t count;
	uint64_t size, end;
	int to;
	uint64_t *l1, *l2;
	char *cluster;
	const atomic_bool *cancel;
	const char *why;
};

static int broken(struct merge *m, const char *why)
{
	m->why = why;
	errno = EINVAL;
	return -1;
}

/* A cluster that a table names: its offset, checked. */
static int offset_of(struct merge *m, const struct layer *l, uint64_t entry, uint64_t *out)
{
	*out = entry & OFFSET_MASK;
	if (*out % QCOW2_CLUSTER || *out >= l->length)
		return broken(m, "a cluster lies outside of it");
	return 0;
}

static int open_layer(struct merge *m, struct layer *l, int fd)
{
	struct header h;
	struct stat st;
	const char *why = read_header(fd, 512, m->size, &h);

	if (why)
		return broken(m, why);
	if (fstat(fd, &st) < 0)
		return -1;
	l->fd = fd;
	l->length = (uint64_t)st.st_size;
	/* Behind its own end it has nothing. */
	l->l1 = calloc(l1_entries(m->size), sizeof(*l->l1));
	l->l2 = malloc(QCOW2_CLUSTER);
	if (!l->l1 || !l->l2)
		return -1;
	return read_at(fd, l->l1, be32toh(h.l1_size) * sizeof(*l->l1), be64toh(h.l1_offset));
}

static int read_l2(struct merge *m, struct layer *l, uint32_t part)
{
	uint64_t entry = be64toh(l->l1[part]), at;

	l->has_l2 = (entry & OFFSET_MASK) != 0;
	if (!l->has_l2)
		return 0;
	if (offset_of(m, l, entry, &at) < 0)
		return -1;
	return read_at(l->fd, l->l2, QCOW2_CLUSTER, at);
}

static bool is_zero(const char *p)
{
	return p[0] == 0 && memcmp(p, p + 1, QCOW2_CLUSTER - 1) == 0;
}

/* The topmost layer that knows the cluster says what it is. */
static int merge_cluster(struct merge *m, unsigned i)
{
	for (size_t n = m->count; n-- > 0;) {
		struct layer *l = &m->layers[n];
		uint64_t entry = l->has_l2 ? be64toh(l->l2[i]) : 0, at;

		if (entry & COMPRESSED)
			return broken(m, "a cluster is compressed");
		if (entry & ZERO) {
			m->l2[i] = htobe64(ZERO);
			return 1;
		}
		if (!(entry & OFFSET_MASK))
			continue;
		if (offset_of(m, l, entry, &at) < 0 ||
		    read_at(l->fd, m->cluster, QCOW2_CLUSTER, at) < 0)
			return -1;
		if (is_zero(m->cluster)) {
			m->l2[i] = htobe64(ZERO);
			return 1;
		}
		if (write_at(m->to, m->cluster, QCOW2_CLUSTER, m->end) < 0)
			return -1;
		m->l2[i] = htobe64(m->end | COPIED);
		m->end += QCOW2_CLUSTER;
		return 1;
	}
	return 0;
}

/* What one table of L2 covers. */
static int merge_part(struct merge *m, uint32_t part)
{
	bool any = false, used = false;

	for (size_t n = 0; n < m->count; n++) {
		if (read_l2(m, &m->layers[n], part) < 0)
			return -1;
		any |= m->layers[n].has_l2;
	}
	if (!any)
		return 0;
	memset(m->l2, 0, QCOW2_CLUSTER);
	for (unsigned i = 0; i < ENTRIES; i++) {
		int rc = 0;

		if (m->cancel && i % 64 == 0 && atomic_load(m->cancel)) {
			errno = ECANCELED;
			return -1;
		}
		if (part * PER_L2 + (uint64_t)i * QCOW2_CLUSTER < m->size)
			rc = merge_cluster(m, i);
		if (rc < 0)
			return -1;
		used |= rc > 0;
	}
	if (!used)
		return 0;
	if (write_at(m->to, m->l2, QCOW2_CLUSTER, m->end) < 0)
		return -1;
	m->l1[part] = htobe64(m->end | COPIED);
	m->end += QCOW2_CLUSTER;
	return 0;
}

static int merge_all(struct merge *m, const int *from)
{
	uint32_t parts = l1_entries(m->size);

	if (!m->layers || !m->l1 || !m->l2 || !m->cluster)
		return -1;
	for (size_t n = 0; n < m->count; n++)
		if (open_layer(m, &m->layers[n], from[n]) < 0)
			return -1;
	for (uint32_t part = 0; part < parts; part++)
		if (merge_part(m, part) < 0)
			return -1;
	if (write_at(m->to, m->l1, parts * sizeof(*m->l1), L1_AT) < 0)
		return -1;
	return finish(m->to, m->size, m->end);
}

int qcow2_merge(const int *from, size_t count, uint64_t size, int to, const atomic_bool *cancel,
		const char **why)
{
	struct merge m = {.layers = calloc(count ? count : 1, sizeof(*m.layers)),
			  .count = count,
			  .size = size,
			  .end = first_free(size),
			  .to = to,
			  .l1 = calloc(l1_entries(size) + 1u, sizeof(*m.l1)),
			  .l2 = malloc(QCOW2_CLUSTER),
			  .cluster = malloc(QCOW2_CLUSTER),
			  .cancel = cancel};
	int rc = merge_all(&m, from), error = errno;

	for (size_t n = 0; m.layers && n < count; n++) {
		free(m.layers[n].l1);
		free(m.layers[n].l2);
	}
	free(m.layers);
	free(m.l1);
	free(m.l2);
	free(m.cluster);
	*why = m.why;
	errno = error;
	return rc;
}
