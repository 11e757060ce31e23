/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What everything on the broker's one event loop shares: the base, the read buffer, and the list of objects that
 * ended under a running callback and are freed after it.
 */
#ifndef HUTCH_HOST_LOOP_H
#define HUTCH_HOST_LOOP_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdint.h>
#include <sys/queue.h>

/* One read(2): two whole DATA frames and the piece of a third. */
#define LOOP_SCRATCH (128u << 10)

/* Embedded in an object that is freed through loop_defer. */
struct deferred {
	STAILQ_ENTRY(deferred) next;
	void (*destroy)(struct deferred *d);
};

struct loop {
	struct event_base *base;
	struct event reap;
	STAILQ_HEAD(, deferred) dead;
	uint8_t *scratch; /* LOOP_SCRATCH bytes, valid during one callback */
};

/* -1 with errno when memory or the poll back end fails. */
int loop_init(struct loop *l);
void loop_free(struct loop *l);

/* Call destroy(d) once the callback that runs now has returned. Once for an object. */
void loop_defer(struct loop *l, struct deferred *d, void (*destroy)(struct deferred *d));

/* event_add of a one-shot timer: it is due after ms, or anew if it was pending. */
void loop_timer(struct event *timer, uint64_t ms);

/* CLOCK_MONOTONIC in microseconds: durations and stages. */
uint64_t clock_us(void);
/* CLOCK_BOOTTIME in milliseconds: deadlines that count a suspended host too. */
uint64_t clock_boottime_ms(void);
/* Unix time in milliseconds: for people only, it may be set. */
uint64_t clock_unix_ms(void);

/* The object that embeds member. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
