/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths, with and without a root that confines them.
 *
 * Without a root the kernel resolves them, relative to "/". With one, every step is taken here: a component is opened
 * with O_NOFOLLOW below the directory before it, a link is read and its text put in its place, ".." goes back to
 * the directory that was opened before. An absolute path or link must start with the root's own text and goes on
 * below it; whatever leads out is EXDEV. The kernel never follows a link, so that no race can lead outside.
 * openat2(2) cannot do it: RESOLVE_BENEATH refuses absolute links that stay inside, and RESOLVE_IN_ROOT takes
 * those that lead out for other files instead of refusing them.
 */
#ifndef HUTCH_GUEST_FS_PATH_H
#define HUTCH_GUEST_FS_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Directories that lie one in the other on a confined path, and links on any; more are ELOOP. */
#define FS_PATH_DEPTH 512
#define FS_PATH_LINKS 40

struct fs_root {
	int fd;		  /* O_PATH; -1: no root */
	const char *text; /* as the caller gave it: an absolute path */
};

/* A name in a directory, for the *at system calls. */
struct fs_at {
	int dir;
	bool own;  /* dir is to be closed */
	int flags; /* AT_SYMLINK_NOFOLLOW or 0 */
	const char *name;
	char buf[PATH_MAX];
};

enum fs_walk {
	FS_FOLLOW = 1,	/* the last component as well */
	FS_PARENTS = 2, /* make directories that are missing, mode 0755 */
};

/* Something to be looked at or opened. 0, or -1 with errno; at needs no closing then. */
int fs_find(const struct fs_root *root, const char *path, bool follow, struct fs_at *at);
/*
 * A name to be made, replaced or removed: at->dir is its directory, at->name has no '/'. It is "." where path
 * names the root, "/", or ends with ".." . FS_FOLLOW: a link there is followed, to what is there or not.
 */
int fs_place(const struct fs_root *root, const char *path, unsigned walk, struct fs_at *at);
/* Another path below a directory that was opened: nothing leads out of dir, of which the text is unknown. */
int fs_below(int dir, const char *path, unsigned walk, struct fs_at *at);
void fs_at_close(struct fs_at *at);
/* Open what fs_find or fs_place found. */
int fs_open(const struct fs_at *at, int flags);

#endif
