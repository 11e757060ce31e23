/* SPDX-License-Identifier: Apache-2.0 */
/* fs.tar_out: a directory's contents as an archive. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_data.h"
#include "guest/fs_links.h"
#include "guest/fs_tree.h"
#include "guest/glob.h"
#include "guest/tar.h"

static struct packing {
	struct fs *fs;
	struct fs_links links;
	struct tar_entry e;
	uint8_t head[TAR_MAX_HEAD];
	uint64_t count, bytes;
} t;

static int put(const void *p, size_t n)
{
	t.bytes += n;
	return fs_out_bytes(t.fs, p, n);
}

static int put_zeros(uint64_t n)
{
	static uint8_t zeros[TAR_BLOCK]; /* not const: it takes no room in the binary */

	for (; n > 0; n -= n < TAR_BLOCK ? n : TAR_BLOCK)
		if (put(zeros, n < TAR_BLOCK ? (size_t)n : TAR_BLOCK) < 0)
			return -1;
	return 0;
}

static int put_padding(uint64_t size)
{
	return put_zeros((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

static int put_head(uint64_t data, bool sparse, dev_t dev)
{
	t.count++;
	return put(t.head, tar_put(t.head, &t.e, data, sparse, dev));
}

static bool excluded(const char *path)
{
	const char *slash = strrchr(path, '/');

	for (size_t i = 0; i < t.fs->p.nexclude; i++) {
		const char *pattern = t.fs->p.exclude[i];

		if (glob_match(pattern, slash && !strchr(pattern, '/') ? slash + 1 : path))
			return true;
	}
	return false;
}

/* Files */

/* size bytes from at on. What was cut off meanwhile is zeros. */
static int put_range(int fd, const char *path, off_t at, uint64_t size)
{
	while (size > 0) {
		size_t room;
		uint8_t *to = fs_out_room(t.fs, &room);
		ssize_t n;

		if (!to)
			return -1;
		n = pread(fd, to, room < size ? room : (size_t)size, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			fs_note(t.fs, path, n < 0 ? errno : EIO);
			return put_zeros(size);
		}
		fs_out_added((size_t)n);
		t.bytes += (uint64_t)n;
		at += n;
		size -= (uint64_t)n;
	}
	return 0;
}

struct map {
	uint8_t *p;
	size_t len, cap;
	uint64_t stretches, data;
};

static int map_number(struct map *m, uint64_t v)
{
	uint8_t *grown;

	if (m->cap - m->len < 24) {
		grown = realloc(m->p, m->cap + 4096);
		if (!grown)
			return -1;
		m->p = grown;
		m->cap += 4096;
	}
	m->len += tar_put_number(m->p + m->len, v);
	return 0;
}

static int add_stretch(struct map *m, off_t at, off_t end)
{
	if (++m->stretches > TAR_MAX_STRETCHES || map_number(m, (uint64_t)at) < 0)
		return -1;
	m->data += (uint64_t)(end - at);
	return map_number(m, (uint64_t)(end - at));
}

/* The stretches of data; -1: they are too many. A hole at the end is an empty one, as GNU tar has it. */
static int make_map(int fd, off_t size, struct map *m)
{
	off_t at = 0, end = 0;

	while (fs_next_data(fd, end, size, &at, &end))
		if (add_stretch(m, at, end) < 0)
			return -1;
	return end < size ? add_stretch(m, size, size) : 0;
}

/* By the same map: the file may have other holes by now. */
static int put_stretches(int fd, const char *path, const struct map *m)
{
	const char *s = (const char *)m->p;

	for (uint64_t i = 0; i < m->stretches; i++) {
		char *next;
		off_t at = (off_t)strtoull(s, &next, 10);
		uint64_t n = strtoull(next + 1, &next, 10);

		s = next + 1;
		if (put_range(fd, path, at, n) < 0)
			return -1;
	}
	return 0;
}

static int put_sparse(int fd, const char *path, struct map *m)
{
	uint8_t count[24];
	size_t n = tar_put_number(count, m->stretches);
	uint64_t map = n + m->len, blocks = (map + TAR_BLOCK - 1) / TAR_BLOCK;

	if (put_head(blocks * TAR_BLOCK + m->data, true, 0) < 0 || put(count, n) < 0 ||
	    put(m->p, m->len) < 0 || put_padding(map) < 0 || put_stretches(fd, path, m) < 0)
		return -1;
	return put_padding(m->data);
}

static int put_open_file(int fd, const char *path, const struct stat *st)
{
	struct map m = {0};
	int ret;

	t.e.size = (uint64_t)st->st_size;
	if (fs_may_have_holes(st) && make_map(fd, st->st_size, &m) == 0)
		ret = put_sparse(fd, path, &m);
	else if (put_head(t.e.size, false, 0) < 0 || put_range(fd, path, 0, t.e.size) < 0)
		ret = -1;
	else
		ret = put_padding(t.e.size);
	free(m.p);
	return ret;
}

static int put_file(int dir, const char *name, const char *path)
{
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), ret = 0;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		fs_note(t.fs, path, errno);
	else if (S_ISREG(st.st_mode))
		ret = put_open_file(fd, path, &st);
	if (fd >= 0)
		close(fd);
	return ret;
}

/* Members */

static char type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFLNK:
		return '2';
	case S_IFCHR:
		return '3';
	case S_IFBLK:
		return '4';
	case S_IFDIR:
		return '5';
	case S_IFIFO:
		return '6';
	}
	return '0';
}

