/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM that was forked off a zygote goes on from another image of the same base: the RAM becomes that one's, and then the
 * broker loads the state of the devices (QMP xen-load-devices-state).
 *
 * How it works: what this is for is the translated code, so that it must be kept, and only that be dropped which is no longer
 * what the guest's memory holds. Both are QEMU's own business, and there is no command for it; but its executable shows all its
 * functions to its modules, so that they can be called, and found not to be there. Pages that differ are found by comparing, and
 * told with tb_invalidate_phys_range. A load of a CPU's state makes QEMU drop all the rest, since it cannot know that memory and
 * code agree: it asks for a flush of the code as it was at that moment, and forgets about it where another came first
 * (tb_flush, tb_ctx.tb_flush_count). So the count of flushes is moved on before the load ends, which is when its file is closed.
 *
 * The functions' types are those of QEMU 7.2, and the broker asks no other VMM for this.
 */
#ifndef HUTCH_VSOCK_VMM_RELOAD_H
#define HUTCH_VSOCK_VMM_RELOAD_H

#include "host/vsock/vmm_ram.h"

/*
 * The VM is stopped, and no thread but this one in the library. ram becomes its base with these layers over it, whose
 * descriptors are taken over. -1 with errno: the process is of no use any more. EOPNOTSUPP: this QEMU cannot be told.
 */
int vmm_reload(struct vmm_ram *ram, const int *fds, unsigned layers);
/* Some file is being closed. */
void vmm_reload_closing(void);
/* The VM goes on. */
void vmm_reload_over(void);

#endif
