/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.tar_in: an archive unpacked below a directory, and never anywhere else, whatever it says.
 *
 * Members' directories are entered one component at a time without following a link, and kept open as a stack:
 * members mostly come in the order of a walk, so that one costs no more than its own making. A component that is
 * a link is resolved below the target directory (fs_below). A member takes the place of what has its name by
 * unlink and O_EXCL, so nothing is written through a link. A directory gets its mode and time when it is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_attr.h"
#include "guest/fs_data.h"
#include "guest/limits.h"
#include "guest/tar.h"

/* Components of a name; more are ELOOP. */
#define DEPTH 512u

struct dir {
	int fd;	     /* O_PATH */
	size_t len;  /* of its path in un.path */
	bool made;   /* it was not there before */
	bool settle; /* the archive said what follows */
	mode_t mode;
	uint32_t uid, gid;
	struct timespec mtime;
};

static struct unpacking {
	struct fs *fs;
	struct tar_reader r;
	struct tar_entry e;
	struct fs_at top; /* the target directory's own place */
	bool made_top;
	struct dir dirs[DEPTH + 1]; /* the first is the target */
	unsigned depth;
	char path[PATH_MAX]; /* of the innermost open directory: "a/b" */
	uint64_t count, bytes, skipped;
} un;

static int failed(const char *what)
{
	return fs_fail(un.fs, what, un.e.path);
}

static int refuse(const char *why)
{
	return fs_refuse(un.fs, un.e.path, why);
}

static int leads_out(void)
{
	return hutch_error_set(&un.fs->err, HUTCH_E_DENIED, EXDEV,
			       "%s: a link on the way leads out of %s", un.e.path, un.fs->p.path);
}

/* Attributes */

static mode_t allowed_mode(mode_t mode)
{
	return un.fs->p.keep_owner ? mode : mode & 01777;
}

/* Owner, mode and time of what has the name; of a link the mode is its own affair. */
static int set_attributes(int dir, const char *name, const struct dir *d)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, d->mtime};

	if (un.fs->p.keep_owner && fchownat(dir, name, d->uid, d->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (fs_chmod_at(dir, name, allowed_mode(d->mode)) < 0)
		return -1;
	return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
}

static void from_entry(struct dir *d)
{
	d->mode = un.e.mode;
	d->uid = un.e.uid;
	d->gid = un.e.gid;
	d->mtime = un.e.mtime;
}

/* The stack of directories */

static const char *last_name(const struct dir *d)
{
	const char *slash;

	un.path[d->len] = '\0';
	slash = strrchr(un.path, '/');
	return slash ? slash + 1 : un.path;
}

static int leave(void)
{
	struct dir *d = &un.dirs[un.depth--];
	int ret = 0;

	/* One that was there before may be somebody else's. */
	if (d->settle && set_attributes(un.dirs[un.depth].fd, last_name(d), d) < 0 &&
	    (d->made || errno != EPERM))
		ret = fs_fail(un.fs, "cannot set mode, owner and time of", un.path);
	close(d->fd);
	un.path[un.dirs[un.depth].len] = '\0';
	return ret;
}

static int leave_all(void)
{
	struct dir *d = &un.dirs[0];

	while (un.depth > 0)
		if (leave() < 0)
			return -1;
	if (d->settle && un.made_top && set_attributes(un.top.dir, un.top.name, d) < 0)
		return fs_fail(un.fs, "cannot set mode, owner and time of", NULL);
	return 0;
}

/* name in the innermost directory is a link: where it leads, below the target. A descriptor, or -1. */
static int open_linked(size_t len)
{
	struct fs_at at;
	int fd, saved;

	un.path[len] = '\0';
	if (fs_below(un.dirs[0].fd, un.path, FS_FOLLOW, &at) < 0)
		return -1;
	fd = openat(at.dir, at.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	saved = errno;
	fs_at_close(&at);
	errno = saved;
	return fd;
}

/* last: an entry of the archive says that it is a directory. */
static int open_dir(int dir, const char *name, size_t len, bool last, bool *made)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags);

	if (fd < 0 && errno == ENOTDIR) {
		fd = open_linked(len);
		if (fd >= 0 || errno == EXDEV || !last || !un.fs->p.replace)
			return fd;
		if (unlinkat(dir, name, 0) < 0)
			return -1;
		errno = ENOENT;
	}
	if (fd < 0 && errno == ENOENT) {
		*made = mkdirat(dir, name, last ? 0700 : 0755) == 0;
		if (!*made)
			return -1;
		fd = openat(dir, name, flags);
	}
	return fd;
}

