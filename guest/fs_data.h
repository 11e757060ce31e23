/* SPDX-License-Identifier: Apache-2.0 */
/* A file's bytes: where they are, and copying them inside the guest. */
#ifndef HUTCH_GUEST_FS_DATA_H
#define HUTCH_GUEST_FS_DATA_H

#include "guest/fs.h"

/* It may have holes: fewer blocks than bytes. */
bool fs_may_have_holes(const struct stat *st);
/*
 * The next stretch of data at or behind from: *at to *end, both at most size. False: only a hole is left. A file
 * system that cannot tell says it is all data (lseek(2) SEEK_DATA).
 */
bool fs_next_data(int fd, off_t from, off_t size, off_t *at, off_t *end);
/* All of a file of which st is known into an empty one; holes stay. Bytes of data, or -1 with errno. */
int64_t fs_copy_data(struct fs *fs, int from, int to, const struct stat *st);
/* write(2) until all is written. 0, or -1 with errno. */
int fs_write_all(int fd, const void *p, size_t n);

#endif
