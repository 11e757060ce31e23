/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of this machine, as an archive that is sent while it is made. */
#ifndef HUTCH_TAROUT_H
#define HUTCH_TAROUT_H

#include <stdbool.h>
#include <sys/stat.h>

#include "tools/hutch/xfer.h"

struct tarout {
	struct xfer *x;
	bool setid;	   /* setuid and setgid bits as well */
	uint64_t left_out; /* sockets, devices */
	uint64_t unread;   /* what could not be read; each was noted */
};

/*
 * Send what is at path (a directory; a link to one is followed) as name, or as "." with its
 * contents below. POSIX.1-2001 pax: modes, times to the ns, links, hard links within the tree,
 * sparse files as GNU.sparse 1.0; owners are 0. 0; -1: the call is over (xfer_finish tells why), or
 * memory was short (printed).
 */
int tarout_send(struct tarout *t, const char *path, const char *name);
/* An archive of the file fd alone, as name; in t->unread when it became shorter meanwhile. As above. */
int tarout_send_file(struct tarout *t, int fd, const char *name);
/* The file has holes that can be told, and not too many. */
bool tarout_has_holes(int fd, const struct stat *st);

#endif
