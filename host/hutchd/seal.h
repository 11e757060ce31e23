/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker gives up once it is set up: it is the process that reads what guests and clients say. */
#ifndef HUTCH_HOST_SEAL_H
#define HUTCH_HOST_SEAL_H

#include <sys/types.h>

#include "protocol/error.h"

/*
 * No capability but CAP_KILL (VMMs have uids of their own), no new privileges, no core file, not dumpable, and a list of
 * the system calls that it may still make, on which there is no exec, no fork and no socket that is not a Unix one; what
 * is not on it gets EPERM. For good: so after the launcher was forked, and before there are other threads (capabilities
 * are a thread's own). As root no group is kept but the given one, if any: its own files may then be given to that one
 * without a capability. A build with sanitizers stays dumpable and is refused other sockets alone, since these trace and
 * fork. -1 with err: nothing may be served.
 */
int seal(const gid_t *group, struct hutch_error *err);

#endif
