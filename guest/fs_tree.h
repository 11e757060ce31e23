/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking a tree by descriptors: no link is followed, and a directory that is moved about meanwhile leads nowhere
 * else. The walk keeps one descriptor and one buffer per level; AGENT_TREE_DEPTH levels, deeper is ELOOP.
 */
#ifndef HUTCH_GUEST_FS_TREE_H
#define HUTCH_GUEST_FS_TREE_H

#include "guest/fs.h"

struct fs_entry {
	int dir; /* of its directory */
	const char *name;
	const char *path; /* base, and from where the walk started; without a '/' at the start */
	size_t path_len;
	unsigned depth; /* 0: directly in the directory where it started */
	enum fs_type type;
};

struct fs_tree_ops {
	/* FS_TREE_ENTER: it is a directory, and is to be walked. -1: the walk ends with it. */
	int (*entry)(void *arg, const struct fs_entry *e);
	/* All in a directory was walked. NULL: nothing to be done. */
	int (*leave)(void *arg, const struct fs_entry *e);
	/* It cannot be opened or read (errno). NULL: the walk ends. */
	void (*failed)(void *arg, const struct fs_entry *e);
};
#define FS_TREE_ENTER 1

/*
 * Walk all below dir, which is taken over: a directory opened for reading, with base for its path. -1: a callback said so, or with
 * fs->err set ("cannot read"), or the peer is gone.
 */
int fs_tree_walk(struct fs *fs, int dir, const char *base, const struct fs_tree_ops *ops,
		 void *arg);

/* The type where the directory did not tell it. */
enum fs_type fs_type_at(int dir, const char *name);

#endif
