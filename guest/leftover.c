/* SPDX-License-Identifier: Apache-2.0 */
/* Draining of left-over pipes; see leftover.h. */
#include "guest/leftover.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "guest/limits.h"
#include "guest/log.h"

struct leftover {
	struct loop_source src;
	struct list link; /* all, oldest first */
	struct loop_garbage garbage;
};

static struct list leftovers = LIST_INIT(leftovers);
static unsigned count;

static void tick(struct loop_timer *t);
static struct loop_timer timer = {.due = tick};

unsigned leftover_count(void)
{
	return count;
}

static void end(struct leftover *l)
{
	loop_close(&l->src);
	list_del(&l->link);
	count--;
	loop_free_later(&l->garbage, l, free);
}

/* One pipe's worth, then rest until the next tick. */
static void ready(struct loop_source *src, uint32_t events)
{
	struct leftover *l = container_of(src, struct leftover, src);
	static uint8_t waste[64u << 10];
	ssize_t n = read(src->fd, waste, sizeof(waste));

	(void)events;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		end(l);
		return;
	}
	loop_watch(src, 0);
	if (!timer.slot)
		loop_timer_after_ms(&timer, AGENT_LEFTOVER_MS);
}

static void tick(struct loop_timer *t)
{
	(void)t;
	list_for_each(it, &leftovers)
		loop_watch(&container_of(it, struct leftover, link)->src, EPOLLIN);
}

void leftover_add(struct loop_source *src)
{
	struct leftover *l = calloc(1, sizeof(*l));

	if (!l) {
		loop_close(src);
		return;
	}
	loop_watch(src, 0);
	loop_source_init(&l->src, src->fd, ready);
	src->fd = -1;
	list_add_tail(&leftovers, &l->link);
	if (++count > AGENT_MAX_LEFTOVERS) {
		log_info(
			"more than %u pipes are held by background processes, the oldest is closed",
			AGENT_MAX_LEFTOVERS);
		end(container_of(leftovers.next, struct leftover, link));
	}
	loop_watch(&l->src, EPOLLIN);
}

void leftover_close_all(void)
{
	loop_timer_clear(&timer);
	while (!list_empty(&leftovers))
		end(container_of(leftovers.next, struct leftover, link));
}
