/* SPDX-License-Identifier: Apache-2.0 */
/* An archive from a guest, unpacked below a directory of this machine and nowhere else. */
#ifndef HUTCH_TARIN_H
#define HUTCH_TARIN_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/hutch/xfer.h"

struct tarin {
	struct xfer *x;	   /* its call gives the archive */
	bool setid;	   /* setuid and setgid bits as well */
	bool made;	   /* the directory is new: the archive sets its mode and time */
	uint64_t left_out; /* devices and sockets */
};

/*
 * Unpack below the directory that the process is in. Members with names that lead outside, or whose
 * way leads over a link, end it; so do hard links to such. Devices and sockets are left out. Owners
 * are ours. 0, or -1 with the failure printed and x->status set. What was unpacked stays.
 */
int tarin_unpack(struct tarin *t);

#endif
