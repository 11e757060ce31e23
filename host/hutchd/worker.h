/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread for what would block the loop: reading and digesting large files. Jobs run in the order in which they were
 * added; their end is told on the loop.
 */
#ifndef HUTCH_HOST_WORKER_H
#define HUTCH_HOST_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "host/hutchd/loop.h"

struct worker;

/* Embedded in the caller's object, which lives until done was called. */
struct worker_job {
	STAILQ_ENTRY(worker_job) next;
	/* In the thread: touches nothing but the job's own object. It looks at canceled now and then. */
	void (*run)(struct worker_job *job);
	/* On the loop, once for each job, also for a canceled one; worker_free calls it for those that are left. */
	void (*done)(struct worker_job *job);
	atomic_bool canceled;
};

/* NULL with errno. The thread takes no signals. */
struct worker *worker_new(struct loop *l);
/* Cancels what is left and waits for the job that runs. NULL is harmless. */
void worker_free(struct worker *w);
void worker_add(struct worker *w, struct worker_job *job);
/* It will not run, or end soon; done is called all the same, later. */
void worker_cancel(struct worker_job *job);

#endif
