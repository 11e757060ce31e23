/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's one event loop: descriptors, timers, and tasks that run at the end of a pass.
 *
 * One pass: wait, call the ready sources, call the due timers, run the tasks, free what died. An object
 * that an event source or timer points to is given to loop_free_later, never to free: an event for it may
 * still be in hand. A source that was closed gets no event any more, whatever epoll still reports.
 */
#ifndef HUTCH_GUEST_LOOP_H
#define HUTCH_GUEST_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "guest/list.h"

struct loop_source {
	int fd;		 /* -1: none */
	uint32_t events; /* what is watched; 0: not in the set */
	void (*ready)(struct loop_source *src, uint32_t events);
};

struct loop_timer {
	uint64_t at_ns; /* CLOCK_MONOTONIC */
	uint32_t slot;	/* place in the heap, from 1; 0: not set */
	bool always;	/* also while timers are held */
	void (*due)(struct loop_timer *t);
};

struct loop_task {
	struct list link;
	bool queued;
	void (*run)(struct loop_task *t);
};

int loop_init(void); /* 0, or -1 with errno */
void loop_exit(void);
/* Until loop_stop. */
void loop_run(void);
void loop_stop(void);
/* CLOCK_MONOTONIC in ns. */
uint64_t loop_now(void);

void loop_source_init(struct loop_source *src, int fd,
		      void (*ready)(struct loop_source *, uint32_t));
/*
 * Watch for events; 0 takes the source out of the set, so that not even EPOLLHUP is reported. EPOLLERR alone
 * watches for nothing but error and hang-up. 0, or -1 with errno (ENOSPC, ENOMEM).
 */
int loop_watch(struct loop_source *src, uint32_t events);
/* Take it out of the set and close its descriptor. Harmless on a closed one. */
void loop_close(struct loop_source *src);

/* Earlier or later; a set timer is moved. There is room for every timer that the limits allow. */
void loop_timer_set(struct loop_timer *t, uint64_t at_ns);
void loop_timer_after_ms(struct loop_timer *t, uint64_t ms);
void loop_timer_clear(struct loop_timer *t);
/* While they are held none is due, but for those that are so always. What was left of each is left after it. */
void loop_hold_timers(bool hold);

/* Run t once at the end of this pass (of the next one when called from a task). */
void loop_task_queue(struct loop_task *t);
void loop_task_cancel(struct loop_task *t);

/* Call release(p) after this pass. */
struct loop_garbage {
	struct loop_garbage *next;
	void *p;
	void (*release)(void *p);
};
void loop_free_later(struct loop_garbage *g, void *p, void (*release)(void *));

#endif
