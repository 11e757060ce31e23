/* SPDX-License-Identifier: Apache-2.0 */
/* A file that takes its place whole; see fs_new.h. open(2) O_TMPFILE, linkat(2), renameat2(2). */
#include "guest/fs_new.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/agent.h"

#define TRIES 8 /* of random names; one is enough but for a hostile directory */

static int random_name(char *name)
{
	uint64_t v;

	if (getrandom(&v, sizeof(v), 0) != sizeof(v))
		return -1;
	snprintf(name, FS_NEW_NAME, ".hutch.%016llx", (unsigned long long)v);
	return 0;
}

static int open_named(struct fs_new *n)
{
	for (int i = 0; i < TRIES; i++) {
		if (random_name(n->tmp) < 0)
			break;
		n->fd = openat(n->dir, n->tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			       0600);
		if (n->fd >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	n->tmp[0] = '\0';
	return -1;
}

int fs_new_open(struct fs_new *n, int dir)
{
	n->dir = dir;
	n->tmp[0] = '\0';
	n->fd = -1;
	if (agent.proc_fd >= 0)
		n->fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* What a file system without it says differs (open(2)); a real reason shows again. */
	return n->fd >= 0 ? 0 : open_named(n);
}

int fs_new_attributes(struct fs_new *n, uid_t uid, gid_t gid, mode_t mode)
{
	if ((uid != (uid_t)-1 || gid != (gid_t)-1) && fchown(n->fd, uid, gid) < 0)
		return -1;
	return fchmod(n->fd, mode);
}

/* Give the nameless file a name that is free: root by its descriptor, others by that one's name in /proc. */
static int link_as(const struct fs_new *n, const char *name)
{
	char path[32];

	if (linkat(n->fd, "", n->dir, name, AT_EMPTY_PATH) == 0)
		return 0;
	if (errno != ENOENT) /* that is what it says without the right to it */
		return -1;
	snprintf(path, sizeof(path), "self/fd/%d", n->fd);
	return linkat(agent.proc_fd, path, n->dir, name, AT_SYMLINK_FOLLOW);
}

static int link_tmp(struct fs_new *n)
{
	int ret = -1;

	for (int i = 0; ret < 0 && i < TRIES && (i == 0 || errno == EEXIST); i++)
		ret = random_name(n->tmp) < 0 ? -1 : link_as(n, n->tmp);
	if (ret < 0)
		n->tmp[0] = '\0';
	return ret;
}

/* File systems without RENAME_NOREPLACE have hard links. */
static int rename_free(struct fs_new *n, const char *name)
{
	if (syscall(SYS_renameat2, n->dir, n->tmp, n->dir, name, 1u /* RENAME_NOREPLACE */) == 0) {
		n->tmp[0] = '\0';
		return 0;
	}
	return errno == EINVAL ? linkat(n->dir, n->tmp, n->dir, name, 0) : -1;
}

int fs_new_place(struct fs_new *n, const char *name, enum fs_new_how how)
{
	if (!n->tmp[0] && how != FS_NEW_REPLACES) {
		if (link_as(n, name) == 0)
			return 0;
		if (errno != EEXIST || how == FS_NEW_ALONE)
			return -1;
	}
	if (!n->tmp[0] && link_tmp(n) < 0)
		return -1;
	if (how == FS_NEW_ALONE)
		return rename_free(n, name);
	if (renameat(n->dir, n->tmp, n->dir, name) < 0)
		return -1;
	n->tmp[0] = '\0';
	return 0;
}

void fs_new_close(struct fs_new *n)
{
	int saved = errno;

	if (n->fd >= 0)
		close(n->fd);
	if (n->tmp[0])
		unlinkat(n->dir, n->tmp, 0);
	n->fd = -1;
	n->tmp[0] = '\0';
	errno = saved;
}
