/* SPDX-License-Identifier: Apache-2.0 */
/* fs.chmod, fs.chown, fs.utimes: mode, owner and times. */
#include "guest/fs_attr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/fs.h"
#include "guest/fs_tree.h"
#include "guest/user.h"

/* fchmodat(2) follows links, and knows no descriptor of O_PATH: so by the descriptor's name in /proc. */
int fs_chmod_at(int dir, const char *name, mode_t mode)
{
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), ret, saved;
	char path[32];
	struct stat st;

	if (fd < 0)
		return -1;
	snprintf(path, sizeof(path), "self/fd/%d", fd);
	ret = fstat(fd, &st);
	if (ret == 0 && !S_ISLNK(st.st_mode))
		ret = fchmodat(agent.proc_fd, path, mode, 0);
	saved = errno;
	close(fd);
	errno = saved;
	return ret;
}

struct change {
	struct fs *fs;
	const char *what;
	int (*act)(const struct fs *fs, int dir, const char *name, int flags);
};

static int change_one(const struct change *c, int dir, const char *name, const char *path)
{
	if (c->act(c->fs, dir, name, AT_SYMLINK_NOFOLLOW) < 0)
		return fs_fail(c->fs, c->what, path);
	return 0;
}

static int change_entry(void *arg, const struct fs_entry *e)
{
	if (e->type == FS_TYPE_DIR)
		return FS_TREE_ENTER; /* it is changed when it was walked, as it may close itself */
	return change_one(arg, e->dir, e->name, e->path);
}

static int change_left(void *arg, const struct fs_entry *e)
{
	return change_one(arg, e->dir, e->name, e->path);
}

static int change_below(struct change *c, const struct fs_at *at)
{
	static const struct fs_tree_ops ops = {.entry = change_entry, .leave = change_left};
	struct stat st;
	int fd;

	if (fstatat(at->dir, at->name, &st, at->flags) < 0)
		return fs_fail(c->fs, c->what, NULL);
	if (!S_ISDIR(st.st_mode))
		return 0;
	fd = fs_open(at, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (fd < 0)
		return fs_fail(c->fs, "cannot open", NULL);
	return fs_tree_walk(c->fs, fd, "", &ops, c);
}

static int change(struct change *c)
{
	struct fs *fs = c->fs;
	struct fs_at at;
	int ret = 0;

	if (fs_find(&fs->root, fs->p.path, fs->p.follow, &at) < 0)
		return fs_fail(fs, c->what, NULL);
	if (fs->p.recursive)
		ret = change_below(c, &at);
	if (ret == 0 && c->act(fs, at.dir, at.name, at.flags) < 0)
		ret = fs_fail(fs, c->what, NULL);
	fs_at_close(&at);
	return ret < 0 ? -1 : fs_result_empty(fs);
}

static int set_mode(const struct fs *fs, int dir, const char *name, int flags)
{
	return flags ? fs_chmod_at(dir, name, fs->p.mode) : fchmodat(dir, name, fs->p.mode, 0);
}

int fs_chmod(struct fs *fs)
{
	struct change c = {.fs = fs, .what = "cannot set the mode of", .act = set_mode};

	return change(&c);
}

static int set_owner(const struct fs *fs, int dir, const char *name, int flags)
{
	return fchownat(dir, name, fs->p.uid, fs->p.gid, flags);
}

int fs_chown(struct fs *fs)
{
	struct change c = {.fs = fs, .what = "cannot set the owner of", .act = set_owner};
	struct user u;

	if (fs->p.owner) {
		if (user_lookup("/etc", fs->p.owner, &u, &fs->err) < 0)
			return -1;
		fs->p.uid = u.uid;
		fs->p.gid = u.gid;
	}
	return change(&c);
}

static struct timespec time_of(const struct fs *fs, uint32_t param, uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
			      .tv_nsec = (long)(ns % 1000000000u)};

	if (!(fs->p.given & (FS_P_ATIME | FS_P_MTIME)))
		ts.tv_nsec = UTIME_NOW;
	else if (!(fs->p.given & param))
		ts.tv_nsec = UTIME_OMIT;
	return ts;
}

static int set_times(const struct fs *fs, int dir, const char *name, int flags)
{
	struct timespec ts[2] = {time_of(fs, FS_P_ATIME, fs->p.atime_ns),
				 time_of(fs, FS_P_MTIME, fs->p.mtime_ns)};

	return utimensat(dir, name, ts, flags);
}

int fs_utimes(struct fs *fs)
{
	struct change c = {.fs = fs, .what = "cannot set the times of", .act = set_times};

	return change(&c);
}
