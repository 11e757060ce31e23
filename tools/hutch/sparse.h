/* SPDX-License-Identifier: Apache-2.0 */
/* One file with holes, into a VM and out of it, as an archive of one member: the holes are not sent. */
#ifndef HUTCH_SPARSE_H
#define HUTCH_SPARSE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "tools/hutch/hostfile.h"
#include "tools/hutch/xfer.h"

struct sparse {
	struct xfer *x;
	bool setid, parents;
};

/* The file fd, its status in st, has holes, and what is at `to` in the VM (told by fs.stat) may be replaced. */
bool sparse_may_send(const struct sparse *s, int fd, const struct stat *st, const char *to);
/* The answer of fs.stat (of a link: what it leads to) is a file worth sending without its holes, at this path. */
bool sparse_may_receive(const struct sparse *s, const char *from);

/*
 * Send fd as `to`: beside it first, then it takes its place. A file that is there keeps its mode, and its owner when
 * the agent acts as itself. 0, or -1: printed, with x->status, and nothing changed.
 */
int sparse_send(const struct sparse *s, int fd, const struct stat *st, const char *to);
/* Receive `from` as f, which hostfile_open was called for; commits. The same answers. */
int sparse_receive(const struct sparse *s, const char *from, struct hostfile *f);

#endif
