/* SPDX-License-Identifier: Apache-2.0 */
/* fs.mkdir, fs.remove, fs.move, fs.symlink, fs.link: names and directories. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_tree.h"

#define NOREPLACE 1u /* RENAME_NOREPLACE */

static unsigned parents(const struct fs *fs)
{
	return fs->p.parents ? FS_PARENTS : 0;
}

static int place(struct fs *fs, const char *path, unsigned walk, struct fs_at *at)
{
	if (fs_place(&fs->root, path, walk, at) < 0)
		return fs_fail(fs, "cannot find the directory of", path);
	return 0;
}

/* It has no name of its own: it is "/", the root, or ends with "..". */
static bool nameless(const struct fs_at *at)
{
	return strcmp(at->name, ".") == 0;
}

/* The mode exactly, setgid of the directory above included only when asked for. */
static int make_directory(struct fs *fs, const struct fs_at *at, bool *created)
{
	struct stat st;

	*created = mkdirat(at->dir, at->name, fs->p.mode) == 0;
	if (*created)
		return fs->p.mode & 07000 ? fchmodat(at->dir, at->name, fs->p.mode, 0) : 0;
	if (errno != EEXIST || !fs->p.parents)
		return -1;
	/* With parents, a link to a directory will do as well. */
	if (fstatat(at->dir, at->name, &st, fs->root.fd < 0 ? 0 : at->flags) == 0 &&
	    S_ISDIR(st.st_mode))
		return 0;
	errno = EEXIST;
	return -1;
}

int fs_mkdir(struct fs *fs)
{
	struct fs_at at;
	bool created;
	int ret;

	if (place(fs, fs->p.path, parents(fs), &at) < 0)
		return -1;
	ret = make_directory(fs, &at, &created);
	if (ret < 0)
		fs_fail(fs, "cannot make the directory", NULL);
	fs_at_close(&at);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_bool(&fs->map, "created", created);
	return fs_map_end(fs, FRAME_RESULT);
}

/* fs.remove */

struct removal {
	struct fs *fs;
	uint64_t count;
};

static int remove_one(struct removal *r, int dir, const char *name, const char *path, int flags)
{
	if (unlinkat(dir, name, flags) < 0)
		return fs_fail(r->fs, "cannot remove", path);
	r->count++;
	return 0;
}

static int remove_entry(void *arg, const struct fs_entry *e)
{
	if (e->type == FS_TYPE_DIR)
		return FS_TREE_ENTER;
	return remove_one(arg, e->dir, e->name, e->path, 0);
}

static int remove_left(void *arg, const struct fs_entry *e)
{
	return remove_one(arg, e->dir, e->name, e->path, AT_REMOVEDIR);
}

static int remove_below(struct removal *r, const struct fs_at *at)
{
	static const struct fs_tree_ops ops = {.entry = remove_entry, .leave = remove_left};
	int fd = fs_open(at, O_RDONLY | O_DIRECTORY | O_NONBLOCK);

	if (fd < 0)
		return fs_fail(r->fs, "cannot open", NULL);
	return fs_tree_walk(r->fs, fd, "", &ops, r);
}

static int remove_at(struct removal *r, const struct fs_at *at)
{
	struct fs *fs = r->fs;
	struct stat st;

	if (nameless(at))
		return fs_refuse(fs, NULL, "names a root, which is not removed");
	if (fstatat(at->dir, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT && fs->p.missing_ok ? 0 : fs_fail(fs, "cannot find", NULL);
	if (!S_ISDIR(st.st_mode))
		return remove_one(r, at->dir, at->name, NULL, 0);
	if (fs->p.recursive && remove_below(r, at) < 0)
		return -1;
	return remove_one(r, at->dir, at->name, NULL, AT_REMOVEDIR);
}

int fs_remove(struct fs *fs)
{
	struct removal r = {.fs = fs};
	struct fs_at at;
	int ret = 0;

	if (fs_place(&fs->root, fs->p.path, 0, &at) < 0)
		ret = errno == ENOENT && fs->p.missing_ok ? 0 : fs_fail(fs, "cannot find", NULL);
	else
		ret = remove_at(&r, &at);
	fs_at_close(&at);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "removed", r.count);
	return fs_map_end(fs, FRAME_RESULT);
}

/* From one place to another */

static int rename_free(const struct fs_at *from, const struct fs_at *to)
{
	return (int)syscall(SYS_renameat2, from->dir, from->name, to->dir, to->name, NOREPLACE);
}

static int move(const struct fs *fs, const struct fs_at *from, const struct fs_at *to)
{
	if (fs->p.replace)
		return renameat(from->dir, from->name, to->dir, to->name);
	return rename_free(from, to);
}

static int hard_link(const struct fs *fs, const struct fs_at *from, const struct fs_at *to)
{
	(void)fs;
	return linkat(from->dir, from->name, to->dir, to->name, 0);
}

static int with_both(struct fs *fs, const char *what,
		     int (*act)(const struct fs *, const struct fs_at *, const struct fs_at *))
{
	struct fs_at from, to;
	int ret;

	if (place(fs, fs->p.path, 0, &from) < 0)
		return -1;
	ret = place(fs, fs->p.to, parents(fs), &to);
	if (ret == 0 && act(fs, &from, &to) < 0) {
		ret = -1;
		/* Which of the two is it? What is missing is the source, what is there the target. */
		fs_fail(fs, what, errno == EEXIST || errno == ENOTEMPTY ? fs->p.to : NULL);
		if (errno == EXDEV) /* across file systems, not out of the root */
			fs->err.kind = HUTCH_E_IO;
	}
	fs_at_close(&from);
	fs_at_close(&to);
	return ret < 0 ? -1 : fs_result_empty(fs);
}

int fs_move(struct fs *fs)
{
	return with_both(fs, "cannot move", move);
}

int fs_link(struct fs *fs)
{
	return with_both(fs, "cannot link", hard_link);
}

int fs_symlink(struct fs *fs)
{
	struct fs_at at;
	int ret;

	if (place(fs, fs->p.path, 0, &at) < 0)
		return -1;
	ret = symlinkat(fs->p.target, at.dir, at.name);
	if (ret < 0)
		fs_fail(fs, "cannot make the link", NULL);
	fs_at_close(&at);
	return ret < 0 ? -1 : fs_result_empty(fs);
}
