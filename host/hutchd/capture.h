/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM stands still, and what it is at that instant is kept: for forks, snapshots, pauses.
 *
 *   (what can be written ahead is) -> snapshot.prepare (the user's processes frozen, the agent held) -> VMM stopped -> memory and devices written,
 *   the disk's top frozen -> VMM goes on, snapshot.resume
 *
 * The image comes into being in the run directory, as VM_CAPTURE_DIR: layers of before by links, a new layer over them. The
 * record says "capturing" before the first step; a broker that finds it so lets the VM go on and removes the directory.
 */
#ifndef HUTCH_HOST_CAPTURE_H
#define HUTCH_HOST_CAPTURE_H

#include "host/hutchd/image.h"
#include "host/hutchd/vm.h"

enum capture_mode {
	CAPTURE_GO_ON, /* write, then as before: running, or still paused */
	CAPTURE_LAST, /* write, and leave it stopped and the record at this step: it will be ended */
	CAPTURE_PAUSE, /* write nothing, leave it stopped: vm->held holds it */
};

struct capture;

/*
 * Once, from the loop. err: nothing was captured, and the VM is as before (or has ended: HUTCH_E_VM_DIED); the capture is over.
 * Else the caller takes what it wants and calls capture_end, now or later.
 */
typedef void capture_done(void *arg, const struct hutch_error *err, struct capture *c);

struct capture {
	struct deferred deferred;
	struct vm *vm;
	enum capture_mode mode;
	capture_done *done;
	void *arg;
	/* The result. */
	struct image *im; /* of dirfd, complete but for digests; its manifest is written. Owned */
	int dirfd;	  /* VM_CAPTURE_DIR */
	uint64_t pause_us, bytes;
	/* On the way. */
	bool by_idle; /* its idle policy wants it, nobody else: set by the caller of capture_start */
	bool was_paused;
	bool flatten;	/* what is written takes the place of the layers from `below` on as well */
	uint32_t below; /* layers of memory that stay */
	uint64_t begun_us;
	struct event rest;   /* before a template's VM is stopped */
	struct event settle; /* the VM goes on */
	struct guest_waiter waiter;
	struct guest_link *link; /* the connection that holds the agent */
	struct guest_call *call;
	int data_fd, extents_fd, device_fd;
	unsigned saving; /* memory, disk: those that are not done */
	struct {
		bool busy; /* something is to be done before the pause */
		bool wanted, prepared, frozen;
		void (*next)(struct capture *c, const struct hutch_error *err);
	} disk;			    /* capture_disk.c's */
	struct hutch_error failure; /* kind HUTCH_OK: none */
	bool continued, resumed;
};

/*
 * The VM is running or paused (CAPTURE_PAUSE: running). NULL with err: HUTCH_E_STATE, HUTCH_E_BUSY another one is under way,
 * HUTCH_E_IO; nothing was done.
 */
struct capture *capture_start(struct vm *vm, enum capture_mode mode, capture_done *done, void *arg,
			      struct hutch_error *err);
/* capture_files.c: VM_CAPTURE_DIR with all that can be made before the pause. -1 with err. */
int capture_set_up(struct capture *c, struct hutch_error *err);
/* Remove what was captured, if it is still there. */
void capture_end(struct capture *c);
/* Of CAPTURE_LAST: leave what was captured where it is, and forget it. */
void capture_leave(struct capture *c);
/* Of CAPTURE_LAST: it is not to be ended after all, and is paused from here on. */
void capture_undo(struct capture *c);
/* The VM ends: done is called with vm_died, unless it was called. */
void capture_abort(struct vm *vm);

#endif
