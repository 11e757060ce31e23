/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, with and without a root; see fs_path.h. */
#include "guest/fs_path.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_FLAGS (O_PATH | O_DIRECTORY | O_CLOEXEC)

void fs_at_close(struct fs_at *at)
{
	if (at->own && at->dir >= 0)
		close(at->dir);
	at->dir = -1;
	at->own = false;
}

static void init(struct fs_at *at)
{
	at->dir = -1;
	at->own = false;
	at->flags = AT_SYMLINK_NOFOLLOW;
	at->name = at->buf;
}

static void set_dir(struct fs_at *at, int dir)
{
	fs_at_close(at);
	at->dir = dir;
	at->own = true;
}

int fs_open(const struct fs_at *at, int flags)
{
	flags |= O_CLOEXEC | O_NOCTTY;
	return openat(at->dir, at->name,
		      at->flags & AT_SYMLINK_NOFOLLOW ? flags | O_NOFOLLOW : flags);
}

/* With a root */

struct walk {
	const struct fs_root *root;
	unsigned flags;		 /* enum fs_walk */
	int dirs[FS_PATH_DEPTH]; /* from the root to where it is; the first is the root's own */
	unsigned depth, links;
	char rest[2 * PATH_MAX]; /* of the path */
};

static int fail(int errnum)
{
	errno = errnum;
	return -1;
}

/* The part of path below prefix, component by component; NULL: it is not below it. */
static const char *strip_prefix(const char *path, const char *prefix)
{
	for (;;) {
		size_t n, m;

		path += strspn(path, "/");
		prefix += strspn(prefix, "/");
		n = strcspn(path, "/");
		m = strcspn(prefix, "/");
		if (m == 0)
			return path;
		if (m == 1 && prefix[0] == '.')
			prefix++;
		else if (n == 1 && path[0] == '.')
			path++;
		else if (n != m || memcmp(path, prefix, n) != 0)
			return NULL;
		else
			path += n, prefix += m;
	}
}

static void leave_to(struct walk *w, unsigned depth)
{
	while (w->depth > depth)
		close(w->dirs[w->depth--]);
}

/* Put text, of a path or a link, before what is left of the path. */
static int push_text(struct walk *w, const char *text)
{
	size_t n, rest = strlen(w->rest);

	if (text[0] == '/') {
		text = w->root->text ? strip_prefix(text, w->root->text) : NULL;
		if (!text)
			return fail(EXDEV);
		leave_to(w, 0);
	}
	n = strlen(text);
	if (n + 1 + rest >= sizeof(w->rest))
		return fail(ENAMETOOLONG);
	memmove(w->rest + n + 1, w->rest, rest + 1);
	memcpy(w->rest, text, n);
	w->rest[n] = '/';
	return 0;
}

/* The next component into name; false at the end. */
static bool pop_name(struct walk *w, char *name, size_t size)
{
	size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/");

	if (n == 0)
		return false;
	if (n < size) {
		memcpy(name, w->rest + skip, n);
		name[n] = '\0';
	} else { /* too long for any file system: it says so */
		memset(name, 'x', size - 1);
		name[size - 1] = '\0';
	}
	memmove(w->rest, w->rest + skip + n, strlen(w->rest + skip + n) + 1);
	return true;
}

/* name is a link: go on with its text. 0; 1: it is none; -1. */
static int follow(struct walk *w, const char *name)
{
	char text[PATH_MAX];
	ssize_t n = readlinkat(w->dirs[w->depth], name, text, sizeof(text));

	if (n < 0)
		return errno == EINVAL || errno == ENOENT ? 1 : -1;
	if (n == sizeof(text))
		return fail(ENAMETOOLONG);
	if (++w->links > FS_PATH_LINKS)
		return fail(ELOOP);
	text[n] = '\0';
	return push_text(w, text);
}

/* A component that is not the last. */
static int enter(struct walk *w, const char *name)
{
	int dir = w->dirs[w->depth], fd = openat(dir, name, DIR_FLAGS | O_NOFOLLOW), ret;

	if (fd < 0 && errno == ENOENT && (w->flags & FS_PARENTS)) {
		if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
			return -1;
		fd = openat(dir, name, DIR_FLAGS | O_NOFOLLOW);
	}
	if (fd < 0 && errno == ENOTDIR) {
		ret = follow(w, name);
		return ret == 1 ? fail(ENOTDIR) : ret;
	}
	if (fd < 0)
		return -1;
	if (w->depth + 1 == FS_PATH_DEPTH) {
		close(fd);
		return fail(ELOOP);
	}
	w->dirs[++w->depth] = fd;
	return 0;
}

