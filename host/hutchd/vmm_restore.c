/* SPDX-License-Identifier: Apache-2.0 */
#include "host/hutchd/vmm_restore.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

static int check_read_only(int fd, const char *what, struct hutch_error *err)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "%s: %s", what, strerror(errno));
	if ((flags & O_ACCMODE) != O_RDONLY)
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "%s is not open for reading only, and a VMM would get it",
				       what);
	return 0;
}

/*
 * The VMM that wrote a file may be in foreign hands, and may have kept it open. A read lease is
 * given only where nobody has the file open for writing (fcntl_locking(2), F_SETLEASE); where the
 * file system or the owner allows no lease, nothing is known.
 */
static int check_unwritten(int fd, const char *what, struct hutch_error *err)
{
	if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
		fcntl(fd, F_SETLEASE, F_UNLCK);
		return 0;
	}
	if (errno != EAGAIN)
		return 0;
	return hutch_error_set(err, HUTCH_E_STATE, 0,
			       "%s is still open for writing in some process", what);
}

int vmm_check_shared(int fd, const char *what, struct hutch_error *err)
{
	return check_read_only(fd, what, err) < 0 || check_unwritten(fd, what, err) < 0 ? -1 : 0;
}

/* All of from into a pipe or socket, whose reader is not there yet: it holds size bytes. */
static int fill_pipe(int from, int to, size_t size)
{
	char buf[4096];
	off_t at = 0;

	while ((size_t)at < size) {
		ssize_t n = pread(from, buf, sizeof(buf), at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = EIO; /* it became shorter */
		if (n <= 0 || write_all(to, buf, (size_t)n) < 0)
			return -1;
		at += n;
	}
	return 0;
}

/* The reading end, with all of the state in it. -1 with errno; both are closed then. */
static int filled(int ends[2], int device_fd, size_t size)
{
	if (fill_pipe(device_fd, ends[1], size) < 0 || fd_set_nonblock(ends[0], false) < 0)
		fd_close(&ends[0]);
	fd_close(&ends[1]);
	return ends[0];
}

static int filled_pipe(int device_fd, size_t size)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
		return -1;
	if (size > 65536)
		fcntl(ends[1], F_SETPIPE_SZ, (int)VMM_MAX_DEVICE_STATE);
	return filled(ends, device_fd, size);
}

static int filled_socket(int device_fd, size_t size)
{
	int ends[2], room = (int)(2 * size);

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -1;
	setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	return filled(ends, device_fd, size);
}

/*
 * QEMU 11 refuses -incoming fd: on a file, and all versions take a pipe. That one is whole and its
 * write end closed before QEMU starts, so that loading it never waits. Where other pipes of this
 * user hold much already a new one holds no more than two pages (pipe(7), pipe-user-pages-soft);
 * then it is a socket.
 */
static int device_pipe(int device_fd, struct hutch_error *err)
{
	struct stat st;
	int fd;

	if (fstat(device_fd, &st) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "device state: %s", strerror(errno));
	if (st.st_size <= 0 || st.st_size > (off_t)VMM_MAX_DEVICE_STATE)
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "a device state of %lld bytes, where 1 to %u are possible",
				       (long long)st.st_size, VMM_MAX_DEVICE_STATE);
	fd = filled_pipe(device_fd, (size_t)st.st_size);
	if (fd < 0 && errno == EAGAIN)
		fd = filled_socket(device_fd, (size_t)st.st_size);
	if (fd < 0)
		hutch_error_set(err, HUTCH_E_IO, errno, "device state: %s", strerror(errno));
	return fd;
}

int vmm_restore_layers(const struct vmm_restore *r, int *fds, size_t *nfds, struct hutch_error *err)
{
	for (size_t i = 0; i < r->nlayers; i++) {
		if (vmm_check_shared(r->layers[i].data_fd, "a memory layer", err) < 0 ||
		    vmm_check_shared(r->layers[i].extents_fd, "a memory layer's table", err) < 0)
			return -1;
		fds[(*nfds)++] = r->layers[i].data_fd;
		fds[(*nfds)++] = r->layers[i].extents_fd;
	}
	return 0;
}

int vmm_restore_fds(const struct vmm_restore *r, int *fds, size_t *nfds, struct hutch_error *err)
{
	if (r->nlayers > VMM_MAX_LAYERS)
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "%zu memory layers, where %u are possible", r->nlayers,
				       VMM_MAX_LAYERS);
	if (vmm_check_shared(r->base_fd, "the memory", err) < 0)
		return -1;
	fds[SPAWN_FD_BASE] = r->base_fd;
	*nfds = SPAWN_FD_LAYERS;
	if (vmm_restore_layers(r, fds, nfds, err) < 0)
		return -1;
	fds[SPAWN_FD_DEVICE] = device_pipe(r->device_fd, err);
	return fds[SPAWN_FD_DEVICE] < 0 ? -1 : 0;
}
