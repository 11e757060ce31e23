/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a capture does about a writable disk. Before the pause the VMM gets a new overlay; in it, beside the memory, that
 * becomes the top; after it the one below is known to be frozen, and is linked into the image with all that lies under it.
 */
#ifndef HUTCH_HOST_CAPTURE_DISK_H
#define HUTCH_HOST_CAPTURE_DISK_H

#include "host/hutchd/capture.h"

typedef void capture_disk_done(struct capture *c, const struct hutch_error *err);

/* Is there something to be frozen, or to be asked? Decides it, before anything else is done. -1 with err: there are too many layers. */
int capture_disk_begin(struct capture *c, struct hutch_error *err);
/* Both: next is called from the loop, unless the capture is over by then. */
void capture_disk_prepare(struct capture *c, capture_disk_done *next);
void capture_disk_freeze(struct capture *c, capture_disk_done *next);
/* It was not frozen, or it was and the VM goes on (or will not): the VMM keeps what it needs. Harmless where nothing was prepared. */
void capture_disk_settle(struct capture *c);
/* Into the image. -1 with err. */
int capture_disk_link(struct capture *c, struct hutch_error *err);

#endif
