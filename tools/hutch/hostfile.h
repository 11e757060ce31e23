/* SPDX-License-Identifier: Apache-2.0 */
/* A file of this machine that is replaced as a whole, or not at all. */
#ifndef HUTCH_HOSTFILE_H
#define HUTCH_HOSTFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct hostfile {
	int fd;
	char *path;  /* of the file that is replaced, links resolved */
	char *temp;  /* beside it; NULL: written in place (a device, a fifo) */
	mode_t mode; /* of the file that is there already */
	bool exists;
	uint64_t size; /* written so far, holes included */
};

/*
 * Begin to write path: a file beside it, mode 0600, which takes its place in hostfile_commit. What
 * is no regular file is opened and written itself. -1 with errno.
 */
int hostfile_open(struct hostfile *f, const char *path);
/* Append; longer runs of zeros become holes. -1 with errno. */
int hostfile_write(struct hostfile *f, const void *data, size_t len);
/* Mode of the file that was there, else mode. -1 with errno; then discard it. */
int hostfile_commit(struct hostfile *f, mode_t mode, const struct timespec *mtime);
/* Take back what was not committed; frees all. */
void hostfile_close(struct hostfile *f);

#endif
