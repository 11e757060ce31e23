/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the launcher, asynchronous, for vmm.c. */
#ifndef HUTCH_HOST_LAUNCH_JOB_H
#define HUTCH_HOST_LAUNCH_JOB_H

#include "host/hutchd/launch_proto.h"
#include "host/hutchd/launcher.h"

struct launch_job;

/*
 * Called once, from the loop. pidfd: of a spawned process, now the callee's; else -1. When the
 * launcher is lost, reply->errnum is EPIPE and the stage "launcher".
 */
typedef void launch_done_fn(void *arg, const struct launch_reply *reply, int pidfd);

/*
 * Queue a request (version and tag are filled in). fds are duplicated. The queue is as long as the
 * number of VMs that the broker starts and ends at a time. NULL with errno: no memory, no
 * descriptors, or EPIPE when the launcher is lost.
 */
struct launch_job *launcher_submit(struct launcher *l, const struct launch_request *req,
				   const int *fds, size_t nfds, launch_done_fn *done, void *arg);
/*
 * Nobody waits for it any more: done is not called. Not sent yet: it is dropped. A process that it
 * spawns all the same is killed at once.
 */
void launch_job_abandon(struct launch_job *job);

#endif