static bool at_end(const struct walk *w)
{
	return w->rest[strspn(w->rest, "/")] == '\0';
}

static int step(struct walk *w, const char *name, bool *last)
{
	int ret;

	if (strcmp(name, "..") == 0) {
		if (w->depth == 0)
			return fail(EXDEV);
		leave_to(w, w->depth - 1);
		return 0;
	}
	if (strcmp(name, ".") == 0)
		return 0;
	if (!at_end(w))
		return enter(w, name);
	ret = w->flags & FS_FOLLOW ? follow(w, name) : 1;
	*last = ret == 1;
	return ret < 0 ? -1 : 0;
}

static int walk(const struct fs_root *root, const char *path, unsigned flags, struct fs_at *at)
{
	static struct walk w;
	bool last = false;
	int ret;

	w.root = root;
	w.flags = flags;
	w.dirs[0] = root->fd;
	w.depth = w.links = 0;
	w.rest[0] = '\0';
	init(at);
	ret = push_text(&w, path);
	while (ret == 0 && !last && pop_name(&w, at->buf, sizeof(at->buf)))
		ret = step(&w, at->buf, &last);
	if (ret < 0) {
		ret = errno;
		leave_to(&w, 0);
		return fail(ret);
	}
	if (!last)
		strcpy(at->buf, ".");
	at->dir = w.dirs[w.depth];
	at->own = w.depth > 0;
	while (w.depth > 1)
		close(w.dirs[--w.depth]);
	return 0;
}

int fs_below(int dir, const char *path, unsigned flags, struct fs_at *at)
{
	const struct fs_root root = {.fd = dir};

	return walk(&root, path, flags, at);
}

/* Without a root */

/* Directory and last name of path, in buf; the name is "." where there is none of its own. */
static int split(const char *path, char *buf, const char **dir, const char **name)
{
	size_t n = strlen(path);
	char *slash;

	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n == 0 || n >= PATH_MAX)
		return fail(n ? ENAMETOOLONG : ENOENT);
	memcpy(buf, path, n);
	buf[n] = '\0';
	slash = strrchr(buf, '/');
	*name = slash ? slash + 1 : buf;
	*dir = !slash ? "." : slash == buf ? "/" : buf;
	if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0) {
		*dir = path;
		*name = ".";
	} else if (slash && slash != buf) {
		*slash = '\0';
	}
	return 0;
}

static int make_parents(int base, char *dir)
{
	for (char *p = dir + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdirat(base, dir, 0755) < 0 && errno != EEXIST)
			return -1;
		*p = '/';
	}
	return mkdirat(base, dir, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

/* at becomes the place of path, which is relative to base. */
static int place_from(int base, const char *path, unsigned flags, struct fs_at *at)
{
	char buf[PATH_MAX];
	const char *dir, *name;
	int fd;

	if (split(path, buf, &dir, &name) < 0)
		return -1;
	fd = openat(base, dir, DIR_FLAGS);
	if (fd < 0 && errno == ENOENT && (flags & FS_PARENTS) && dir == buf &&
	    make_parents(base, buf) == 0)
		fd = openat(base, dir, DIR_FLAGS);
	if (fd < 0)
		return -1;
	set_dir(at, fd);
	memmove(at->buf, name, strlen(name) + 1);
	return 0;
}

/* While at names a link, go to where it leads. */
static int follow_last(struct fs_at *at)
{
	char text[PATH_MAX];

	for (int links = 0;; links++) {
		ssize_t n = readlinkat(at->dir, at->name, text, sizeof(text) - 1);

		if (n < 0)
			return errno == EINVAL || errno == ENOENT ? 0 : -1;
		if (links == FS_PATH_LINKS)
			return fail(ELOOP);
		text[n] = '\0';
		if (place_from(at->dir, text, 0, at) < 0)
			return -1;
	}
}

int fs_place(const struct fs_root *root, const char *path, unsigned flags, struct fs_at *at)
{
	int saved;

	if (root->fd >= 0)
		return walk(root, path, flags, at);
	init(at);
	if (place_from(AT_FDCWD, path, flags, at) == 0 &&
	    (!(flags & FS_FOLLOW) || follow_last(at) == 0))
		return 0;
	saved = errno;
	fs_at_close(at);
	return fail(saved);
}

int fs_find(const struct fs_root *root, const char *path, bool follow_it, struct fs_at *at)
{
	if (root->fd >= 0)
		return walk(root, path, follow_it ? FS_FOLLOW : 0, at);
	at->dir = AT_FDCWD;
	at->own = false;
	at->name = path;
	at->flags = follow_it ? 0 : AT_SYMLINK_NOFOLLOW;
	return 0;
}
