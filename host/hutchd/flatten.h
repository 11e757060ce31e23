/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long chains of disk layers are made short, in a worker thread, while their VMs run: several layers become one that holds the same.
 *
 * A VM's QEMU keeps the chain that it was started on. What changes are the files in its run directory, which the next fork, snapshot,
 * park or wake goes on from: in image/ a run of layers, the topmost left alone, for it is what tells one fork of a parent from the next; and
 * of its own overlays all that are frozen. Layers that are shared are merged once, for all VMs that have them.
 */
#ifndef HUTCH_HOST_FLATTEN_H
#define HUTCH_HOST_FLATTEN_H

#include "host/hutchd/vm.h"

#define FLATTEN_AT 8u /* layers in image/, or frozen ones of its own */

struct flatten;

/* The VM runs, or has one more frozen overlay. A failure is logged: the chain stays as it is, and the next fork tries again. */
void flatten_consider(struct vm *vm);

/*
 * Which of these layers, of sizes bytes each, the lowest first, should become one: *first and how many; 0: none. A layer that is much
 * larger than what lies on it stays, so that what is copied is about what was written lately.
 */
unsigned flatten_choose(const uint64_t *sizes, unsigned count, unsigned *first);

#endif