static int enter(const char *name, size_t n, bool last)
{
	struct dir *d = &un.dirs[un.depth];
	size_t len = d->len;
	int fd;

	if (un.depth == DEPTH || len + n + 2 > sizeof(un.path)) {
		errno = ELOOP;
		return failed("cannot unpack");
	}
	if (len)
		un.path[len++] = '/';
	memcpy(un.path + len, name, n);
	un.path[len + n] = '\0';
	d[1] = (struct dir){.len = len + n};
	fd = open_dir(d->fd, un.path + len, len + n, last, &d[1].made);
	if (fd < 0) {
		return errno == EXDEV ? leads_out() : failed("cannot make the directory of");
	}
	d[1].fd = fd;
	un.depth++;
	return 0;
}

/* How much of path is the innermost directory already: leave those that are not on it. */
static int leave_others(const char *path)
{
	while (un.depth > 0) {
		size_t n = un.dirs[un.depth].len;

		un.path[n] = '\0';
		if (strncmp(path, un.path, n) == 0 && (path[n] == '/' || !path[n]))
			break;
		if (leave() < 0)
			return -1;
	}
	return 0;
}

/* Be in the directory of path (whole: in path itself). *name: its last component. */
static int go_to(const char *path, bool whole, const char **name)
{
	size_t at;

	if (leave_others(path) < 0)
		return -1;
	at = un.dirs[un.depth].len;
	for (;;) {
		size_t n;

		at += path[at] == '/';
		n = strcspn(path + at, "/");
		*name = path + at;
		if (!n || (!whole && !path[at + n]))
			return 0;
		if (enter(path + at, n, whole && !path[at + n]) < 0)
			return -1;
		at += n;
	}
}

/* A name without slashes at both ends, empty and "." components; -1: it has "..". */
static int clean(char *path)
{
	char *to = path;

	for (const char *from = path; *from;) {
		size_t n = strcspn(from, "/");

		if (n == 2 && from[0] == '.' && from[1] == '.')
			return -1;
		if (n && !(n == 1 && from[0] == '.')) {
			if (to != path)
				*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n + (from[n] == '/');
	}
	*to = '\0';
	return 0;
}

/* Members */

/* Make way for a member. 0: try again; -1. */
static int make_way(int dir, const char *name)
{
	if (errno != EEXIST || !un.fs->p.replace)
		return -1;
	if (unlinkat(dir, name, 0) == 0)
		return 0;
	return errno == EISDIR ? unlinkat(dir, name, AT_REMOVEDIR) : -1;
}

static int write_data(int fd)
{
	const uint8_t *p;
	uint64_t at, end = 0;
	ssize_t n;

	while ((n = tar_data(&un.r, &p, &at)) > 0) {
		if (at != end && lseek(fd, (off_t)at, SEEK_SET) < 0)
			return failed("cannot seek in");
		if (fs_write_all(fd, p, (size_t)n) < 0)
			return failed("cannot write");
		end = at + (uint64_t)n;
		un.bytes += (uint64_t)n;
	}
	if (n == 0 && end != un.e.size && ftruncate(fd, (off_t)un.e.size) < 0)
		return failed("cannot give its size to");
	return n < 0 ? -1 : 0;
}

static int file_attributes(int fd)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, un.e.mtime};

	if (un.fs->p.keep_owner && fchown(fd, un.e.uid, un.e.gid) < 0)
		return -1;
	if (allowed_mode(un.e.mode) & 07000 && fchmod(fd, allowed_mode(un.e.mode)) < 0)
		return -1;
	return futimens(fd, times);
}

static int unpack_file(int dir, const char *name)
{
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags, un.e.mode & 0777), ret;

	if (fd < 0 && make_way(dir, name) == 0)
		fd = openat(dir, name, flags, un.e.mode & 0777);
	if (fd < 0)
		return failed("cannot make");
	ret = write_data(fd);
	if (ret == 0 && file_attributes(fd) < 0)
		ret = failed("cannot set mode, owner and time of");
	close(fd);
	if (ret < 0)
		unlinkat(dir, name, 0);
	return ret;
}

/* Another name of a file below the target. */
static int unpack_hard_link(int dir, const char *name)
{
	struct fs_at at;
	int ret;

	if (clean(un.e.link) < 0 || !un.e.link[0])
		return refuse("is a link that leads out of the archive");
	if (strcmp(un.e.link, un.e.path) == 0)
		return 0;
	if (fs_below(un.dirs[0].fd, un.e.link, 0, &at) < 0)
		return errno == EXDEV ? leads_out() : failed("cannot find what is linked to");
	ret = linkat(at.dir, at.name, dir, name, 0);
	if (ret < 0 && make_way(dir, name) == 0)
		ret = linkat(at.dir, at.name, dir, name, 0);
	if (ret < 0)
		failed("cannot link");
	fs_at_close(&at);
	return ret;
}

