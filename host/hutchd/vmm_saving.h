/* SPDX-License-Identifier: Apache-2.0 */
/* One capture of a stopped VM: vmm_capture without the vmm. */
#ifndef HUTCH_HOST_VMM_SAVING_H
#define HUTCH_HOST_VMM_SAVING_H

#include "host/hutchd/qmp.h"
#include "host/hutchd/vmm.h"

struct vmm_saving;

/*
 * done is called once, from the loop, and the object is gone then. q NULL: the VMM is not up, which
 * done is told. *fdset is for vmm_saving_tidy. NULL when there is no memory.
 */
struct vmm_saving *vmm_saving_start(struct event_base *base, int rundir_fd, struct qmp *q,
				    const struct vmm_capture_to *to, int *fdset,
				    vmm_captured_fn *done, void *arg);
/* vmm_capture_ahead, likewise. */
struct vmm_saving *vmm_saving_ahead(struct event_base *base, int rundir_fd, struct qmp *q,
				    int data_fd, vmm_captured_fn *done, void *arg);
/* The VMM ended and its QMP connection was freed: done is told so from the loop. */
void vmm_saving_abort(struct vmm_saving *s);
/* After done: QEMU lets go of what it was given. */
void vmm_saving_tidy(struct qmp *q, int fdset);
/* done is not called any more. After the QMP connection was freed. */
void vmm_saving_free(struct vmm_saving *s);

#endif
