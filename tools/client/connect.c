/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the broker's socket and connecting to it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/client/client.h"

#define CONNECT_TIMEOUT_S 10

/*
 * Fill addr for path. One that sun_path cannot hold is reached through a descriptor of its
 * directory, which is returned in *dirfd and must stay open until connect(2) is done.
 */
static int address(struct sockaddr_un *addr, const char *path, int *dirfd)
{
	const char *slash = strrchr(path, '/');
	char dir[4096];
	int n;

	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) < sizeof(addr->sun_path)) {
		strcpy(addr->sun_path, path);
		return 0;
	}
	n = snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path + 1) : 1,
		     slash ? path : ".");
	if (n >= (int)sizeof(dir)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	*dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*dirfd < 0)
		return -1;
	n = snprintf(addr->sun_path, sizeof(addr->sun_path), "/proc/self/fd/%d/%s", *dirfd,
		     slash ? slash + 1 : path);
	if (n >= (int)sizeof(addr->sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return 0;
}

/*
 * A full backlog: wait for a place in it, in connect(2) itself, as nothing else can wait for that.
 */
static int connect_patiently(int fd, const struct sockaddr_un *addr)
{
	struct timeval tv = {.tv_sec = CONNECT_TIMEOUT_S};
	int r;

	if (fcntl(fd, F_SETFL, 0) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) < 0)
		return -1;
	do
		r = connect(fd, (const struct sockaddr *)addr, sizeof(*addr));
	while (r < 0 && errno == EINTR);
	return r;
}

/* A connected socket, or -1 with errno. */
static int connect_path(const char *path)
{
	struct sockaddr_un addr;
	int dirfd = -1, fd = -1, r, saved;

	r = address(&addr, path, &dirfd);
	if (r == 0) {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		r = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&addr, sizeof(addr));
		if (r < 0 && fd >= 0 && errno == EAGAIN)
			r = connect_patiently(fd, &addr);
	}
	saved = errno;
	if (dirfd >= 0)
		close(dirfd);
	if (r < 0 && fd >= 0) {
		close(fd);
		fd = -1;
	}
	errno = saved;
	return fd;
}

static int refused(struct hutch_failure *why, const char *path, const char *other, int err)
{
	enum hutch_error_kind kind = HUTCH_E_IO;

	if (err == ENOENT || err == ECONNREFUSED || err == ENOTDIR || err == EAGAIN)
		kind = HUTCH_E_NOT_DISPATCHED;
	else if (err == EACCES || err == EPERM)
		kind = HUTCH_E_DENIED;
	fail_set(why, kind, err, "no broker answers at %s%s%s: %s", path, other ? " or " : "",
		 other ? other : "", strerror(err));
	if (why != NULL)
		snprintf(why->path, sizeof(why->path), "%s", path);
	return -1;
}

static int connect_to(const char *path, char **out, struct hutch_failure *why)
{
	int fd;

	*out = strdup(path);
	if (*out == NULL)
		return fail_set(why, HUTCH_E_IO, ENOMEM, "no memory to connect to %s", path);
	fd = connect_path(path);
	if (fd < 0) {
		refused(why, path, NULL, errno);
		free(*out);
		*out = NULL;
	}
	return fd;
}

static const char *env(const char *name)
{
	const char *v = getenv(name);

	return v != NULL && *v != '\0' ? v : NULL;
}

int connect_broker(const char *explicit_path, char **path, struct hutch_failure *why)
{
	static const char system_path[] = "/run/hutch/hutchd.sock";
	const char *runtime = env("XDG_RUNTIME_DIR");
	char own[4096];
	int fd;

	if (explicit_path == NULL)
		explicit_path = env("HUTCH_SOCKET");
	if (explicit_path != NULL)
		return connect_to(explicit_path, path, why);
	if (runtime == NULL || runtime[0] != '/' ||
	    snprintf(own, sizeof(own), "%s/hutch/hutchd.sock", runtime) >= (int)sizeof(own))
		return connect_to(system_path, path, why);
	fd = connect_to(own, path, why);
	if (fd >= 0 || (errno != ENOENT && errno != ECONNREFUSED && errno != ENOTDIR))
		return fd;
	fd = connect_to(system_path, path, NULL);
	if (fd < 0)
		refused(why, own, system_path, errno);
	return fd;
}
