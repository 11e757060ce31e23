/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End every process of a VM, also those that a wrapper or the VMM left behind in sessions of their
 * own: all carry HUTCH_VM=<id> in their environment.
 */
#ifndef HUTCH_HOST_SWEEP_H
#define HUTCH_HOST_SWEEP_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * children_only: the VMM was a child of this process, a subreaper, and is dead: what it left is
 * found among our own children (those of session vmm included), generation by generation. Otherwise
 * all of /proc is looked through. is_other tells children that are known to be something else; it
 * may be NULL. Waits at most 2 s for what was killed. Returns how many were killed, -1 with errno
 * when some are still there (ETIMEDOUT) or /proc cannot be read.
 */
int sweep_vm(const char *id, pid_t vmm, bool children_only, bool (*is_other)(void *arg, pid_t pid),
	     void *arg);

#endif
