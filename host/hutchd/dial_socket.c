/* SPDX-License-Identifier: Apache-2.0 */
/* The host's end of what a guest dials. */
#include "host/hutchd/dial_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

#define BACKLOG 16

#define OPEN_DIR    0711
#define OPEN_SOCKET 0666

static int bind_in(int dir, int rundir_fd)
{
	int fd = unix_listen(dir, DIAL_SOCKET, SOCK_STREAM, BACKLOG);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(dir, &st) == 0 &&
	    ((st.st_mode & 07777) != OPEN_DIR || fchmodat(dir, DIAL_SOCKET, OPEN_SOCKET, 0) == 0) &&
	    symlinkat(DIAL_DIR "/" DIAL_SOCKET, rundir_fd, DIAL_SOCKET) == 0)
		return fd;
	fd_close(&fd);
	return -1;
}

int dial_open(int rundir_fd)
{
	if (fchmodat(rundir_fd, DIAL_DIR, OPEN_DIR, 0) < 0)
		return -1;
	return fchmodat(rundir_fd, DIAL_DIR "/" DIAL_SOCKET, OPEN_SOCKET, 0);
}

int dial_listen(int rundir_fd)
{
	int dir, fd;

	if (mkdirat(rundir_fd, DIAL_DIR, 0700) < 0 && errno != EEXIST)
		return -1;
	dir = dir_open(rundir_fd, DIAL_DIR);
	if (dir < 0)
		return -1;
	dial_remove(rundir_fd);
	fd = bind_in(dir, rundir_fd);
	fd_close(&dir);
	return fd;
}

void dial_remove(int rundir_fd)
{
	unlinkat(rundir_fd, DIAL_DIR "/" DIAL_SOCKET, 0);
	unlinkat(rundir_fd, DIAL_SOCKET, 0);
}
