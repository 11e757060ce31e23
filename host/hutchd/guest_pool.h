/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections to one VM's agent. Idle ones are kept (the last used first) so that a call costs no connect; calls
 * that find none wait in order while more are dialled.
 *
 * Dialling: as many at once as calls wait, at most POOL_DIALS. A failed one is repeated after a pause that doubles
 * from 10 to 250 ms; one that is not ready within POOL_SLOW_MS goes on, and another is started beside
 * it. So a guest that hangs once costs half a second, and 5 s of refusals about 25 connects.
 *
 * A pool is closed until the VM runs, and calls wait for that without dialling; then each waits POOL_WAIT_MS at most.
 */
#ifndef HUTCH_HOST_GUEST_POOL_H
#define HUTCH_HOST_GUEST_POOL_H

#include "host/hutchd/guest_link.h"

#define POOL_IDLE    4u
#define POOL_DIALS   8u
#define POOL_SLOW_MS 400u
#define POOL_WAIT_MS 4800u

struct guest_pool;

/* Embedded in whoever wants a link. */
struct guest_waiter {
	TAILQ_ENTRY(guest_waiter) next;
	struct guest_pool *pool; /* NULL: does not wait */
	struct event timer;
	void (*got)(struct guest_waiter *w, struct guest_link *g);
	/* HUTCH_E_NOT_DISPATCHED: no connection in time; or what guest_pool_end was given. */
	void (*failed)(struct guest_waiter *w, const struct hutch_error *err);
};

struct guest_pool {
	struct loop *loop;
	const char *object; /* for logs and messages; borrowed */
	int rundir_fd;	    /* borrowed */
	bool open;
	struct link_list idle, dialing, busy;
	unsigned wait_count;
	TAILQ_HEAD(, guest_waiter) waiters;
	struct event retry, hedge;
	unsigned backoff_ms;  /* 0: the last dial did not fail */
	char last_error[256]; /* of a dial, for the message of those that waited in vain */
};

void guest_pool_init(struct guest_pool *p, struct loop *l, int rundir_fd, const char *object);
/* The VM runs: serve those who wait; dial one link ahead when ahead is set and none is idle. */
void guest_pool_open(struct guest_pool *p, bool ahead);
/* The VM waits, with the links that it has: who wants one waits too, until it is open again. */
void guest_pool_shut(struct guest_pool *p);
/*
 * The VM ends: every waiter fails and every busy link's user loses it, with err; all links are closed. Nothing
 * can be had from it any more.
 */
void guest_pool_end(struct guest_pool *p, const struct hutch_error *err);

/*
 * A link, at once where one is idle; else NULL, and got or failed is called later from the loop. The caller takes it
 * with guest_link_take, and gives it back with guest_pool_put or closes it.
 */
struct guest_link *guest_pool_get(struct guest_pool *p, struct guest_waiter *w);
/* Stop waiting. Harmless when it does not. */
void guest_pool_cancel(struct guest_waiter *w);
/* Give it back: kept where it is clean and wanted, else closed. */
void guest_pool_put(struct guest_pool *p, struct guest_link *g);

#endif
