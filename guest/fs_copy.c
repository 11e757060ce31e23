/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.copy: files and trees inside the guest.
 *
 * A tree is walked by descriptors, and so is what is made of it: for each directory on the way there is the
 * descriptor of its copy, in which the entries are made by name. No link is followed on either side.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_data.h"
#include "guest/fs_links.h"
#include "guest/fs_new.h"
#include "guest/fs_tree.h"
#include "guest/limits.h"

struct copied_dir {
	int fd;
	bool made; /* it was not there before */
	struct stat st;
};

static struct copying {
	struct fs *fs;
	struct copied_dir dirs[AGENT_TREE_DEPTH];
	struct stat self; /* of the copy's own directory, which is not to be copied into itself */
	struct fs_links links;
	uint64_t bytes, count;
} cp;

static int failed(const char *path)
{
	return fs_fail(cp.fs, "cannot copy", path);
}

/* The owner as far as it may be set; setuid and setgid bits without their owner are given to nobody. */
static mode_t copy_owner(int fd, const struct stat *st)
{
	mode_t mode = st->st_mode & 07777;

	if (!cp.fs->p.preserve)
		return mode & 0777;
	return fchown(fd, st->st_uid, st->st_gid) < 0 ? mode & 01777 : mode;
}

static int copy_attributes(int fd, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (fchmod(fd, copy_owner(fd, st)) < 0)
		return -1;
	return cp.fs->p.preserve ? futimens(fd, times) : 0;
}

/* For what has no descriptor: a link, a FIFO. */
static void name_attributes(int dir, const char *name, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (!cp.fs->p.preserve)
		return;
	if (fchownat(dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
		(void)!errno; /* as far as it may be set */
	utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
}

static int copy_file(int from, const char *name, const struct stat *was, int to,
		     const char *to_name)
{
	int fd = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), ret = -1;
	struct stat st = *was;
	struct fs_new n;
	int64_t bytes;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fs_new_open(&n, to) == 0) {
		bytes = fs_copy_data(cp.fs, fd, n.fd, &st);
		if (bytes >= 0 && copy_attributes(n.fd, &st) == 0)
			ret = fs_new_place(&n, to_name,
					   cp.fs->p.replace ? FS_NEW_EITHER : FS_NEW_ALONE);
		fs_new_close(&n);
		if (ret == 0)
			cp.bytes += (uint64_t)bytes;
	}
	close(fd);
	return ret;
}

/* Another name for what was copied before. 1: it cannot be made, and the file is to be copied. */
static int copy_link(const char *first, int to, const char *name)
{
	struct fs_at at;
	int ret;

	if (fs_below(cp.dirs[0].fd, first, 0, &at) < 0)
		return 1;
	ret = linkat(at.dir, at.name, to, name, 0);
	if (ret < 0 && errno == EEXIST && cp.fs->p.replace && unlinkat(to, name, 0) == 0)
		ret = linkat(at.dir, at.name, to, name, 0);
	fs_at_close(&at);
	return ret < 0 ? 1 : 0;
}

static int make_special(const char *text, mode_t mode, int to, const char *name)
{
	return text ? symlinkat(text, to, name) : mknodat(to, name, mode, 0);
}

/* A symbolic link or a FIFO. */
static int copy_special(int from, const char *name, const struct stat *st, int to,
			const char *to_name)
{
	char text[PATH_MAX], *link = NULL;
	ssize_t n;

	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(from, name, text, sizeof(text) - 1);
		if (n < 0)
			return -1;
		text[n] = '\0';
		link = text;
	}
	if (make_special(link, st->st_mode, to, to_name) < 0 &&
	    (errno != EEXIST || !cp.fs->p.replace || unlinkat(to, to_name, 0) < 0 ||
	     make_special(link, st->st_mode, to, to_name) < 0))
		return -1;
	name_attributes(to, to_name, st);
	return 0;
}

/* What is no directory. path: in the tree, NULL when it is copied alone. */
static int copy_one(int from, const char *name, const struct stat *st, int to, const char *to_name,
		    const char *path)
{
	const char *first = path ? fs_links_met(&cp.links, st, path) : NULL;
	int ret = first ? copy_link(first, to, to_name) : 1;

	if (ret == 1 && S_ISREG(st->st_mode))
		ret = copy_file(from, name, st, to, to_name);
	else if (ret == 1 && (S_ISLNK(st->st_mode) || S_ISFIFO(st->st_mode)))
		ret = copy_special(from, name, st, to, to_name);
	else if (ret == 1)
		return 0;
	if (ret < 0)
		return failed(path);
	cp.count++;
	return 0;
}

