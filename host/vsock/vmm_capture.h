/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving the RAM of a stopped VM, in a thread of its own: the device's thread goes on serving the
 * control socket and the dead-man's timer.
 *
 * delta: every granule with a page that the VM has written since it was restored, at its own offset
 * in the data file, and the list of them in the extents file; and, where it is asked to stand for
 * the topmost layers as well, every granule that is theirs. whole: every page that is not zero;
 * the data file is then a base. Either way the data file gets the size of RAM and is sparse.
 *
 * ahead: what delta would write, while the VM runs. The pages are write-protected first, so that a
 * delta into the same file writes only what changed since, and the VM stands still for less long.
 */
#ifndef HUTCH_VSOCK_VMM_CAPTURE_H
#define HUTCH_VSOCK_VMM_CAPTURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/vsock/vmm_ram.h"

struct vmm;

enum vmm_capture_kind { CAPTURE_DELTA, CAPTURE_WHOLE, CAPTURE_AHEAD };
enum vmm_capture_state { CAPTURE_IDLE, CAPTURE_RUNNING, CAPTURE_DONE };

struct vmm_capture {
	struct vmm *vmm;
	enum vmm_capture_state state; /* the VMM's lock guards it */
	bool spoiled;		      /* the VM ran meanwhile */
	enum vmm_capture_kind kind;
	unsigned below; /* delta: layers that stay below it; it stands for those above as well */
	int data_fd, extents_fd; /* owned; -1: none */
	pthread_t thread;
	/* The outcome. */
	int error;	   /* errno; 0: it is done */
	const char *stage; /* of the error */
	uint64_t bytes, extents, us;
	int track_fd;	 /* writes are tracked, since the data file was written ahead; -1: not */
	bool untracking; /* untrack ends the last tracking, and is to be joined */
	pthread_t untrack;
	dev_t ahead_dev;
	ino_t ahead_ino;
	uint8_t dirty[VMM_RAM_GRANULES]; /* DIRTY, SAVED */
};

/*
 * Start one; the lock is held. Takes over the descriptors in every case. below is of a delta alone;
 * VMM_RAM_MAX_LAYERS: all layers. NULL, or why it could not be started, or finish at once.
 */
const char *vmm_capture_start(struct vmm *vmm, enum vmm_capture_kind kind, unsigned below,
			      int data_fd, int extents_fd);
/* Done: collect the thread and be idle; the outcome stays readable. The lock is held. */
void vmm_capture_collect(struct vmm_capture *c);
/* After the answer: forget what was written ahead, unless that was all. */
void vmm_capture_forget(struct vmm_capture *c);
/* The VM is started: what is being saved is no picture of one instant. The lock is held. */
void vmm_capture_spoil(struct vmm_capture *c);
/* Wait for the thread, if there is one. The lock is not held. */
void vmm_capture_end(struct vmm_capture *c);

#endif
