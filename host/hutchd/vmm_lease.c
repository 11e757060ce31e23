/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker's end of the in-VMM library's control socket. One request is on its way at a time; a
 * renewal that comes meanwhile replaces the one that waits, since only the latest deadline counts.
 */
#include "host/hutchd/vmm_lease.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/linebuf.h"
#include "host/hutchd/log.h"

#define CTL_MAX_LINE 256u
#define CTL_MS	     5000

struct vmm_lease {
	struct event_base *base;
	int rundir_fd;
	const char *id;
	int fd; /* -1: not connected */
	struct event *readable, *timer;
	struct linebuf in;
	bool asked;   /* an answer is due */
	bool fresh;   /* the connection has answered nothing yet */
	bool waiting; /* ms is to be sent */
	uint64_t ms;
};

static void disconnect(struct vmm_lease *c)
{
	if (c->readable)
		event_free(c->readable);
	c->readable = NULL;
	fd_close(&c->fd);
	linebuf_free(&c->in);
	event_del(c->timer);
	c->asked = false;
}

/* The request that was on its way is lost; what waits is worth a new connection. */
static void fail(struct vmm_lease *c, const char *why)
{
	log_warn(c->id, "its deadline could not be renewed: %s", why);
	disconnect(c);
}

static void advance(struct vmm_lease *c);

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct vmm_lease *c = arg;
	ssize_t n = linebuf_fill(&c->in, (int)fd);
	char *line;
	size_t len;

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		bool again = c->asked && !c->fresh;

		/*
		 * It closed: between requests that is its right; under one, a connection that had
		 * worked is worth another.
		 */
		if (c->asked && c->fresh)
			fail(c, n == 0 ? "the control socket was closed" : strerror(errno));
		else
			disconnect(c);
		c->waiting |= again;
		advance(c);
		return;
	}
	while (linebuf_next(&c->in, &line, &len)) {
		if (!c->asked || strcmp(line, "ok") != 0) {
			fail(c, c->asked ? line : "it answered what was not asked");
			break;
		}
		c->asked = c->fresh = false;
		event_del(c->timer);
	}
	advance(c);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct vmm_lease *c = arg;

	(void)fd;
	(void)what;
	fail(c, "no answer from its control socket");
	advance(c);
}

static int connect_ctl(struct vmm_lease *c)
{
	c->fd = unix_connect(c->rundir_fd, "ctl", SOCK_STREAM);
	if (c->fd < 0)
		return -1;
	c->fresh = true;
	c->in.max = CTL_MAX_LINE;
	c->readable = event_new(c->base, c->fd, EV_READ | EV_PERSIST, on_readable, c);
	if (!c->readable || event_add(c->readable, NULL) < 0) {
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

/* Send what waits, unless an answer is due first. */
static void advance(struct vmm_lease *c)
{
	static const struct timeval limit = {.tv_sec = CTL_MS / 1000};
	char line[40];
	int len;

	if (!c->waiting || c->asked)
		return;
	if (c->fd < 0 && connect_ctl(c) < 0) {
		c->waiting = false;
		fail(c, strerror(errno));
		return;
	}
	len = snprintf(line, sizeof(line), "renew %" PRIu64 "\n", c->ms);
	/*
	 * One short line on a socket that holds no other: it is taken whole, or the socket is dead.
	 */
	if (send(c->fd, line, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len && c->fresh) {
		c->waiting = false;
		fail(c, strerror(errno));
		return;
	}
	c->waiting = false;
	c->asked = true;
	event_add(c->timer, &limit);
}

struct vmm_lease *vmm_lease_new(struct event_base *base, int rundir_fd, const char *id)
{
	struct vmm_lease *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->base = base;
	c->rundir_fd = rundir_fd;
	c->id = id;
	c->fd = -1;
	c->timer = event_new(base, -1, 0, on_timeout, c);
	if (!c->timer) {
		free(c);
		return NULL;
	}
	return c;
}

void vmm_lease_renew(struct vmm_lease *c, uint64_t ms)
{
	c->ms = ms;
	c->waiting = true;
	advance(c);
}

void vmm_lease_free(struct vmm_lease *c)
{
	if (!c)
		return;
	disconnect(c);
	event_free(c->timer);
	free(c);
}