/* The copy of a directory, made or there already, becomes d. */
static int enter_copy(struct copied_dir *d, int to, const char *name, const struct stat *st)
{
	d->st = *st;
	d->made = mkdirat(to, name, 0700) == 0;
	if (!d->made && errno != EEXIST)
		return -1;
	d->fd = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->fd < 0)
		return -1;
	cp.count += d->made;
	return 0;
}

static int leave_copy(struct copied_dir *d, const char *path)
{
	int ret = d->made && copy_attributes(d->fd, &d->st) < 0 ? failed(path) : 0;

	close(d->fd);
	d->fd = -1;
	return ret;
}

static int copy_entry(void *arg, const struct fs_entry *e)
{
	int to = cp.dirs[e->depth].fd;
	struct stat st;

	(void)arg;
	if (fstatat(e->dir, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : failed(e->path);
	if (!S_ISDIR(st.st_mode))
		return copy_one(e->dir, e->name, &st, to, e->name, e->path);
	if (st.st_dev == cp.self.st_dev && st.st_ino == cp.self.st_ino)
		return fs_refuse(cp.fs, cp.fs->p.to, "lies in what is copied");
	if (e->depth + 1 == AGENT_TREE_DEPTH) {
		errno = ELOOP;
		return failed(e->path);
	}
	return enter_copy(&cp.dirs[e->depth + 1], to, e->name, &st) < 0 ? failed(e->path)
									: FS_TREE_ENTER;
}

static int copy_left(void *arg, const struct fs_entry *e)
{
	(void)arg;
	return leave_copy(&cp.dirs[e->depth + 1], e->path);
}

static int copy_tree(const struct fs_at *from, const struct fs_at *to, const struct stat *st)
{
	static const struct fs_tree_ops ops = {.entry = copy_entry, .leave = copy_left};
	int fd = fs_open(from, O_RDONLY | O_DIRECTORY | O_NONBLOCK), ret;

	if (fd < 0)
		return failed(NULL);
	if (enter_copy(&cp.dirs[0], to->dir, to->name, st) < 0 ||
	    fstat(cp.dirs[0].fd, &cp.self) < 0) {
		close(fd);
		return fs_fail(cp.fs, "cannot make the directory", cp.fs->p.to);
	}
	if (cp.self.st_dev == st->st_dev && cp.self.st_ino == st->st_ino) {
		close(fd);
		ret = fs_refuse(cp.fs, cp.fs->p.to, "is what is copied");
	} else {
		ret = fs_tree_walk(cp.fs, fd, "", &ops, NULL);
	}
	fs_links_free(&cp.links);
	return leave_copy(&cp.dirs[0], NULL) < 0 ? -1 : ret;
}

static int copy(const struct fs_at *from, const struct fs_at *to)
{
	struct stat st;

	if (fstatat(from->dir, from->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(NULL);
	if (!S_ISDIR(st.st_mode))
		return copy_one(from->dir, from->name, &st, to->dir, to->name, NULL);
	if (!cp.fs->p.recursive)
		return fs_fail_errno(cp.fs, EISDIR, "cannot copy without recursive", NULL);
	return copy_tree(from, to, &st);
}

int fs_copy(struct fs *fs)
{
	struct fs_at from, to;
	int ret;

	cp.fs = fs;
	cp.bytes = cp.count = 0;
	if (fs_place(&fs->root, fs->p.path, 0, &from) < 0)
		return fs_fail(fs, "cannot find", NULL);
	if (fs_place(&fs->root, fs->p.to, fs->p.parents ? FS_PARENTS : 0, &to) < 0)
		ret = fs_fail(fs, "cannot find the directory of", fs->p.to);
	else
		ret = copy(&from, &to);
	fs_at_close(&from);
	fs_at_close(&to);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "bytes", cp.bytes);
	mp_kv_uint(&fs->map, "count", cp.count);
	return fs_map_end(fs, FRAME_RESULT);
}
