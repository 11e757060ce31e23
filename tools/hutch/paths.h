/* SPDX-License-Identifier: Apache-2.0 */
/* Files that come with this program, in the build tree and where it is installed. */
#ifndef HUTCH_PATHS_H
#define HUTCH_PATHS_H

#include <stddef.h>

/*
 * The directory of rootfs/build: HUTCH_ROOTFS_DIR, else ../share/hutch/rootfs from here. -1: there
 * is none.
 */
int path_rootfs(char *out, size_t size);
/* hutch-agent: beside this program, else ../libexec/hutch/hutch-agent. -1: there is none. */
int path_agent(char *out, size_t size);

#endif
