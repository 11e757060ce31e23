/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop's shared parts: deferred frees, the read buffer, clocks. */
#include "host/hutchd/loop.h"

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;
	struct deferred *d;

	(void)fd;
	(void)what;
	while ((d = STAILQ_FIRST(&l->dead)) != NULL) {
		STAILQ_REMOVE_HEAD(&l->dead, next);
		d->destroy(d);
	}
}

int loop_init(struct loop *l)
{
	*l = (struct loop){.base = event_base_new(), .scratch = malloc(LOOP_SCRATCH)};
	STAILQ_INIT(&l->dead);
	if (!l->base || !l->scratch || event_assign(&l->reap, l->base, -1, 0, on_reap, l) < 0) {
		loop_free(l);
		return -1;
	}
	return 0;
}

void loop_free(struct loop *l)
{
	if (l->base) {
		on_reap(-1, 0, l);
		event_base_free(l->base);
	}
	free(l->scratch);
	*l = (struct loop){.base = NULL};
}

void loop_defer(struct loop *l, struct deferred *d, void (*destroy)(struct deferred *d))
{
	d->destroy = destroy;
	STAILQ_INSERT_TAIL(&l->dead, d, next);
	event_active(&l->reap, EV_TIMEOUT, 0);
}

static uint64_t now(clockid_t id, uint64_t unit_ns)
{
	struct timespec ts = {0, 0};

	clock_gettime(id, &ts);
	return ((uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec) / unit_ns;
}

void loop_timer(struct event *timer, uint64_t ms)
{
	const struct timeval tv = {.tv_sec = (time_t)(ms / 1000),
				   .tv_usec = (suseconds_t)(ms % 1000 * 1000)};

	event_add(timer, &tv);
}

uint64_t clock_us(void)
{
	return now(CLOCK_MONOTONIC, 1000);
}

uint64_t clock_boottime_ms(void)
{
	return now(CLOCK_BOOTTIME, 1000000);
}

uint64_t clock_unix_ms(void)
{
	return now(CLOCK_REALTIME, 1000000);
}
