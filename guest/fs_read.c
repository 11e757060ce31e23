/* SPDX-License-Identifier: Apache-2.0 */
/* fs.read: a range of a regular file. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guest/fs.h"

/* What is read by default of a file that has no size, as those of /proc. */
#define UNSIZED (16u << 20)
#define PAGE	4096u

static const char not_regular[] = "is not a regular file";

/*
 * Nothing but a regular file is opened: opening a FIFO or a device can block or act. Without O_NONBLOCK some files of
 * /proc and /sys wait for data; with it they say EAGAIN, which is taken for their end.
 */
static int open_regular(struct fs *fs, struct stat *st)
{
	struct fs_at at;
	int fd = -1;

	if (fs_find(&fs->root, fs->p.path, true, &at) < 0)
		return fs_fail(fs, "cannot find", NULL);
	if (fstatat(at.dir, at.name, st, at.flags) < 0)
		fs_fail(fs, "cannot find", NULL);
	else if (S_ISDIR(st->st_mode))
		fs_fail_errno(fs, EISDIR, "cannot read", NULL);
	else if (!S_ISREG(st->st_mode))
		fs_refuse(fs, NULL, not_regular);
	else if ((fd = fs_open(&at, O_RDONLY | O_NONBLOCK)) < 0 || fstat(fd, st) < 0)
		fs_fail(fs, "cannot open", NULL);
	else if (S_ISREG(st->st_mode)) {
		fs_at_close(&at);
		return fd;
	} else
		fs_refuse(fs, NULL, not_regular);
	if (fd >= 0)
		close(fd);
	fs_at_close(&at);
	return -1;
}

static int tell_file(struct fs *fs, const struct stat *st)
{
	fs_map_begin(fs);
	mp_kv_str(&fs->map, "event", "file");
	mp_kv_uint(&fs->map, "size", (uint64_t)st->st_size);
	mp_kv_uint(&fs->map, "mode", st->st_mode & 07777);
	mp_kv_uint(&fs->map, "uid", st->st_uid);
	mp_kv_uint(&fs->map, "gid", st->st_gid);
	mp_kv_uint(&fs->map, "mtime_ns",
		   (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
	return fs_map_end(fs, FRAME_EVENT);
}

/* How much is asked for. */
static uint64_t wanted(const struct fs *fs, uint64_t size)
{
	if (fs->p.given & FS_P_LENGTH)
		return fs->p.length;
	if (size == 0)
		return UNSIZED;
	return size > fs->p.offset ? size - fs->p.offset : 0;
}

/*
 * Large files right out of the page cache, as long as they are as large as they were. Returns how much; the rest is
 * for read(2).
 */
static int64_t send_mapped(struct fs *fs, int fd, uint64_t from, uint64_t length)
{
	uint64_t skew = from % PAGE, sent = 0;
	uint8_t *map = length < FS_DIRECT ? MAP_FAILED
					  : mmap(NULL, length + skew, PROT_READ, MAP_SHARED, fd,
						 (off_t)(from - skew));
	struct stat st;
	int n = 0;

	if (map == MAP_FAILED)
		return 0;
	madvise(map, length + skew, MADV_SEQUENTIAL);
	while (length - sent >= FS_DIRECT && fstat(fd, &st) == 0 &&
	       (uint64_t)st.st_size >= from + sent + FS_DIRECT &&
	       (n = fs_out_direct(fs, map + skew + sent)) > 0)
		sent += FS_DIRECT;
	munmap(map, length + skew);
	return n < 0 ? -1 : (int64_t)sent;
}

/* Bytes sent, fewer than asked at the end of the file (*end); -1. */
static int64_t send_range(struct fs *fs, int fd, uint64_t length, bool *end)
{
	int64_t mapped = send_mapped(fs, fd, fs->p.offset, length);
	uint64_t left = length - (uint64_t)mapped;

	*end = false;
	if (mapped < 0)
		return -1;
	if (fs->p.offset + (uint64_t)mapped > 0 &&
	    lseek(fd, (off_t)(fs->p.offset + (uint64_t)mapped), SEEK_SET) < 0)
		return fs_fail(fs, "cannot seek in", NULL);
	while (left > 0) {
		size_t room;
		uint8_t *to = fs_out_room(fs, &room);
		ssize_t n;

		if (!to)
			return -1;
		n = read(fd, to, room < left ? room : (size_t)left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return fs_fail(fs, "cannot read", NULL);
		*end = n <= 0;
		if (*end)
			break;
		fs_out_added((size_t)n);
		left -= (uint64_t)n;
	}
	return (int64_t)(length - left);
}

static int send_file(struct fs *fs, int fd, struct stat *st)
{
	int64_t bytes;
	bool end;

	if (tell_file(fs, st) < 0)
		return -1;
	bytes = send_range(fs, fd, wanted(fs, (uint64_t)st->st_size), &end);
	if (bytes < 0)
		return -1;
	if (!end && fstat(fd, st) == 0 && st->st_size > 0)
		end = fs->p.offset + (uint64_t)bytes >= (uint64_t)st->st_size;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "bytes", (uint64_t)bytes);
	mp_kv_bool(&fs->map, "eof", end);
	return fs_map_end(fs, FRAME_RESULT);
}

int fs_read(struct fs *fs)
{
	struct stat st = {0};
	int fd = open_regular(fs, &st), ret;

	if (fd < 0)
		return -1;
	ret = send_file(fs, fd, &st);
	close(fd);
	return ret;
}
