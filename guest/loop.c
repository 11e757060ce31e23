/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: epoll, a binary heap of timers, end-of-pass tasks. */
#include "guest/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "guest/limits.h"
#include "guest/log.h"

/* Four timers per exec and record, one per connection and worker, and a few. */
#define MAX_TIMERS \
	(4 * (AGENT_MAX_EXECS + AGENT_MAX_RECORDS) + AGENT_MAX_CONNS + AGENT_MAX_WORKERS + 64)
#define MAX_EVENTS 64
/* Added to the time of a held timer. */
#define NEVER (1ull << 62)

static struct loop_timer *heap[MAX_TIMERS + 1]; /* from 1 */

static struct {
	int epfd;
	bool stop;
	uint32_t timers;
	uint64_t held_ns; /* when timers were held; 0: they are not */
	struct list tasks;
	struct loop_garbage *garbage;
} loop = {.epfd = -1, .tasks = LIST_INIT(loop.tasks)};

int loop_init(void)
{
	loop.epfd = epoll_create1(EPOLL_CLOEXEC);
	return loop.epfd < 0 ? -1 : 0;
}

uint64_t loop_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void loop_stop(void)
{
	loop.stop = true;
}

/* Sources */

void loop_source_init(struct loop_source *src, int fd,
		      void (*ready)(struct loop_source *, uint32_t))
{
	src->fd = fd;
	src->events = 0;
	src->ready = ready;
}

int loop_watch(struct loop_source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};
	int op;

	if (src->events == events || src->fd < 0)
		return 0;
	if (!events)
		op = EPOLL_CTL_DEL;
	else
		op = src->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
	if (epoll_ctl(loop.epfd, op, src->fd, &ev) < 0) {
		log_error("epoll_ctl on descriptor %d", src->fd);
		return -1;
	}
	src->events = events;
	return 0;
}

void loop_close(struct loop_source *src)
{
	if (src->fd < 0)
		return;
	loop_watch(src, 0);
	close(src->fd);
	src->fd = -1;
	src->events = 0;
}

/* Timers */

static void heap_put(uint32_t slot, struct loop_timer *t)
{
	heap[slot] = t;
	t->slot = slot;
}

static void heap_up(uint32_t slot, struct loop_timer *t)
{
	while (slot > 1 && heap[slot / 2]->at_ns > t->at_ns) {
		heap_put(slot, heap[slot / 2]);
		slot /= 2;
	}
	heap_put(slot, t);
}

static void heap_down(uint32_t slot, struct loop_timer *t)
{
	for (;;) {
		uint32_t child = 2 * slot;

		if (child > loop.timers)
			break;
		if (child < loop.timers && heap[child + 1]->at_ns < heap[child]->at_ns)
			child++;
		if (heap[child]->at_ns >= t->at_ns)
			break;
		heap_put(slot, heap[child]);
		slot = child;
	}
	heap_put(slot, t);
}

void loop_timer_clear(struct loop_timer *t)
{
	struct loop_timer *last;
	uint32_t slot = t->slot;

	if (!slot)
		return;
	t->slot = 0;
	last = heap[loop.timers--];
	if (last == t)
		return;
	if (slot > 1 && heap[slot / 2]->at_ns > last->at_ns)
		heap_up(slot, last);
	else
		heap_down(slot, last);
}

void loop_timer_set(struct loop_timer *t, uint64_t at_ns)
{
	loop_timer_clear(t);
	if (loop.timers == MAX_TIMERS)
		log_panic("more timers than the limits allow");
	t->at_ns = at_ns;
	if (loop.held_ns && !t->always)
		t->at_ns += NEVER - (loop_now() - loop.held_ns);
	heap_up(++loop.timers, t);
}

void loop_hold_timers(bool hold)
{
	uint64_t now = loop_now();
	uint64_t add = hold ? NEVER : now - loop.held_ns - NEVER;

	if (hold == (loop.held_ns != 0))
		return;
	loop.held_ns = hold ? now : 0;
	for (uint32_t i = 1; i <= loop.timers; i++) {
		if (!heap[i]->always)
			heap[i]->at_ns += add;
		heap_up(i, heap[i]); /* those before it are a heap */
	}
}

void loop_timer_after_ms(struct loop_timer *t, uint64_t ms)
{
	loop_timer_set(t, loop_now() + ms * 1000000u);
}

static void run_timers(void)
{
	uint64_t now;

	if (!loop.timers)
		return;
	now = loop_now();
	while (loop.timers && heap[1]->at_ns <= now) {
		struct loop_timer *t = heap[1];

		loop_timer_clear(t);
		t->due(t);
	}
}

/* Milliseconds until the next timer, rounded up; -1: none. */
static int next_timeout(void)
{
	uint64_t now, left;

	if (!list_empty(&loop.tasks))
		return 0;
	if (!loop.timers)
		return -1;
	now = loop_now();
	if (heap[1]->at_ns <= now)
		return 0;
	left = (heap[1]->at_ns - now + 999999u) / 1000000u;
	return left > 3600000u ? 3600000 : (int)left;
}

/* Tasks and garbage */

void loop_task_queue(struct loop_task *t)
{
	if (t->queued)
		return;
	t->queued = true;
	list_add_tail(&loop.tasks, &t->link);
}

void loop_task_cancel(struct loop_task *t)
{
	if (!t->queued)
		return;
	t->queued = false;
	list_del(&t->link);
}

/* Those that are queued meanwhile run in the next pass. */
static void run_tasks(void)
{
	struct list now;

	if (list_empty(&loop.tasks))
		return;
	now = loop.tasks;
	now.next->prev = now.prev->next = &now;
	list_init(&loop.tasks);
	while (!list_empty(&now)) {
		struct loop_task *t = container_of(now.next, struct loop_task, link);

		loop_task_cancel(t);
		t->run(t);
	}
}

void loop_free_later(struct loop_garbage *g, void *p, void (*release)(void *))
{
	g->p = p;
	g->release = release;
	g->next = loop.garbage;
	loop.garbage = g;
}

static void free_garbage(void)
{
	while (loop.garbage) {
		struct loop_garbage *g = loop.garbage;

		loop.garbage = g->next;
		g->release(g->p);
	}
}

void loop_exit(void)
{
	free_garbage();
	if (loop.epfd >= 0)
		close(loop.epfd);
	loop.epfd = -1;
}

void loop_run(void)
{
	struct epoll_event ev[MAX_EVENTS];

	loop.stop = false;
	while (!loop.stop) {
		int n = epoll_wait(loop.epfd, ev, MAX_EVENTS, next_timeout());

		if (n < 0 && errno != EINTR)
			log_panic("epoll_wait: %m");
		for (int i = 0; i < n; i++) {
			struct loop_source *src = ev[i].data.ptr;

			if (src->events)
				src->ready(src, ev[i].events);
		}
		run_timers();
		run_tasks();
		free_garbage();
	}
}
