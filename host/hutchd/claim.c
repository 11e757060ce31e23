/* SPDX-License-Identifier: Apache-2.0 */
/* Who may serve a socket path and a state directory. */
#include "host/hutchd/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

#define LOCK_POLL_MS 20
#define BACKLOG	     512

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Is anybody behind the socket at dir_fd/name? */
static bool answers(int dir_fd, const char *name)
{
	int fd = unix_connect(dir_fd, name, SOCK_STREAM);
	bool yes = fd >= 0 || errno == EAGAIN; /* a full backlog is somebody's, too */

	fd_close(&fd);
	return yes;
}

/*
 * Does a broker greet whoever connects there, as they all do? One that was killed takes connections until the kernel has freed
 * its memory, and then drops them. Who does neither by then is one.
 */
static bool greets(int dir_fd, const char *name, int64_t until)
{
	int fd = unix_connect(dir_fd, name, SOCK_STREAM);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int64_t left = until - now_ms();
	char byte;
	bool yes;

	if (fd < 0)
		return false;
	yes = poll(&p, 1, left > 0 ? (int)left : 0) != 1 || recv(fd, &byte, 1, MSG_DONTWAIT) == 1;
	fd_close(&fd);
	return yes;
}

/* flock(2) has no timeout, and who holds it ends by itself: asked again for a while, unless a broker answers. */
static int take_lock(const struct claim *c, int dir_fd, const char *name)
{
	int64_t until = now_ms() + CLAIM_WAIT_MS;
	const struct timespec pause = {.tv_nsec = LOCK_POLL_MS * 1000000};
	int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -1;
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int why = errno;

		if (why != EWOULDBLOCK || greets(c->dir_fd, c->name, until) || now_ms() > until) {
			fd_close(&fd);
			errno = why;
			return -1;
		}
		nanosleep(&pause, NULL);
	}
	return fd;
}

static int open_socket_dir(struct claim *c, const char *path, struct hutch_error *err)
{
	const char *slash = strrchr(path, '/');
	char dir[4096];

	if (!slash || !slash[1] || strlen(slash + 1) > UNIX_NAME_MAX) {
		snprintf(err->path, sizeof(err->path), "%.255s", path);
		return hutch_error_set(err, HUTCH_E_INVALID, ENAMETOOLONG,
				       "the socket's file name in %s must have 1 to %u bytes", path,
				       UNIX_NAME_MAX);
	}
	snprintf(c->name, sizeof(c->name), "%s", slash + 1);
	snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	c->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->dir_fd < 0 && errno == ENOENT)
		c->dir_fd = dir_make_path(dir);
	if (c->dir_fd >= 0)
		return 0;
	return hutch_error_set(err, HUTCH_E_IO, errno, "cannot open the directory %s: %s", dir,
			       strerror(errno));
}

static int locked(struct hutch_error *err, const char *what, const char *path)
{
	if (errno == EWOULDBLOCK)
		return hutch_error_set(err, HUTCH_E_EXISTS, 0, "another hutchd holds the %s %s",
				       what, path);
	return hutch_error_set(err, HUTCH_E_IO, errno, "cannot lock the %s %s: %s", what, path,
			       strerror(errno));
}

/* Under both locks. */
static int clear_path(struct claim *c, const char *path, struct hutch_error *err)
{
	struct stat st;

	if (fstatat(c->dir_fd, c->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		return hutch_error_set(err, HUTCH_E_IO, errno, "%s: %s", path, strerror(errno));
	}
	if (!S_ISSOCK(st.st_mode))
		return hutch_error_set(err, HUTCH_E_EXISTS, 0, "%s exists and is not a socket",
				       path);
	if (answers(c->dir_fd, c->name))
		return hutch_error_set(err, HUTCH_E_EXISTS, 0, "another program serves %s", path);
	if (unlinkat(c->dir_fd, c->name, 0) < 0 && errno != ENOENT)
		return hutch_error_set(err, HUTCH_E_IO, errno, "cannot remove the stale %s: %s",
				       path, strerror(errno));
	return 0;
}

int claim_take(struct claim *c, int state_fd, const char *state, const char *socket_path,
	       struct hutch_error *err)
{
	char lock[sizeof(c->name) + 8];

	*c = (struct claim){.state_lock = -1, .socket_lock = -1, .dir_fd = -1};
	if (open_socket_dir(c, socket_path, err) < 0)
		return -1;
	snprintf(lock, sizeof(lock), "%s.lock", c->name);
	c->socket_lock = take_lock(c, c->dir_fd, lock);
	if (c->socket_lock < 0)
		return locked(err, "socket", socket_path);
	c->state_lock = take_lock(c, state_fd, "lock");
	if (c->state_lock < 0)
		return locked(err, "state directory", state);
	return clear_path(c, socket_path, err);
}

int claim_listen(struct claim *c, const char *socket_path, bool has_group, gid_t group,
		 struct hutch_error *err)
{
	int fd = unix_listen(c->dir_fd, c->name, SOCK_STREAM, BACKLOG);
	struct stat st;

	if (fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "cannot bind %s: %s", socket_path,
				       strerror(errno));
	if (fstatat(c->dir_fd, c->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		c->dev = st.st_dev;
		c->ino = st.st_ino;
		c->bound = true;
	}
	if (has_group && (fchownat(c->dir_fd, c->name, (uid_t)-1, group, AT_SYMLINK_NOFOLLOW) < 0 ||
			  fchmodat(c->dir_fd, c->name, 0660, 0) < 0)) {
		hutch_error_set(err, HUTCH_E_IO, errno, "cannot give %s to group %u: %s",
				socket_path, (unsigned)group, strerror(errno));
		fd_close(&fd);
		return -1;
	}
	return fd;
}

void claim_release(struct claim *c)
{
	struct stat st;

	if (c->bound && fstatat(c->dir_fd, c->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_dev == c->dev && st.st_ino == c->ino)
		unlinkat(c->dir_fd, c->name, 0);
	c->bound = false;
	fd_close(&c->state_lock);
	fd_close(&c->socket_lock);
	fd_close(&c->dir_fd);
}
