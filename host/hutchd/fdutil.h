/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors, directories, files and Unix sockets, all by directory descriptor and name.
 * Everything made here is close-on-exec, mode 0600 (directories 0700) whatever the umask. Failures
 * return -1 (NULL) with errno.
 */
#ifndef HUTCH_HOST_FDUTIL_H
#define HUTCH_HOST_FDUTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Close *fd unless it is -1, and set it to -1. errno is preserved. */
void fd_close(int *fd);
int fd_set_nonblock(int fd, bool on);

/* A file for reading or O_RDWR: no link is followed, and a fifo or device does not hold it up. -1 with errno. */
int file_open(int dirfd, const char *name, int access);
/* Read all of a file of at most max bytes (EFBIG above) into a malloc'ed, NUL-terminated buffer. */
char *file_read(int dirfd, const char *name, size_t max, size_t *len);
/*
 * Write beside and rename: a reader sees the old file or the new one. sync: fsync file and
 * directory.
 */
int file_write_atomic(int dirfd, const char *name, const void *data, size_t len, bool sync);
/* write(2) until all is out; for regular files and blocking descriptors. */
int write_all(int fd, const void *data, size_t len);

/* Open a directory that must not be a symbolic link. */
int dir_open(int dirfd, const char *name);
/*
 * Make (0700) and open. One that is there already is taken only when it is a directory and belongs
 * to the effective uid (EPERM); its mode is tightened to 0700.
 */
int dir_make(int dirfd, const char *name);
/*
 * The same for a path whose parents may be missing; they are made 0700, existing ones are left as
 * they are.
 */
int dir_make_path(const char *path);
/*
 * Remove name and all below it, crossing neither symbolic links nor file systems. ENOENT is
 * success. Goes on after a failure and returns the first one.
 */
int tree_remove(int dirfd, const char *name);

/*
 * Bind and listen on a Unix socket dirfd/name; type SOCK_STREAM or SOCK_SEQPACKET. The address goes
 * through /proc/self/fd, so that only name counts against sun_path's 107 bytes: at most
 * UNIX_NAME_MAX, else ENAMETOOLONG. The inode is never wider than 0600 (Linux takes the mode of the
 * socket's own inode at bind, fchmod(2) sets it before). EADDRINUSE when name is there.
 * Non-blocking.
 */
#define UNIX_NAME_MAX 80u
int unix_listen(int dirfd, const char *name, int type, int backlog);
/*
 * Non-blocking connect to dirfd/name; connecting to a Unix socket never takes time, so a full
 * backlog is EAGAIN rather than EINPROGRESS.
 */
int unix_connect(int dirfd, const char *name, int type);

/*
 * One packet with up to FD_MAX_PASSED descriptors over a seqpacket socket. fd_recv: *nfds is the
 * room in fds and then the count received, close-on-exec; 0 is EOF; EMSGSIZE when packet or
 * descriptors did not fit (those are closed).
 */
#define FD_MAX_PASSED 240u /* below SCM_MAX_FD, 253 */
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds);
ssize_t fd_recv(int sock, void *data, size_t size, int *fds, size_t *nfds);

#endif
