/* SPDX-License-Identifier: Apache-2.0 */
/* A file of this machine that is replaced as a whole; see hostfile.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/hutch/hostfile.h"

#define HOLE 4096 /* zeros of this length, at a multiple of it, are not written */

static int open_temp(struct hostfile *f)
{
	const char *slash = strrchr(f->path, '/');
	int dir = slash ? (int)(slash - f->path + 1) : 0;
	uint64_t n = 0;

	if (getrandom(&n, sizeof(n), GRND_NONBLOCK) < 0)
		n = (uint64_t)getpid();
	if (asprintf(&f->temp, "%.*s.hutch.%016" PRIx64, dir, f->path, n) < 0) {
		f->temp = NULL;
		errno = ENOMEM;
		return -1;
	}
	return open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int hostfile_open(struct hostfile *f, const char *path)
{
	struct stat st;

	*f = (struct hostfile){.fd = -1};
	f->exists = stat(path, &st) == 0;
	if (!f->exists && errno != ENOENT)
		return -1;
	f->mode = f->exists ? st.st_mode & 07777 : 0;
	f->path = f->exists ? realpath(path, NULL) : strdup(path);
	if (f->path == NULL)
		return -1;
	if (f->exists && !S_ISREG(st.st_mode)) {
		f->fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	} else if (!f->exists && lstat(path, &st) == 0) {
		errno = ENOENT; /* a link that leads nowhere is not written through */
	} else {
		f->fd = open_temp(f);
		if (f->fd < 0) {
			free(f->temp);
			f->temp = NULL;
		}
	}
	return f->fd < 0 ? -1 : 0;
}

static int write_all(struct hostfile *f, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(f->fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static bool all_zero(const char *p, size_t len)
{
	return p[0] == 0 && memcmp(p, p + 1, len - 1) == 0;
}

/* Of the bytes at p, how many from the start are zeros (hole), or are not, in whole pieces. */
static size_t run(uint64_t at, const char *p, size_t len, bool *hole)
{
	size_t first = HOLE - at % HOLE, n = 0;

	*hole = false;
	if (first != HOLE) /* up to where a piece begins */
		return first < len ? first : len;
	while (len - n >= HOLE) {
		bool zero = all_zero(p + n, HOLE);

		if (n == 0)
			*hole = zero;
		else if (zero != *hole)
			return n;
		n += HOLE;
	}
	return n > 0 ? n : len;
}

int hostfile_write(struct hostfile *f, const void *data, size_t len)
{
	const char *p = data;

	if (f->temp == NULL) {
		f->size += len;
		return write_all(f, p, len);
	}
	while (len > 0) {
		bool hole;
		size_t n = run(f->size, p, len, &hole);

		if (hole ? lseek(f->fd, (off_t)n, SEEK_CUR) < 0 : write_all(f, p, n) < 0)
			return -1;
		f->size += n;
		p += n;
		len -= n;
	}
	return 0;
}

int hostfile_commit(struct hostfile *f, mode_t mode, const struct timespec *mtime)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, *mtime};
	int r;

	if (f->temp == NULL) {
		r = close(f->fd);
		f->fd = -1;
		return r;
	}
	if (ftruncate(f->fd, (off_t)f->size) < 0 || fchmod(f->fd, f->exists ? f->mode : mode) < 0 ||
	    futimens(f->fd, times) < 0)
		return -1;
	r = close(f->fd);
	f->fd = -1;
	if (r < 0 || rename(f->temp, f->path) < 0)
		return -1;
	free(f->temp);
	f->temp = NULL;
	return 0;
}

void hostfile_close(struct hostfile *f)
{
	int saved = errno;

	if (f->fd >= 0)
		close(f->fd);
	if (f->temp != NULL)
		unlink(f->temp);
	free(f->temp);
	free(f->path);
	*f = (struct hostfile){.fd = -1};
	errno = saved;
}
