/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a sparse file. */
#include "host/hutchd/digest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/sha256_x86.h"

#define PAGE  4096u
#define CHUNK (64u * PAGE)

static void add_number(struct sha256 *s, uint64_t v)
{
	uint8_t b[8];

	for (unsigned i = 0; i < 8; i++)
		b[i] = (uint8_t)(v >> (56 - 8 * i));
	sha256_add(s, b, sizeof(b));
}

static bool all_zero(const uint8_t *p)
{
	return p[0] == 0 && memcmp(p, p + 1, PAGE - 1) == 0;
}

/* at is page-aligned, buf filled up with zeros to a whole page. */
static void add_pages(struct sha256 *s, uint64_t at, const uint8_t *buf, size_t len)
{
	for (size_t n = 0; n < len; n += PAGE) {
		if (all_zero(buf + n))
			continue;
		add_number(s, (at + n) / PAGE);
		sha256_add_fast(s, buf + n, PAGE);
	}
}

/* All of buf, unless the file ends before: how much; -1 with errno. */
static ssize_t read_at(int fd, uint8_t *buf, size_t len, off_t at)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n = pread(fd, buf + have, len - have, at + (off_t)have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

/* One stretch of data; begin is page-aligned. */
static int add_stretch(struct sha256 *s, int fd, off_t begin, off_t end, uint8_t *buf,
		       uint64_t *bytes, const atomic_bool *cancel)
{
	while (begin < end) {
		off_t left = end - begin;
		ssize_t n = read_at(fd, buf, left < (off_t)CHUNK ? (size_t)left : CHUNK, begin);
		size_t pages;

		if (n < 0)
			return -1;
		if (n == 0)
			break;
		if (cancel && atomic_load(cancel)) {
			errno = ECANCELED;
			return -1;
		}
		pages = ((size_t)n + PAGE - 1) / PAGE * PAGE;
		memset(buf + n, 0, pages - (size_t)n);
		add_pages(s, (uint64_t)begin, buf, pages);
		*bytes += (uint64_t)n;
		begin += n;
	}
	return 0;
}

static int add_file(struct sha256 *s, int fd, off_t size, uint8_t *buf, uint64_t *bytes,
		    const atomic_bool *cancel)
{
	off_t at = 0;

	while (at < size) {
		off_t data = lseek(fd, at, SEEK_DATA), begin, end;

		if (data < 0)
			return errno == ENXIO ? 0 : -1; /* a hole up to the end */
		/* From the data on: where blocks are smaller than a page, what is before it in its page may be a hole. */
		end = lseek(fd, data, SEEK_HOLE);
		if (end < 0)
			return -1;
		begin = data - data % PAGE;
		if (begin < at)
			begin = at;
		end = (end + PAGE - 1) / PAGE * PAGE;
		if (end > size)
			end = size;
		if (add_stretch(s, fd, begin, end, buf, bytes, cancel) < 0)
			return -1;
		at = end;
	}
	return 0;
}

int digest_plain(int fd, char out[DIGEST_HEX + 1], uint64_t *bytes, const atomic_bool *cancel)
{
	uint8_t *buf = malloc(CHUNK);
	struct sha256 s;
	ssize_t n = buf ? 1 : -1;
	off_t at = 0;

	sha256_init(&s);
	while (n > 0) {
		n = read_at(fd, buf, CHUNK, at);
		if (n > 0 && cancel && atomic_load(cancel)) {
			errno = ECANCELED;
			n = -1;
		}
		if (n > 0)
			sha256_add_fast(&s, buf, (size_t)n);
		at += n > 0 ? n : 0;
	}
	free(buf);
	if (n < 0)
		return -1;
	sha256_hex(&s, out);
	if (bytes)
		*bytes += (uint64_t)at;
	return 0;
}

int digest_file(int fd, char out[DIGEST_HEX + 1], uint64_t *bytes, const atomic_bool *cancel)
{
	uint8_t *buf = malloc(CHUNK);
	uint64_t count = 0;
	struct sha256 s;
	struct stat st;
	int rc;

	sha256_init(&s);
	rc = buf ? fstat(fd, &st) : -1;
	if (rc == 0)
		rc = add_file(&s, fd, st.st_size, buf, &count, cancel);
	free(buf);
	if (rc < 0)
		return -1;
	add_number(&s, (uint64_t)st.st_size);
	sha256_hex(&s, out);
	if (bytes)
		*bytes += count;
	return 0;
}
