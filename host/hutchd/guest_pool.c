/* SPDX-License-Identifier: Apache-2.0 */
/* The connections to one VM's agent. */
#include "host/hutchd/guest_pool.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "host/hutchd/log.h"

#define BACKOFF_LEAST_MS 10u
#define BACKOFF_MOST_MS	 250u

static void kick(struct guest_pool *p);

static void on_ready(void *arg, struct guest_link *g)
{
	struct guest_pool *p = arg;
	struct guest_waiter *w = TAILQ_FIRST(&p->waiters);

	p->backoff_ms = 0;
	event_del(&p->retry);
	if (w) {
		guest_link_move(g, &p->busy);
		guest_pool_cancel(w);
		w->got(w, g);
	} else if (p->idle.count < POOL_IDLE) {
		guest_link_move(g, &p->idle);
	} else {
		guest_link_close(g);
	}
	kick(p);
}

static void dial_failed(struct guest_pool *p, const struct hutch_error *err)
{
	snprintf(p->last_error, sizeof(p->last_error), "%.200s", err->message);
	log_debug(p->object, "dial: %s", err->message);
	p->backoff_ms = p->backoff_ms ? p->backoff_ms * 2 : BACKOFF_LEAST_MS;
	if (p->backoff_ms > BACKOFF_MOST_MS)
		p->backoff_ms = BACKOFF_MOST_MS;
	if (p->wait_count > 0 && !event_pending(&p->retry, EV_TIMEOUT, NULL))
		loop_timer(&p->retry, p->backoff_ms);
}

/* An idle link that ends is no failure of a dial: the agent may close what it does not need. */
static void on_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct guest_pool *p = arg;

	if (g->hello.proto == 0)
		dial_failed(p, err);
	else if (err->kind != HUTCH_E_IO)
		log_warn(p->object, "idle connection closed: %s", err->message);
}

static const struct link_owner owner = {.ready = on_ready, .lost = on_lost};

static void dial(struct guest_pool *p)
{
	struct hutch_error err;
	struct guest_link *g;

	hutch_error_clear(&err);
	g = guest_link_dial(p->loop, p->rundir_fd, HUTCH_PORT_AGENT, &owner, p, &err);
	if (!g) {
		dial_failed(p, &err);
		return;
	}
	guest_link_move(g, &p->dialing);
	if (!event_pending(&p->hedge, EV_TIMEOUT, NULL))
		loop_timer(&p->hedge, POOL_SLOW_MS);
}

static unsigned prompt_dials(const struct guest_pool *p)
{
	const struct guest_link *g;
	unsigned n = 0;

	TAILQ_FOREACH(g, &p->dialing.links, next)
		n += !g->slow;
	return n;
}

/* Dial for those who wait, unless a pause is on. */
static void kick(struct guest_pool *p)
{
	unsigned prompt = prompt_dials(p);

	while (p->open && prompt < p->wait_count && p->dialing.count < POOL_DIALS &&
	       !event_pending(&p->retry, EV_TIMEOUT, NULL)) {
		dial(p);
		prompt++;
	}
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	kick(arg);
}

/* Whatever dials now is slow: it may still win, but another one is started beside it. */
static void on_hedge(evutil_socket_t fd, short what, void *arg)
{
	struct guest_pool *p = arg;
	struct guest_link *g;

	(void)fd;
	(void)what;
	TAILQ_FOREACH(g, &p->dialing.links, next)
		g->slow = true;
	kick(p);
}

static void on_wait_over(evutil_socket_t fd, short what, void *arg)
{
	struct guest_waiter *w = arg;
	struct guest_pool *p = w->pool;
	struct hutch_error err;

	(void)fd;
	(void)what;
	guest_pool_cancel(w);
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_NOT_DISPATCHED, 0, "%s: the agent cannot be reached: %s",
			p->object, p->last_error[0] ? p->last_error : "it does not answer in time");
	w->failed(w, &err);
}

void guest_pool_init(struct guest_pool *p, struct loop *l, int rundir_fd, const char *object)
{
	*p = (struct guest_pool){.loop = l, .object = object, .rundir_fd = rundir_fd};
	link_list_init(&p->idle);
	link_list_init(&p->dialing);
	link_list_init(&p->busy);
	TAILQ_INIT(&p->waiters);
	event_assign(&p->retry, l->base, -1, 0, on_retry, p);
	event_assign(&p->hedge, l->base, -1, 0, on_hedge, p);
}

static struct guest_link *take_idle(struct guest_pool *p)
{
	struct guest_link *g;

	while ((g = TAILQ_FIRST(&p->idle.links)) != NULL) {
		if (!stream_stale(&g->s)) {
			guest_link_move(g, &p->busy);
			return g;
		}
		guest_link_close(g);
	}
	return NULL;
}

void guest_pool_open(struct guest_pool *p, bool ahead)
{
	struct guest_link *g;
	struct guest_waiter *w;

	p->open = true;
	while ((w = TAILQ_FIRST(&p->waiters)) != NULL && (g = take_idle(p)) != NULL) {
		guest_pool_cancel(w);
		w->got(w, g);
	}
	TAILQ_FOREACH(w, &p->waiters, next)
		loop_timer(&w->timer, POOL_WAIT_MS);
	if (ahead && p->wait_count == 0 && p->idle.count == 0)
		dial(p);
	kick(p);
}

void guest_pool_shut(struct guest_pool *p)
{
	p->open = false;
}

static void close_all(struct link_list *list)
{
	while (!TAILQ_EMPTY(&list->links))
		guest_link_close(TAILQ_FIRST(&list->links));
}

void guest_pool_end(struct guest_pool *p, const struct hutch_error *err)
{
	struct guest_waiter *w;

	p->open = false;
	event_del(&p->retry);
	event_del(&p->hedge);
	close_all(&p->idle);
	close_all(&p->dialing);
	while ((w = TAILQ_FIRST(&p->waiters)) != NULL) {
		guest_pool_cancel(w);
		w->failed(w, err);
	}
	while (!TAILQ_EMPTY(&p->busy.links))
		guest_link_fail(TAILQ_FIRST(&p->busy.links), err);
}

struct guest_link *guest_pool_get(struct guest_pool *p, struct guest_waiter *w)
{
	struct guest_link *g = p->open ? take_idle(p) : NULL;

	if (g)
		return g;
	w->pool = p;
	TAILQ_INSERT_TAIL(&p->waiters, w, next);
	p->wait_count++;
	event_assign(&w->timer, p->loop->base, -1, 0, on_wait_over, w);
	if (p->open)
		loop_timer(&w->timer, POOL_WAIT_MS);
	kick(p);
	return NULL;
}

void guest_pool_cancel(struct guest_waiter *w)
{
	struct guest_pool *p = w->pool;

	if (!p)
		return;
	TAILQ_REMOVE(&p->waiters, w, next);
	p->wait_count--;
	event_del(&w->timer);
	w->pool = NULL;
}

void guest_pool_put(struct guest_pool *p, struct guest_link *g)
{
	if (!guest_link_clean(g) || !p->open) {
		guest_link_close(g);
		return;
	}
	guest_link_release(g);
	on_ready(p, g);
}
