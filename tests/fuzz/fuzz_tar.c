/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an archive, in pieces whose size the first byte says: it ends, within its bounds, and what is
 * written of a member that was read is read alike.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "guest/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct source {
	const uint8_t *p;
	size_t left, piece;
};

static void require(bool good)
{
	if (!good)
		abort();
}

static ssize_t next_piece(void *arg, const uint8_t **p, size_t max)
{
	struct source *s = arg;
	size_t n = s->left < s->piece ? s->left : s->piece;

	if (n > max)
		n = max;
	*p = s->p;
	s->p += n;
	s->left -= n;
	return (ssize_t)n;
}

static void check_entry(const struct tar_entry *e)
{
	require(strlen(e->path) < PATH_MAX && strlen(e->link) < PATH_MAX);
	require(e->mode <= 07777 && e->size <= INT64_MAX);
	require(e->mtime.tv_nsec >= 0 && e->mtime.tv_nsec < 1000000000);
}

/* The header again, from what was read of it. */
static void write_and_read(const struct tar_entry *e)
{
	static uint8_t h[TAR_MAX_HEAD];
	static struct tar_entry again;
	size_t n = tar_put(h, e, 0, false, 0);
	struct source s = {h, n, 4096};
	struct tar_reader r = {.next = next_piece, .arg = &s};
	size_t len = strlen(e->path);

	require(n >= TAR_BLOCK && n % TAR_BLOCK == 0 && n <= sizeof(h));
	require(tar_next(&r, &again) == 1);
	require(strcmp(again.path, e->path) == 0 && strcmp(again.link, e->link) == 0);
	require(again.type == e->type || (e->type == '0' && len && e->path[len - 1] == '/'));
	require(again.mode == e->mode && again.uid == e->uid && again.gid == e->gid);
	require(again.mtime.tv_sec == e->mtime.tv_sec && again.mtime.tv_nsec == e->mtime.tv_nsec);
	tar_free(&r);
}

static bool written_alike(const struct tar_entry *e)
{
	/* Seconds beyond what a time can hold come from an archive that says so. */
	return memchr("0123456", e->type, 7) && e->mtime.tv_sec < INT64_MAX / 10 &&
	       e->mtime.tv_sec > -(INT64_MAX / 10) && e->path[0];
}

static void read_data(struct tar_reader *r, const struct tar_entry *e, size_t most)
{
	uint64_t at, end = 0, total = 0;
	const uint8_t *p;
	ssize_t n;

	while ((n = tar_data(r, &p, &at)) > 0) {
		require(at >= end && at + (uint64_t)n <= e->size);
		end = at + (uint64_t)n;
		total += (uint64_t)n;
	}
	require(total <= most);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tar_entry e;
	struct source s;
	struct tar_reader r = {.next = next_piece, .arg = &s};
	size_t members = 0;
	int ret;

	if (size < 1)
		return 0;
	s = (struct source){data + 1, size - 1, 1 + (size_t)data[0] * 8};
	while ((ret = tar_next(&r, &e)) > 0) {
		check_entry(&e);
		if (written_alike(&e))
			write_and_read(&e);
		if (e.type == '0' && members % 2 == 0)
			read_data(&r, &e, size);
		require(++members <= size / TAR_BLOCK);
	}
	require(ret == 0 || r.wrong);
	tar_free(&r);
	return 0;
}
