/* SPDX-License-Identifier: Apache-2.0 */
/* fs.stat, fs.exists, fs.readlink, fs.statfs, fs.list: what there is. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_tree.h"

/* An EVENT of entries is sent when it has grown to this. */
#define LIST_EVENT (32u << 10)

static uint64_t to_ns(const struct timespec *ts)
{
	return ts->tv_sec < 0 ? 0 : (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec;
}

void fs_put_stat(struct mp_buf *out, const struct stat *st, const char *path, const char *target)
{
	const struct fs_record r = {
		.path = path,
		.type = fs_type_of_mode(st->st_mode),
		.full = true,
		.mode = st->st_mode & 07777,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.size = (uint64_t)st->st_size,
		.nlink = st->st_nlink,
		.ino = st->st_ino,
		.dev = st->st_dev,
		.blocks = (uint64_t)st->st_blocks,
		.mtime_ns = to_ns(&st->st_mtim),
		.atime_ns = to_ns(&st->st_atim),
		.ctime_ns = to_ns(&st->st_ctim),
		.target = target,
	};

	fs_record_put(out, &r);
}

/* The text of a link into buf of PATH_MAX bytes; NULL with errno. */
static const char *link_text(int dir, const char *name, char *buf)
{
	ssize_t n = readlinkat(dir, name, buf, PATH_MAX - 1);

	if (n < 0)
		return NULL;
	buf[n] = '\0';
	return buf;
}

static int find(struct fs *fs, struct fs_at *at, struct stat *st)
{
	int saved;

	if (fs_find(&fs->root, fs->p.path, fs->p.follow, at) < 0)
		return -1;
	if (fstatat(at->dir, at->name, st, at->flags) == 0)
		return 0;
	saved = errno;
	fs_at_close(at);
	errno = saved;
	return -1;
}

int fs_stat(struct fs *fs)
{
	char buf[PATH_MAX];
	struct fs_at at;
	struct stat st = {0};

	if (find(fs, &at, &st) < 0)
		return fs_fail(fs, "cannot find", NULL);
	mp_buf_reset(&fs->map);
	fs->map_start = mp_frame_begin(&fs->map);
	fs_put_stat(&fs->map, &st, NULL,
		    S_ISLNK(st.st_mode) ? link_text(at.dir, at.name, buf) : NULL);
	fs_at_close(&at);
	return fs_frame_end(fs, FRAME_RESULT);
}

int fs_exists(struct fs *fs)
{
	struct fs_at at;
	struct stat st = {0};
	bool there = find(fs, &at, &st) == 0;

	if (!there && errno != ENOENT && errno != ENOTDIR)
		return fs_fail(fs, "cannot find", NULL);
	if (there)
		fs_at_close(&at);
	fs_map_begin(fs);
	mp_kv_bool(&fs->map, "exists", there);
	if (there)
		mp_kv_str(&fs->map, "type", fs_type_name(fs_type_of_mode(st.st_mode)));
	return fs_map_end(fs, FRAME_RESULT);
}

int fs_readlink(struct fs *fs)
{
	char buf[PATH_MAX];
	struct fs_at at;
	const char *text;

	if (fs_find(&fs->root, fs->p.path, false, &at) < 0)
		return fs_fail(fs, "cannot find", NULL);
	text = link_text(at.dir, at.name, buf);
	if (!text)
		fs_fail(fs, "cannot read the link", NULL);
	fs_at_close(&at);
	if (!text)
		return -1;
	fs_map_begin(fs);
	mp_kv_str(&fs->map, "target", text);
	return fs_map_end(fs, FRAME_RESULT);
}

int fs_statfs(struct fs *fs)
{
	struct fs_at at;
	struct statvfs v;
	int fd, ret;

	if (fs_find(&fs->root, fs->p.path, true, &at) < 0)
		return fs_fail(fs, "cannot find", NULL);
	fd = fs_open(&at, O_PATH);
	ret = fd < 0 ? -1 : fstatvfs(fd, &v);
	if (ret < 0)
		fs_fail(fs, "cannot ask for the space of", NULL);
	if (fd >= 0)
		close(fd);
	fs_at_close(&at);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "total_bytes", v.f_blocks * v.f_frsize);
	mp_kv_uint(&fs->map, "free_bytes", v.f_bfree * v.f_frsize);
	mp_kv_uint(&fs->map, "available_bytes", v.f_bavail * v.f_frsize);
	mp_kv_uint(&fs->map, "inodes", v.f_files);
	mp_kv_uint(&fs->map, "free_inodes", v.f_ffree);
	mp_kv_uint(&fs->map, "block_size", v.f_bsize);
	return fs_map_end(fs, FRAME_RESULT);
}

/* fs.list */

struct listing {
	struct fs *fs;
	uint64_t count;
	bool open; /* an EVENT is being made */
};

static int send_entries(struct listing *l)
{
	if (!l->open)
		return 0;
	l->open = false;
	mp_array_end(&l->fs->map);
	if (fs_map_end(l->fs, FRAME_EVENT) < 0)
		return -1;
	return fs_out_flush(l->fs);
}

static void begin_entries(struct listing *l)
{
	if (l->open)
		return;
	l->open = true;
	fs_map_begin(l->fs);
	mp_kv_str(&l->fs->map, "event", "entries");
	mp_key(&l->fs->map, "entries");
	mp_array_begin(&l->fs->map);
}

static void list_failed(void *arg, const struct fs_entry *e)
{
	struct listing *l = arg;

	fs_note(l->fs, e->path, errno);
}

static int list_entry(void *arg, const struct fs_entry *e)
{
	struct listing *l = arg;
	struct fs *fs = l->fs;
	struct fs_record brief = {.path = e->path, .type = e->type};
	char buf[PATH_MAX];
	struct stat st = {0};

	if (e->path_len > LIST_EVENT / 2) {
		fs_note(fs, e->path, ENAMETOOLONG);
		return 0;
	}
	if (fs->p.stat && fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		fs_note(fs, e->path, errno);
		return 0;
	}
	begin_entries(l);
	if (fs->p.stat)
		fs_put_stat(&fs->map, &st, e->path,
			    S_ISLNK(st.st_mode) ? link_text(e->dir, e->name, buf) : NULL);
	else
		fs_record_put(&fs->map, &brief);
	l->count++;
	if (fs->map.len > LIST_EVENT && send_entries(l) < 0)
		return -1;
	return e->type == FS_TYPE_DIR && (!fs->p.depth || e->depth + 1 < fs->p.depth)
		       ? FS_TREE_ENTER
		       : 0;
}

int fs_list(struct fs *fs)
{
	static const struct fs_tree_ops ops = {.entry = list_entry, .failed = list_failed};
	struct listing l = {.fs = fs};
	struct fs_at at;
	int fd;

	if (fs_find(&fs->root, fs->p.path, true, &at) < 0)
		return fs_fail(fs, "cannot find", NULL);
	fd = fs_open(&at, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (fd < 0)
		fs_fail(fs, "cannot open", NULL);
	fs_at_close(&at);
	if (fd < 0 || fs_tree_walk(fs, fd, "", &ops, &l) < 0 || send_entries(&l) < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "count", l.count);
	return fs_result(fs);
}