static int make_special(int dir, const char *name)
{
	return un.e.type == '2' ? symlinkat(un.e.link, dir, name)
				: mknodat(dir, name, S_IFIFO | 0600, 0);
}

/* A symbolic link or a FIFO. */
static int unpack_special(int dir, const char *name)
{
	struct dir d;

	from_entry(&d);
	if (make_special(dir, name) < 0 && (make_way(dir, name) < 0 || make_special(dir, name) < 0))
		return failed("cannot make");
	return set_attributes(dir, name, &d) < 0 ? failed("cannot set mode, owner and time of") : 0;
}

static int unpack_directory(void)
{
	struct dir *d;
	const char *name;
	struct stat st;

	if (go_to(un.e.path, true, &name) < 0)
		return -1;
	d = &un.dirs[un.depth];
	from_entry(d);
	/* Where a link led here, the link is not the directory. */
	d->settle = un.depth == 0 ||
		    (fstatat(d[-1].fd, last_name(d), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		     S_ISDIR(st.st_mode));
	return 0;
}

static int unpack_one(void)
{
	const char *name;
	int dir;

	if (clean(un.e.path) < 0)
		return refuse("has \"..\" in it");
	if (un.e.type == '5')
		return unpack_directory();
	if (go_to(un.e.path, false, &name) < 0)
		return -1;
	if (!*name)
		return refuse("names the directory itself, and is none");
	dir = un.dirs[un.depth].fd;
	switch (un.e.type) {
	case '0':
		return unpack_file(dir, name);
	case '1':
		return unpack_hard_link(dir, name);
	case '2':
	case '6':
		return unpack_special(dir, name);
	}
	un.count--;
	un.skipped++; /* devices, and what nobody knows */
	return 0;
}

static ssize_t next_bytes(void *arg, const uint8_t **p, size_t max)
{
	return fs_in_next(arg, p, max);
}

static int unpack(void)
{
	int ret;

	while ((ret = tar_next(&un.r, &un.e)) > 0) {
		un.count++;
		if (unpack_one() < 0) {
			ret = -1;
			break;
		}
	}
	/* A failure has its message already, unless the archive is what is wrong. */
	if (ret < 0 && un.fs->err.kind == HUTCH_OK && !un.fs->lost)
		hutch_error_set(&un.fs->err, HUTCH_E_INVALID, 0, "the archive cannot be read: %s",
				un.r.wrong ? un.r.wrong : "no input");
	return ret;
}

/* The target directory, made if that is asked for. */
static int open_top(struct fs *fs)
{
	unsigned walk = FS_FOLLOW | (fs->p.parents ? FS_PARENTS : 0);

	if (fs_place(&fs->root, fs->p.path, walk, &un.top) < 0)
		return fs_fail(fs, "cannot find", NULL);
	un.made_top = fs->p.parents && mkdirat(un.top.dir, un.top.name, 0755) == 0;
	if (fs->p.parents && !un.made_top && errno != EEXIST) {
		fs_fail(fs, "cannot make the directory", NULL);
		fs_at_close(&un.top);
		return -1;
	}
	un.dirs[0] = (struct dir){
		.fd = openat(un.top.dir, un.top.name,
			     O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
	};
	if (un.dirs[0].fd >= 0)
		return 0;
	fs_fail(fs, "cannot open the directory", NULL);
	fs_at_close(&un.top);
	return -1;
}

int fs_tar_in(struct fs *fs)
{
	int ret;

	un.fs = fs;
	un.r = (struct tar_reader){.next = next_bytes, .arg = fs};
	un.count = un.bytes = un.skipped = 0;
	un.depth = 0;
	un.path[0] = '\0';
	if (open_top(fs) < 0)
		return -1;
	ret = unpack();
	if (ret < 0) {
		while (un.depth > 0)
			close(un.dirs[un.depth--].fd);
	} else {
		ret = leave_all();
	}
	close(un.dirs[0].fd);
	fs_at_close(&un.top);
	tar_free(&un.r);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "count", un.count);
	mp_kv_uint(&fs->map, "bytes", un.bytes);
	mp_kv_uint(&fs->map, "skipped", un.skipped);
	return fs_map_end(fs, FRAME_RESULT);
}
