/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to connections, whichever side causes it: birth, ready or not, reset, end. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "host/vsock/device_priv.h"

struct conn *dev_conn_new(struct vsock_dev *dev, int fd)
{
	struct conn *c = NULL;
	uint32_t extra;

	if (dev->conn_count == dev->cfg.max_conns)
		errno = EUSERS;
	else
		c = calloc(1, sizeof(*c));
	if (!c)
		goto fail;
	c->dev = dev;
	c->src = (struct loop_source){.fire = host_conn_fire, .fd = fd};
	c->state = CONN_HANDSHAKE;
	if (loop_add(dev->cfg.loop, &c->src, EPOLLIN | EPOLLRDHUP | EPOLLET) < 0)
		goto fail;
	extra = CONN_CREDIT - CONN_CREDIT_MIN;
	if (extra > dev->extra_credit)
		extra = dev->extra_credit;
	dev->extra_credit -= extra;
	c->alloc = CONN_CREDIT_MIN + extra;
	TAILQ_INSERT_TAIL(&dev->conns, c, all);
	dev->conn_count++;
	dev->handshakes++;
	return c;
fail:
	free(c);
	close(fd);
	return NULL;
}

void dev_conn_set_state(struct conn *c, enum conn_state state)
{
	struct vsock_dev *dev = c->dev;

	if (!conn_may_become(c->state, state))
		abort(); /* a bug of ours, and nothing is safe after it */
	if (dev->cfg.debug)
		dev_log(dev, "conn %u:%u %s -> %s", c->host_port, c->guest_port,
			conn_state_name(c->state), conn_state_name(state));
	if (c->state == CONN_HANDSHAKE)
		dev->handshakes--;
	c->state = state;
}

void dev_conn_owe(struct conn *c, unsigned owed)
{
	c->owed |= (uint8_t)owed;
	if (!c->in_owing) {
		TAILQ_INSERT_TAIL(&c->dev->owing, c, owing);
		c->in_owing = true;
	}
}

static void unstall(struct conn *c)
{
	if (c->in_stalled)
		TAILQ_REMOVE(&c->dev->stalled, c, stalled);
	c->in_stalled = false;
}

/*
 * A guest tells by itself when it has freed space, Linux after 192 KiB of 256. Asked at once, it
 * would tell in small change, and each answer costs it a packet. So it is asked, once, only when
 * it stays silent.
 */
static void note_stall(struct conn *c)
{
	bool stall = c->state == CONN_OPEN && conn_has_input(c) && !conn_credit(c) &&
		     !c->credit_asked;

	if (!stall) {
		unstall(c);
	} else if (!c->in_stalled) {
		c->ask_at_ms = dev_clock(c->dev) + CREDIT_ASK_MS;
		TAILQ_INSERT_TAIL(&c->dev->stalled, c, stalled);
		c->in_stalled = true;
	}
}

void dev_conn_ask_credit(struct vsock_dev *dev)
{
	struct conn *c;

	while ((c = TAILQ_FIRST(&dev->stalled)) && c->ask_at_ms <= dev->now_ms) {
		unstall(c);
		c->credit_asked = true;
		dev_conn_owe(c, OWED_CREDIT_REQUEST);
	}
}

void dev_conn_consider(struct conn *c)
{
	bool want = c->state == CONN_OPEN && (c->host_gone || conn_flows(c));

	note_stall(c);
	if (want == c->in_ready)
		return;
	c->in_ready = want;
	if (want)
		TAILQ_INSERT_TAIL(&c->dev->ready, c, ready);
	else
		TAILQ_REMOVE(&c->dev->ready, c, ready);
}

void dev_conn_unwait(struct conn *c)
{
	if (c->in_waiting)
		TAILQ_REMOVE(&c->dev->waiting, c, waiting);
	c->in_waiting = false;
}

static void conn_unlist(struct conn *c)
{
	struct vsock_dev *dev = c->dev;

	dev_conn_unwait(c);
	unstall(c);
	if (c->in_ready)
		TAILQ_REMOVE(&dev->ready, c, ready);
	if (c->in_owing)
		TAILQ_REMOVE(&dev->owing, c, owing);
	c->in_ready = c->in_owing = false;
	c->owed = 0;
}

static void conn_close_host(struct conn *c)
{
	loop_del(c->dev->cfg.loop, &c->src);
	dev_close_fd(&c->src.fd);
	backlog_free(&c->backlog);
}

void dev_conn_drop(struct conn *c)
{
	struct vsock_dev *dev = c->dev;

	dev_conn_set_state(c, CONN_DEAD);
	conn_unlist(c);
	conn_remove(&dev->table, c);
	conn_close_host(c);
	dev->extra_credit += c->alloc - CONN_CREDIT_MIN;
	dev->conn_count--;
	TAILQ_REMOVE(&dev->conns, c, all);
	TAILQ_INSERT_TAIL(&dev->dead_conns, c, all);
}

void dev_conn_reset(struct conn *c)
{
	bool unknown = !c->in_table || (c->owed & OWED_REQUEST);

	if (unknown) {
		dev_conn_drop(c);
		return;
	}
	dev_conn_set_state(c, CONN_RESETTING);
	conn_unlist(c);
	conn_close_host(c);
	dev_conn_owe(c, OWED_RST);
}

void dev_conn_violation(struct conn *c, const char *what)
{
	dev_complain(c->dev, "connection %u:%u reset: guest %s", c->host_port, c->guest_port, what);
	c->dev->stats.violations++;
	dev_conn_reset(c);
}

void dev_conn_drain(struct conn *c)
{
	if (c->backlog.len == 0 || c->host_gone) {
		dev_conn_drop(c);
		return;
	}
	dev_conn_set_state(c, CONN_DRAINING);
	conn_unlist(c);
	conn_remove(&c->dev->table, c);
}
