/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's end of the in-VMM library's control socket: renewing the dead-man's timer. */
#ifndef HUTCH_HOST_VMM_LEASE_H
#define HUTCH_HOST_VMM_LEASE_H

#include <event2/event.h>
#include <stdint.h>

struct vmm_lease;

/* Nothing is connected yet. NULL with errno. id is for log lines and borrowed. */
struct vmm_lease *vmm_lease_new(struct event_base *base, int rundir_fd, const char *id);
/*
 * The VMM ends ms from now, 0: never. The latest value counts; it connects when needed, and tries a
 * second time on a new connection when an old one turns out dead.
 */
void vmm_lease_renew(struct vmm_lease *c, uint64_t ms);
void vmm_lease_free(struct vmm_lease *c);

#endif
