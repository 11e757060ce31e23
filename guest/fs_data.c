/* SPDX-License-Identifier: Apache-2.0 */
/* A file's bytes; see fs_data.h. lseek(2), copy_file_range(2). */
#include "guest/fs_data.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Between two looks at the peer. */
#define STRETCH (4 << 20)
/* The most that is read of a file without a size. */
#define UNSIZED (16 << 20)

bool fs_may_have_holes(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;
}

bool fs_next_data(int fd, off_t from, off_t size, off_t *at, off_t *end)
{
	*at = from < size ? lseek(fd, from, SEEK_DATA) : size;
	if (*at < 0 && errno != ENXIO) {
		*at = from;
		*end = size;
		return true;
	}
	if (*at < 0 || *at >= size)
		return false;
	*end = lseek(fd, *at, SEEK_HOLE);
	if (*end < 0 || *end > size)
		*end = size;
	return true;
}

int fs_write_all(int fd, const void *p, size_t n)
{
	const char *from = p;

	while (n > 0) {
		ssize_t done = write(fd, from, n);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -1;
		from += done;
		n -= (size_t)done;
	}
	return 0;
}

/* At the same offset, by reading and writing. Bytes; 0: the file ended; -1. */
static ssize_t copy_plain(int from, int to, off_t at, size_t n)
{
	static char buf[65536];
	ssize_t done = pread(from, buf, n < sizeof(buf) ? n : sizeof(buf), at);

	if (done > 0 && (lseek(to, at, SEEK_SET) < 0 || fs_write_all(to, buf, (size_t)done) < 0))
		return -1;
	return done;
}

/* The same in the kernel, where that works: not across some file systems. */
static ssize_t copy_some(int from, int to, off_t at, size_t n)
{
	off_t in = at, out = at;
	ssize_t done = syscall(SYS_copy_file_range, from, &in, to, &out, n, 0u);

	if (done >= 0 || errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
		return done;
	return copy_plain(from, to, at, n);
}

/* The files of /proc have no size, and are read to their end. */
static int64_t copy_unsized(int from, int to)
{
	off_t at = 0;
	ssize_t n = 0;

	while (at < UNSIZED && (n = copy_plain(from, to, at, STRETCH)) > 0)
		at += n;
	return n < 0 && errno != EAGAIN ? -1 : at;
}

int64_t fs_copy_data(struct fs *fs, int from, int to, const struct stat *st)
{
	off_t at = 0, end = 0;
	int64_t bytes = 0;

	if (st->st_size == 0)
		return copy_unsized(from, to);
	while (fs_next_data(from, end, st->st_size, &at, &end)) {
		while (at < end) {
			size_t n = end - at < STRETCH ? (size_t)(end - at) : STRETCH;
			ssize_t done = copy_some(from, to, at, n);

			if (done < 0 || !fs_peer_waits(fs))
				return -1;
			if (done == 0)
				return bytes; /* it was cut meanwhile */
			at += done;
			bytes += done;
		}
	}
	return ftruncate(to, st->st_size) < 0 ? -1 : bytes;
}
