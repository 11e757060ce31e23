/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that takes its place whole, or not at all.
 *
 * It is made without a name (O_TMPFILE), so that nothing is left whatever ends this process; where the file
 * system cannot, or there is no /proc to name it by, it is ".hutch." and 16 hex digits.
 */
#ifndef HUTCH_GUEST_FS_NEW_H
#define HUTCH_GUEST_FS_NEW_H

#include <stdbool.h>
#include <sys/stat.h>

#define FS_NEW_NAME sizeof(".hutch.0123456789abcdef")

struct fs_new {
	int dir, fd;	       /* dir is not owned */
	char tmp[FS_NEW_NAME]; /* empty: it has no name */
};

enum fs_new_how {
	FS_NEW_ALONE,	 /* EEXIST when there is something */
	FS_NEW_EITHER,	 /* in the place of what may be there */
	FS_NEW_REPLACES, /* the same; it most likely is there */
};

/* In dir, mode 0600, for writing. 0, or -1 with errno. */
int fs_new_open(struct fs_new *n, int dir);
/* Owner (FS_NO_ID: as it is) and mode; the owner first, as it clears setuid bits. 0, or -1 with errno. */
int fs_new_attributes(struct fs_new *n, uid_t uid, gid_t gid, mode_t mode);
/* Become name. 0, or -1 with errno. */
int fs_new_place(struct fs_new *n, const char *name, enum fs_new_how how);
/* Close it; whatever did not take its place is gone. errno is preserved. */
void fs_new_close(struct fs_new *n);

#endif
