/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, directories, files and Unix sockets, all by directory descriptor and name. */
#include "host/hutchd/fdutil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

int fd_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -1;
	return fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

static char *read_fd(int fd, size_t max, size_t *len)
{
	size_t cap = 4096, n = 0;
	char *buf = malloc(cap + 1);

	while (buf) {
		ssize_t r = read(fd, buf + n, cap - n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			break;
		n += (size_t)r;
		if (n > max) {
			errno = EFBIG;
			break;
		}
		if (r == 0) {
			buf[n] = '\0';
			*len = n;
			return buf;
		}
		if (n == cap) {
			char *more = realloc(buf, cap * 2 + 1);

			if (!more)
				break;
			buf = more;
			cap *= 2;
		}
	}
	free(buf);
	return NULL;
}

int file_open(int dirfd, const char *name, int access)
{
	return openat(dirfd, name, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

char *file_read(int dirfd, const char *name, size_t max, size_t *len)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	char *data;

	if (fd < 0)
		return NULL;
	data = read_fd(fd, max, len);
	fd_close(&fd);
	return data;
}

int write_all(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int file_write_atomic(int dirfd, const char *name, const void *data, size_t len, bool sync)
{
	char tmp[NAME_MAX + 1];
	int fd, saved;

	if ((size_t)snprintf(tmp, sizeof(tmp), ".%s.new", name) >= sizeof(tmp)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -1;
	if (fchmod(fd, 0600) < 0 || write_all(fd, data, len) < 0 || (sync && fsync(fd) < 0))
		goto fail;
	if (renameat(dirfd, tmp, dirfd, name) < 0)
		goto fail;
	fd_close(&fd);
	return sync ? fsync(dirfd) : 0;

fail:
	saved = errno;
	fd_close(&fd);
	unlinkat(dirfd, tmp, 0);
	errno = saved;
	return -1;
}

int dir_open(int dirfd, const char *name)
{
	return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

int dir_make(int dirfd, const char *name)
{
	bool made = mkdirat(dirfd, name, 0700) == 0;
	struct stat st;
	int fd;

	if (!made && errno != EEXIST)
		return -1;
	if (made && fchmodat(dirfd, name, 0700, 0) < 0) /* a umask may have taken our own bits */
		return -1;
	fd = dir_open(dirfd, name);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		goto fail;
	if (st.st_uid != geteuid()) {
		errno = EPERM;
		goto fail;
	}
	if ((st.st_mode & 07777) != 0700 && fchmod(fd, 0700) < 0)
		goto fail;
	return fd;

fail:
	fd_close(&fd);
	return -1;
}

int dir_make_path(const char *path)
{
	char *copy = strdup(path);
	int fd = -1;

	if (!copy)
		return -1;
	for (char *p = copy + 1; copy[0] && *p; p++) {
		if (*p != '/' || p[1] == '/' || p[1] == '\0')
			continue;
		*p = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			goto out;
		*p = '/';
	}
	fd = dir_make(AT_FDCWD, copy);
out:
	free(copy);
	return fd;
}

static int tree_remove_on(int dirfd, const char *name, dev_t dev, unsigned depth);

/* Takes over fd, which is a directory. */
static int remove_entries(int fd, dev_t dev, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int first = 0;

	if (!dir) {
		fd_close(&fd);
		return -1;
	}
	while (errno = 0, (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (tree_remove_on(dirfd(dir), e->d_name, dev, depth + 1) < 0 && first == 0)
			first = errno;
	}
	if (errno != 0 && first == 0)
		first = errno;
	closedir(dir);
	errno = first;
	return first ? -1 : 0;
}

static int tree_remove_on(int dirfd, const char *name, dev_t dev, unsigned depth)
{
	struct stat st;
	int fd, first = 0;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(dirfd, name, 0) < 0 && errno != ENOENT ? -1 : 0;
	if (st.st_dev != dev || depth > 64) {
		errno = st.st_dev != dev ? EXDEV : ELOOP;
		return -1;
	}
	fd = dir_open(dirfd, name);
	if (fd < 0)
		return errno == ENOENT ? 0 : -1;
	if (remove_entries(fd, dev, depth) < 0)
		first = errno;
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && first == 0)
		first = errno;
	errno = first;
	return first ? -1 : 0;
}

int tree_remove(int dirfd, const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -1;
	return tree_remove_on(dirfd, name, st.st_dev, 0);
}

static int unix_address(struct sockaddr_un *sa, int dirfd, const char *name)
{
	int n;

	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	if (strlen(name) > UNIX_NAME_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (dirfd == AT_FDCWD)
		n = snprintf(sa->sun_path, sizeof(sa->sun_path), "%s", name);
	else
		n = snprintf(sa->sun_path, sizeof(sa->sun_path), "/proc/self/fd/%d/%s", dirfd,
			     name);
	if (n < 0 || (size_t)n >= sizeof(sa->sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return 0;
}

int unix_listen(int dirfd, const char *name, int type, int backlog)
{
	struct sockaddr_un sa;
	int fd;

	if (unix_address(&sa, dirfd, name) < 0)
		return -1;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		goto fail;
	if (listen(fd, backlog) < 0) {
		int saved = errno;

		unlinkat(dirfd, name, 0);
		errno = saved;
		goto fail;
	}
	return fd;

fail:
	fd_close(&fd);
	return -1;
}

int unix_connect(int dirfd, const char *name, int type)
{
	struct sockaddr_un sa;
	int fd;

	if (unix_address(&sa, dirfd, name) < 0)
		return -1;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		fd_close(&fd);
	return fd;
}

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FD_MAX_PASSED * sizeof(int))];
	} control;
	/* sendmsg(2) only reads it */
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (nfds > 0) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

/* Hand over what fits and close the rest. Returns false when some did not fit. */
static bool take_fds(struct msghdr *msg, int *fds, size_t room, size_t *count)
{
	bool fits = !(msg->msg_flags & MSG_CTRUNC);

	*count = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*count < room) {
				fds[(*count)++] = fd;
			} else {
				fd_close(&fd);
				fits = false;
			}
		}
	}
	return fits;
}

ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t *nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FD_MAX_PASSED * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = data, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	size_t room = *nfds;
	ssize_t n;

	*nfds = 0;
	n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -1;
	if (take_fds(&msg, fds, room, nfds) && !(msg.msg_flags & MSG_TRUNC))
		return n;
	while (*nfds > 0)
		fd_close(&fds[--*nfds]);
	errno = EMSGSIZE;
	return -1;
}
