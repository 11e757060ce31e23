/* SPDX-License-Identifier: Apache-2.0 */
/* One call of fs.* in its worker: params, user and root, the method, its answer, and what is left of the input. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_io.h"
#include "guest/user.h"

static fs_fn *const methods[FS_METHODS] = {
	[FS_STAT] = fs_stat,	   [FS_EXISTS] = fs_exists, [FS_READLINK] = fs_readlink,
	[FS_STATFS] = fs_statfs,   [FS_LIST] = fs_list,	    [FS_READ] = fs_read,
	[FS_TAR_OUT] = fs_tar_out, [FS_WATCH] = fs_watch,   [FS_WRITE] = fs_write,
	[FS_APPEND] = fs_append,   [FS_MKDIR] = fs_mkdir,   [FS_REMOVE] = fs_remove,
	[FS_MOVE] = fs_move,	   [FS_COPY] = fs_copy,	    [FS_SYMLINK] = fs_symlink,
	[FS_LINK] = fs_link,	   [FS_CHMOD] = fs_chmod,   [FS_CHOWN] = fs_chown,
	[FS_UTIMES] = fs_utimes,   [FS_TAR_IN] = fs_tar_in,
};

int fs_fail_errno(struct fs *fs, int errnum, const char *what, const char *path)
{
	enum hutch_error_kind kind = HUTCH_E_IO;

	if (fs->lost || fs->broken)
		return -1;
	if (errnum == ENOENT)
		kind = HUTCH_E_NOT_FOUND;
	else if (errnum == EEXIST)
		kind = HUTCH_E_EXISTS;
	else if (errnum == EACCES || errnum == EPERM)
		kind = HUTCH_E_DENIED;
	if (!path)
		path = fs->p.path;
	if (errnum == EXDEV && fs->p.root) {
		hutch_error_set(&fs->err, HUTCH_E_DENIED, errnum, "%s %s: it leads out of %s", what,
				path, fs->p.root);
	} else {
		hutch_error_set(&fs->err, kind, errnum, "%s %s: %s", what, path, strerror(errnum));
	}
	strncpy(fs->err.path, path, sizeof(fs->err.path) - 1);
	return -1;
}

int fs_fail(struct fs *fs, const char *what, const char *path)
{
	return fs_fail_errno(fs, errno, what, path);
}

int fs_refuse(struct fs *fs, const char *path, const char *why)
{
	if (!path)
		path = fs->p.path;
	hutch_error_set(&fs->err, HUTCH_E_INVALID, 0, "%s %s", path, why);
	strncpy(fs->err.path, path, sizeof(fs->err.path) - 1);
	return -1;
}

/* This process becomes the user; there is no way back. */
static int become_user(struct fs *fs)
{
	struct user u;

	if (!fs->p.user)
		return 0;
	if (user_lookup("/etc", fs->p.user, &u, &fs->err) < 0)
		return -1;
	if (geteuid() != 0 && u.uid == geteuid() && u.gid == getegid())
		return 0;
	fs->left_user = true;
	if (syscall(SYS_setgroups, u.ngroups, u.groups) < 0 ||
	    syscall(SYS_setresgid, u.gid, u.gid, u.gid) < 0 ||
	    syscall(SYS_setresuid, u.uid, u.uid, u.uid) < 0)
		return hutch_error_set(&fs->err, HUTCH_E_DENIED, errno,
				       "this agent may not act as user %s: %s", fs->p.user,
				       strerror(errno));
	return 0;
}

static int open_root(struct fs *fs)
{
	if (!fs->p.root)
		return 0;
	fs->root.text = fs->p.root;
	fs->root.fd = open(fs->p.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fs->root.fd < 0 ? fs_fail(fs, "cannot open the root", fs->p.root) : 0;
}

static int run(struct fs *fs, const struct worker_job *job)
{
	if (fs_call_decode(&fs->p, job->method, job->params_len ? job->params : NULL,
			   job->params_len, &fs->err) < 0 ||
	    become_user(fs) < 0 || open_root(fs) < 0)
		return -1;
	return methods[job->method](fs);
}

static void answer_error(struct fs *fs)
{
	mp_buf_reset(&fs->map);
	if (msg_error_encode(&fs->map, &fs->err) == 0)
		fs_out_map(fs);
}

/* Answer, and tell where the input is. */
static void finish(struct fs *fs, struct worker_done *done)
{
	fs_out_flush(fs);
	if (!fs->lost && !fs->broken && fs_in_rest(fs, &done->caller_end, &done->rest) < 0)
		answer_error(fs); /* behind the answer; the connection ends with it */
	fs_out_flush(fs);
	done->how = fs->lost ? WORKER_LOST : fs->broken ? WORKER_BROKEN : WORKER_ANSWERED;
}

void fs_serve(const struct worker_job *job, struct worker_done *done)
{
	static struct fs fs;

	memset(&fs, 0, sizeof(fs));
	fs.conn = job->fd;
	fs.root.fd = -1;
	fcntl(job->fd, F_SETFL, O_RDWR); /* blocking, while no one else uses it */
	fs_in_start(job->caller_end, job->input, job->input_len);
	fs_out_start();
	if (run(&fs, job) < 0 && !fs.lost)
		answer_error(&fs);
	finish(&fs, done);
	fcntl(job->fd, F_SETFL, O_RDWR | O_NONBLOCK);
	done->leaves = fs.left_user;
	if (fs.root.fd >= 0)
		close(fs.root.fd);
	mp_buf_free(&fs.map);
	mp_buf_free(&fs.errors);
	fs_call_free(&fs.p);
}
