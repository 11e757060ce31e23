/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files had their digest when they were last looked at: by inode, size and time of change, in <state>/verified, for
 * this boot of the host.
 */
#ifndef HUTCH_HOST_VERIFIED_H
#define HUTCH_HOST_VERIFIED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "host/hutchd/digest.h"

#define VERIFIED_FILE "verified"
#define VERIFIED_MAX  2048u /* files; the oldest are forgotten, and checked again */

struct verified;

/* A file as it was when its digest was taken or checked. */
struct verified_file {
	uint64_t dev, inode, size, mtime_ns;
	char digest[DIGEST_HEX + 1];
};

/* NULL when memory is gone. state_fd is borrowed. What cannot be read counts as nothing checked. */
struct verified *verified_load(int state_fd, const char *host_boot_id);
void verified_free(struct verified *v);

/* Had the file this digest, and is it as it was? */
bool verified_has(const struct verified *v, const struct stat *st, const char *digest);
/*
 * Read fd to its end for its digest, by one of digest.h: 0 with out whole, 1 when it was changed meanwhile, -1 with errno.
 */
int verified_read(int fd, digest_fn *digest, uint64_t *bytes, const atomic_bool *canceled,
		  struct verified_file *out);
void verified_add(struct verified *v, const struct verified_file *file);
void verified_save(const struct verified *v);

#endif
