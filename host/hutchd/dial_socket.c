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

/* A directory that the launcher gave to the VMM's uid is taken as it is: what is above it is the broker's alone. */
static int open_dir(int rundir_fd)
{
	if (mkdirat(rundir_fd, DIAL_DIR, 0700) < 0 && errno != EEXIST)
		return -1;
	return dir_open(rundir_fd, DIAL_DIR);
}

static int bind_in(int dir, int rundir_fd)
{
	int fd = unix_listen(dir, DIAL_SOCKET, SOCK_STREAM, BACKLOG);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(dir, &st) == 0 &&
	    (st.st_uid == geteuid() || fchownat(dir, DIAL_SOCKET, st.st_uid, st.st_gid, 0) == 0) &&
	    symlinkat(DIAL_DIR "/" DIAL_SOCKET, rundir_fd, DIAL_SOCKET) == 0)
		return fd;
	fd_close(&fd);
	return -1;
}

int dial_listen(int rundir_fd)
{
	int dir = open_dir(rundir_fd), fd;

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
