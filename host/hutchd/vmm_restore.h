/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher is given for a VM that is restored. */
#ifndef HUTCH_HOST_VMM_RESTORE_H
#define HUTCH_HOST_VMM_RESTORE_H

#include "host/hutchd/launch_proto.h"
#include "host/hutchd/vmm.h"

/*
 * Fill fds from SPAWN_FD_BASE on and count them; fds[SPAWN_FD_DEVICE] is a pipe of the caller's,
 * which holds the whole device state, the others are borrowed from r. vmm_restore_layers: the layers alone, behind *nfds. 0, or
 * -1 with err.
 */
int vmm_restore_layers(const struct vmm_restore *r, int *fds, size_t *nfds,
		       struct hutch_error *err);
int vmm_restore_fds(const struct vmm_restore *r, int *fds, size_t *nfds, struct hutch_error *err);

/*
 * A file that VMMs share: open for reading only, and open for writing in no process at all. -1 with HUTCH_E_INVALID or
 * HUTCH_E_STATE; what names it.
 */
int vmm_check_shared(int fd, const char *what, struct hutch_error *err);

#endif
