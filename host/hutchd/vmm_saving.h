/* SPDX-License-Identifier: Apache-2.0 */
/* One capture of a stopped VM: vmm_capture without the vmm. */
#ifndef HUTCH_HOST_VMM_SAVING_H
#define HUTCH_HOST_VMM_SAVING_H

#include "host/hutchd/qmp.h"
#include "host/hutchd/vmm.h"

struct vmm_saving;

/* Memory that QEMU can write the state of its devices to; of a vmm, which frees fd. */
struct vmm_state_file {
	int fd;	   /* a memfd, -1: none; QEMU has it as a descriptor set */
	int fdset; /* its number */
	int used;  /* a set that was written to, for vmm_saving_tidy; 0: none */
};

/*
 * vmm_capture; to NULL: vmm_capture_ahead into data_fd, which also gives QEMU the file, so that it
 * is there in the pause. done is called once, from the loop, and the object is gone then. q NULL:
 * the VMM is not up, which done is told. NULL when there is no memory.
 */
struct vmm_saving *vmm_saving_start(struct event_base *base, int rundir_fd, struct qmp *q,
				    const struct vmm_capture_to *to, int data_fd,
				    struct vmm_state_file *file, vmm_captured_fn *done, void *arg);
/* The VMM ended and its QMP connection was freed: done is told so from the loop. */
void vmm_saving_abort(struct vmm_saving *s);
/* After done: QEMU lets go of what it was given. */
void vmm_saving_tidy(struct qmp *q, int fdset);
/* done is not called any more. After the QMP connection was freed. */
void vmm_saving_free(struct vmm_saving *s);

#endif
