/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dead-man's timer: a VMM whose time is not renewed ends itself, whether or not a broker lives.
 */
#ifndef HUTCH_VSOCK_VMM_DEADLINE_H
#define HUTCH_VSOCK_VMM_DEADLINE_H

#include <stdint.h>

#include "host/vsock/loop.h"

#define VMM_DEADLINE_MAX_MS (100ULL * 366 * 86400 * 1000) /* a century: any TTL, and no overflow */
#define VMM_DEADLINE_EXIT   124 /* the process's exit status, as timeout(1) */

struct vmm_deadline {
	struct loop_source timer; /* timerfd on CLOCK_BOOTTIME: time asleep counts */
	struct loop *loop;
};

/* 0, or -1 with errno of timerfd_create(2) or epoll_ctl(2). */
int vmm_deadline_open(struct vmm_deadline *d, struct loop *loop);
void vmm_deadline_close(struct vmm_deadline *d);

/* The process ends ms from now (<= VMM_DEADLINE_MAX_MS); 0: never. 0, or -1 with errno. */
int vmm_deadline_set(struct vmm_deadline *d, uint64_t ms);

/* Milliseconds left, 0 when none is set. */
uint64_t vmm_deadline_left(const struct vmm_deadline *d);

#endif