static int set_link(int dir, const char *name)
{
	ssize_t n = readlinkat(dir, name, t.e.link, sizeof(t.e.link) - 1);

	if (n < 0)
		return -1;
	t.e.link[n] = '\0';
	return 0;
}

/* path: with a '/' behind it for a directory. */
static int put_member(int dir, const char *name, const char *path, const struct stat *st)
{
	const char *first = fs_links_met(&t.links, st, path);
	bool device = S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);

	t.e.type = first ? '1' : type_of(st->st_mode);
	t.e.mode = st->st_mode & 07777;
	t.e.uid = st->st_uid;
	t.e.gid = st->st_gid;
	t.e.mtime = st->st_mtim;
	t.e.size = 0;
	t.e.link[0] = '\0';
	strcpy(t.e.path, path);
	if (first)
		strcpy(t.e.link, first);
	else if (t.e.type == '0')
		return put_file(dir, name, path);
	if (t.e.type == '2' && set_link(dir, name) < 0) {
		fs_note(t.fs, path, errno);
		return 0;
	}
	return put_head(0, false, device ? st->st_rdev : 0);
}

static void unreadable(void *arg, const struct fs_entry *e)
{
	(void)arg;
	fs_note(t.fs, e->path, errno);
}

static int pack(void *arg, const struct fs_entry *e)
{
	static char path[PATH_MAX];
	struct stat st;
	bool dir;

	(void)arg;
	if (excluded(e->path))
		return 0;
	if (fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || e->path_len + 1 >= PATH_MAX) {
		fs_note(t.fs, e->path, e->path_len + 1 >= PATH_MAX ? ENAMETOOLONG : errno);
		return 0;
	}
	if (S_ISSOCK(st.st_mode))
		return 0;
	dir = S_ISDIR(st.st_mode);
	memcpy(path, e->path, e->path_len);
	strcpy(path + e->path_len, dir ? "/" : "");
	if (put_member(e->dir, e->name, path, &st) < 0)
		return -1;
	return dir ? FS_TREE_ENTER : 0;
}

static const struct fs_tree_ops ops = {.entry = pack, .failed = unreadable};

/* One of the names, with all below it. */
static int pack_name(int dir, char *name)
{
	struct fs_entry e = {.path = name, .path_len = strlen(name)};
	struct fs_at at;
	int ret, fd;

	while (e.path_len > 1 && name[e.path_len - 1] == '/')
		name[--e.path_len] = '\0';
	if (fs_below(dir, name, 0, &at) < 0) {
		fs_note(t.fs, name, errno);
		return 0;
	}
	e.dir = at.dir;
	e.name = at.name;
	ret = pack(NULL, &e);
	if (ret == FS_TREE_ENTER) {
		fd = fs_open(&at, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
		if (fd < 0)
			unreadable(NULL, &e);
		ret = fd < 0 ? 0 : fs_tree_walk(t.fs, fd, name, &ops, NULL);
	}
	fs_at_close(&at);
	return ret;
}

static int pack_all(int dir)
{
	struct stat st;
	int fd;

	for (size_t i = 0; i < t.fs->p.nnames; i++)
		if (pack_name(dir, t.fs->p.names[i]) < 0)
			return -1;
	if (t.fs->p.nnames)
		return 0;
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fs_fail(t.fs, "cannot open", NULL);
	return put_member(dir, ".", "./", &st) < 0 ? -1 : fs_tree_walk(t.fs, fd, "", &ops, NULL);
}

int fs_tar_out(struct fs *fs)
{
	struct fs_at at;
	int dir, ret;

	t.fs = fs;
	t.count = t.bytes = 0;
	if (fs_find(&fs->root, fs->p.path, true, &at) < 0)
		return fs_fail(fs, "cannot find", NULL);
	dir = fs_open(&at, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (dir < 0)
		fs_fail(fs, "cannot open", NULL);
	fs_at_close(&at);
	if (dir < 0)
		return -1;
	ret = pack_all(dir);
	close(dir);
	fs_links_free(&t.links);
	if (ret < 0 || put_zeros(2 * TAR_BLOCK) < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "count", t.count);
	mp_kv_uint(&fs->map, "bytes", t.bytes);
	return fs_result(fs);
}
