/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a tree; see fs_tree.h. getdents64(2). */
#include "guest/fs_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/limits.h"

#define DIRENTS 8192u
/* Entries between two looks at the peer. */
#define LOOK_EVERY 64u

struct raw_entry {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

struct level {
	struct level *up;
	int fd;
	long at, len;	 /* of the entries in buf */
	size_t path_len; /* of the directory's own path */
	_Alignas(struct raw_entry) char buf[DIRENTS];
};

struct tree {
	struct fs *fs;
	const struct fs_tree_ops *ops;
	void *arg;
	struct level *top;
	unsigned depth; /* of top */
	char *path;
	size_t cap;
	unsigned seen;
};

enum fs_type fs_type_at(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return FS_TYPE_UNKNOWN;
	return fs_type_of_mode(st.st_mode);
}

/* DT_* are S_IFMT shifted (readdir(3)). */
static enum fs_type type_of(int dir, const struct raw_entry *d)
{
	return d->type ? fs_type_of_mode((uint32_t)d->type << 12) : fs_type_at(dir, d->name);
}

/* path becomes that of name in the top level's directory. */
static int set_path(struct tree *t, const char *name)
{
	size_t at = t->top->path_len, n = strlen(name), need = at + n + 2;
	char *grown;

	if (need > t->cap) {
		grown = realloc(t->path, need + 256);
		if (!grown)
			return -1;
		t->path = grown;
		t->cap = need + 256;
	}
	if (at)
		t->path[at++] = '/';
	memcpy(t->path + at, name, n + 1);
	return 0;
}

static int push(struct tree *t, int fd)
{
	struct level *l = t->depth + 1 < AGENT_TREE_DEPTH ? malloc(sizeof(*l)) : NULL;

	if (!l) {
		close(fd);
		errno = t->depth + 1 < AGENT_TREE_DEPTH ? ENOMEM : ELOOP;
		return -1;
	}
	l->up = t->top;
	l->fd = fd;
	l->at = l->len = 0;
	l->path_len = strlen(t->path);
	t->depth += t->top != NULL;
	t->top = l;
	return 0;
}

static void pop(struct tree *t)
{
	struct level *l = t->top;

	t->top = l->up;
	t->depth -= t->top != NULL;
	close(l->fd);
	free(l);
}

static struct fs_entry entry_of(const struct tree *t, enum fs_type type)
{
	size_t from = t->top->path_len;

	return (struct fs_entry){.dir = t->top->fd,
				 .name = t->path + from + (from > 0),
				 .path = t->path,
				 .path_len = strlen(t->path),
				 .depth = t->depth,
				 .type = type};
}

/* errno says why. -1: the walk ends. */
static int failed(struct tree *t, const struct fs_entry *e)
{
	if (!t->ops->failed)
		return fs_fail(t->fs, "cannot read", e->path);
	t->ops->failed(t->arg, e);
	return 0;
}

static int visit(struct tree *t, const struct raw_entry *d)
{
	struct fs_entry e;
	int ret, fd;

	if (set_path(t, d->name) < 0)
		return fs_fail(t->fs, "cannot walk", NULL);
	e = entry_of(t, type_of(t->top->fd, d));
	ret = t->ops->entry(t->arg, &e);
	if (ret != FS_TREE_ENTER)
		return ret;
	fd = openat(e.dir, e.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || push(t, fd) < 0)
		return failed(t, &e);
	return 0;
}

/* The directory on top is done. */
static int leave(struct tree *t)
{
	size_t n = t->top->path_len;
	struct fs_entry e;

	pop(t);
	if (!t->top)
		return 0;
	t->path[n] = '\0';
	e = entry_of(t, FS_TYPE_DIR);
	return t->ops->leave ? t->ops->leave(t->arg, &e) : 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static int step(struct tree *t)
{
	struct level *l = t->top;
	const struct raw_entry *d;

	if (l->at == l->len) {
		l->at = 0;
		l->len = syscall(SYS_getdents64, l->fd, l->buf, sizeof(l->buf));
		if (l->len < 0) {
			struct fs_entry e = {.path = l->path_len ? t->path : "."};

			if (l->path_len)
				t->path[l->path_len] = '\0';
			l->len = 0;
			if (failed(t, &e) < 0)
				return -1;
		}
		if (l->len == 0)
			return leave(t);
	}
	d = (const void *)(l->buf + l->at);
	l->at += d->reclen;
	if (is_dots(d->name))
		return 0;
	if (++t->seen % LOOK_EVERY == 0 && !fs_peer_waits(t->fs))
		return -1;
	return visit(t, d);
}

int fs_tree_walk(struct fs *fs, int dir, const char *base, const struct fs_tree_ops *ops, void *arg)
{
	struct tree t = {.fs = fs, .ops = ops, .arg = arg, .path = strdup(base)};
	int ret = 0;

	t.cap = strlen(base) + 1;
	if (!t.path || push(&t, dir) < 0) {
		free(t.path);
		return fs_fail(fs, "cannot walk", NULL);
	}
	while (ret == 0 && t.top)
		ret = step(&t);
	while (t.top)
		pop(&t);
	free(t.path);
	return ret;
}
