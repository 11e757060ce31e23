/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writable disk of a VM: a base that all share, overlays over it (qcow2.h), and on top one of the VM's own.
 *
 * Everything but the top is written once, and shared by what was forked from this VM or that it was forked from. A VMM never opens any
 * of it by name: it is given descriptors, of which only the top's can be written to, and it is told what lies on what.
 * Overlays of a VM's own have numbers, which count up from one start to the next; QEMU knows the top as node "disk-N".
 *
 * To freeze the top: vmm_disk_prepare while the VM runs, vmm_disk_freeze while it is stopped, vmm_disk_settle when it runs again.
 */
#ifndef HUTCH_HOST_VMM_DISK_H
#define HUTCH_HOST_VMM_DISK_H

#include "host/hutchd/vmm.h"

/*
 * Append the descriptors to fds. 0; or -1 with err: HUTCH_E_STATE, one below the top may still be written to, or has a header that is
 * not ours; HUTCH_E_INVALID.
 */
int vmm_disk_fds(const struct vmm_disk *d, int *fds, size_t *nfds, struct hutch_error *err);

/*
 * All of these are of a VMM that is up, one at a time; done as that of vmm_stop. query tells the number of the top, which may be
 * one more than the last broker knew.
 */
void vmm_disk_query(struct vmm *v, uint32_t *top, vmm_done_fn *done, void *arg);
/*
 * The VMM gets the overlay top + 1, empty, open for reading and writing, for later; and the top once more, for reading alone, since that is
 * all it may do with it once it is frozen. Both are borrowed during the call.
 */
void vmm_disk_prepare(struct vmm *v, uint32_t top, int top_fd, int next_fd, vmm_done_fn *done,
		      void *arg);
/* From here on what the guest writes goes to top + 1. What it has written is in the file when done is called. */
void vmm_disk_freeze(struct vmm *v, uint32_t top, vmm_done_fn *done, void *arg);
/* The guest is told that its disk has so many bytes, as the top has had from the start: its devices were restored with fewer. */
void vmm_disk_grow(struct vmm *v, uint32_t top, uint64_t bytes, vmm_done_fn *done, void *arg);
/* Nobody waits: the VMM lets go of descriptors of the overlay that it does not use. It runs; QEMU 7.2 closes none else. */
void vmm_disk_settle(struct vmm *v, uint32_t number);
/* Nobody waits: what was prepared is not needed. */
void vmm_disk_drop(struct vmm *v, uint32_t number);

/* For vmm.c. */
struct vmm_disk_op;
void vmm_disk_abort(struct vmm_disk_op *op); /* the VMM ended */
void vmm_disk_free(struct vmm_disk_op *op);  /* done is not called */

#endif
