/* SPDX-License-Identifier: Apache-2.0 */
/* A call that the broker itself makes to an agent. */
#include "host/hutchd/guest_call.h"

#include <errno.h>
#include <stdlib.h>

struct guest_call {
	struct deferred deferred;
	struct guest_pool *pool;
	struct guest_waiter waiter;
	struct guest_link *link; /* NULL while waiting for one */
	bool own_link;		 /* given by the caller: not the pool's */
	bool over;
	struct event timer;
	struct mp_buf frame;
	guest_call_done *done;
	void *arg;
};

static void destroy(struct deferred *d)
{
	struct guest_call *c = container_of(d, struct guest_call, deferred);

	mp_buf_free(&c->frame);
	free(c);
}

static void retire(struct guest_call *c)
{
	c->over = true;
	event_del(&c->timer);
	guest_pool_cancel(&c->waiter);
	loop_defer(c->pool->loop, &c->deferred, destroy);
}

void guest_call_cancel(struct guest_call *c)
{
	if (!c || c->over)
		return;
	guest_link_close(c->link);
	c->link = NULL;
	retire(c);
}

static void on_frame(void *arg, const struct frame *f, const uint8_t *raw)
{
	struct guest_call *c = arg;
	struct guest_link *link = c->link;
	struct hutch_error said, err;

	if (f->type != FRAME_RESULT && f->type != FRAME_ERROR)
		return;
	retire(c);
	c->link = NULL;
	hutch_error_clear(&said);
	hutch_error_clear(&err);
	raw += HUTCH_FRAME_HEADER;
	if (f->type == FRAME_ERROR && msg_error_decode(&said, raw, f->length, &err) < 0)
		said = err;
	if (!c->own_link)
		guest_pool_put(c->pool, link);
	else
		guest_link_release(link);
	c->done(c->arg, f->type == FRAME_ERROR ? &said : NULL, raw, f->length);
}

static void on_lost(void *arg, const struct hutch_error *err)
{
	struct guest_call *c = arg;

	c->link = NULL;
	retire(c);
	c->done(c->arg, err, NULL, 0);
}

static void on_drained(void *arg)
{
	(void)arg;
}

static const struct link_user user = {.frame = on_frame, .lost = on_lost, .drained = on_drained};

static void send_on(struct guest_call *c, struct guest_link *link)
{
	c->link = link;
	guest_link_take(link, &user, c);
	guest_link_send(link, c->frame.data, c->frame.len);
}

static void on_got(struct guest_waiter *w, struct guest_link *link)
{
	send_on(container_of(w, struct guest_call, waiter), link);
}

static void on_failed(struct guest_waiter *w, const struct hutch_error *err)
{
	on_lost(container_of(w, struct guest_call, waiter), err);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct guest_call *c = arg;
	struct hutch_error err;

	(void)fd;
	(void)what;
	guest_call_cancel(c);
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_TIMEOUT, ETIMEDOUT, "the agent did not answer in time");
	c->done(c->arg, &err, NULL, 0);
}

struct guest_call *guest_call_start(struct guest_pool *pool, struct guest_link *link,
				    const struct msg_call *call, uint64_t timeout_ms,
				    guest_call_done *done, void *arg)
{
	struct guest_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->pool = pool;
	c->own_link = link != NULL;
	c->done = done;
	c->arg = arg;
	c->waiter.got = on_got;
	c->waiter.failed = on_failed;
	mp_buf_init(&c->frame, HUTCH_MAX_CALL + HUTCH_FRAME_HEADER);
	if (msg_call_encode(&c->frame, call, FRAME_END) < 0) {
		mp_buf_free(&c->frame);
		free(c);
		return NULL;
	}
	event_assign(&c->timer, pool->loop->base, -1, 0, on_timeout, c);
	if (timeout_ms)
		loop_timer(&c->timer, timeout_ms);
	if (!link)
		link = guest_pool_get(pool, &c->waiter);
	if (link)
		send_on(c, link);
	return c;
}
