/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes: their own side, from the fork on; see worker.h. */
#ifndef HUTCH_GUEST_WORKER_CHILD_H
#define HUTCH_GUEST_WORKER_CHILD_H

#include "guest/worker.h"

/*
 * Serve first (NULL: none), then what comes over ctl, until it is closed. Of the agent's descriptors first->fd,
 * ctl and /proc are kept.
 */
_Noreturn void worker_run(int ctl, const struct worker_job *first);
/* Over ctl to a worker that waits. 0, or -1 with errno: it is not to be used any more. */
int worker_send_job(int ctl, const struct worker_job *job);

#endif
