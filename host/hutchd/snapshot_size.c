/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What named snapshots take on the disk, counted from what is there. A file counts once, however many of the snapshots
 * counted share it (hard links); also when a VM or a template has it as well, since it stays when those are gone.
 */
#include "host/hutchd/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/hutchd/fdutil.h"

struct size {
	uint64_t bytes;
	uint64_t *shared; /* inode and blocks of files that have several links, as they came */
	size_t count, room;
	bool failed;
};

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void note_shared(struct size *s, const struct stat *st)
{
	uint64_t pair[2] = {(uint64_t)st->st_ino, (uint64_t)st->st_blocks};

	if (s->count == s->room) {
		size_t room = s->room ? 2 * s->room : 64;
		uint64_t *grown = realloc(s->shared, room * sizeof(pair));

		if (!grown) {
			s->failed = true;
			return;
		}
		s->shared = grown;
		s->room = room;
	}
	memcpy(s->shared + 2 * s->count++, pair, sizeof(pair));
}

static void count_file(struct size *s, int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	if (st.st_nlink > 1)
		note_shared(s, &st);
	else
		s->bytes += (uint64_t)st.st_blocks * 512;
}

/* Call each for the names in a directory that are not hidden. */
static void walk(struct size *s, int dirfd,
		 void (*each)(struct size *s, int dirfd, const char *name))
{
	int copy = dir_open(dirfd, ".");
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	const struct dirent *e;

	if (!dir) {
		fd_close(&copy);
		s->failed = true;
		return;
	}
	while ((e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.')
			each(s, dirfd, e->d_name);
	closedir(dir);
}

static void count_snapshot(struct size *s, int dirfd, const char *name)
{
	int fd = dir_open(dirfd, name);

	if (fd >= 0)
		walk(s, fd, count_file);
	fd_close(&fd);
}

static void count_owner(struct size *s, int dirfd, const char *owner)
{
	int fd = dir_open(dirfd, owner);

	if (fd >= 0)
		walk(s, fd, count_snapshot);
	fd_close(&fd);
}

/* The shared ones, each once. */
static void add_shared(struct size *s)
{
	if (s->count)
		qsort(s->shared, s->count, 2 * sizeof(*s->shared), by_number);
	for (size_t i = 0; i < s->count; i++)
		if (i == 0 || s->shared[2 * i] != s->shared[2 * i - 2])
			s->bytes += s->shared[2 * i + 1] * 512;
	free(s->shared);
}

int snapshot_bytes(const struct broker *b, const uint32_t *owner, int more, uint64_t *out)
{
	struct size s = {.bytes = 0};
	char name[16];

	if (owner) {
		snprintf(name, sizeof(name), "%u", (unsigned)*owner);
		count_owner(&s, b->snapshots_fd, name);
	} else {
		walk(&s, b->snapshots_fd, count_owner);
	}
	if (more >= 0)
		walk(&s, more, count_file);
	add_shared(&s);
	*out = s.bytes;
	errno = ENOMEM;
	return s.failed ? -1 : 0;
}
