/* SPDX-License-Identifier: Apache-2.0 */
/* Which files with several names were met on a walk, and under which name first. */
#ifndef HUTCH_GUEST_FS_LINKS_H
#define HUTCH_GUEST_FS_LINKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define FS_LINKS_BUCKETS 1024u

struct fs_links {
	struct fs_link *bucket[FS_LINKS_BUCKETS];
	size_t bytes; /* of all; at AGENT_LINKS_BYTES no more are kept, and such files count as single */
};

/* The path under which st's file was met first; NULL: now, and path is kept for the next time. */
const char *fs_links_met(struct fs_links *l, const struct stat *st, const char *path);
void fs_links_free(struct fs_links *l);

#endif
