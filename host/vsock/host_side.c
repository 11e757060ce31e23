/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of connections: the listening socket, the CONNECT line, and the sockets' events.
 *
 * A connection's socket is watched edge-triggered, so nothing spins on a state that can't be acted
 * on: an event only sets flags (readable, ended, host_gone), and the flags are cleared by the read
 * that finds the socket empty. EPOLLHUP means that both directions of the socket are shut. When we
 * did not shut ours, the host closed it fully: that is an abort. When we did, it says nothing new,
 * and what the host sent is still delivered in order.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vsock/device_priv.h"
#include "host/vsock/hybrid.h"

#define ACCEPTS_PER_PASS 32

#define EV_ENDED (EPOLLRDHUP | EPOLLHUP | EPOLLERR)

static void wait_begin(struct conn *c)
{
	c->deadline_ms = dev_clock(c->dev) + c->dev->cfg.handshake_ms;
	TAILQ_INSERT_TAIL(&c->dev->waiting, c, waiting);
	c->in_waiting = true;
}

static uint32_t take_port(struct vsock_dev *dev)
{
	uint32_t port;

	do {
		port = dev->next_port;
		dev->next_port = port == CONN_PORT_LAST ? CONN_PORT_FIRST : port + 1;
	} while (conn_host_port_used(&dev->table, port));
	return port;
}

static void request(struct conn *c, uint32_t guest_port)
{
	struct vsock_dev *dev = c->dev;

	if (dev->dead) {
		dev_conn_drop(c);
		return;
	}
	c->from_host = true;
	c->host_port = take_port(dev);
	c->guest_port = guest_port;
	conn_insert(&dev->table, c);
	dev_conn_set_state(c, CONN_REQUESTED);
	dev_conn_owe(c, OWED_REQUEST);
	c->readable = true; /* there may be more behind the line */
}

/*
 * Peeks, so that what follows the line stays in the socket and is read as the stream's first bytes.
 */
static void read_handshake(struct conn *c)
{
	char line[HYBRID_LINE_MAX];
	uint32_t port;
	ssize_t n;
	int len;

	n = recv(c->src.fd, line, sizeof(line), MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	len = n > 0 ? hybrid_parse_connect(line, (size_t)n, &port) : -1;
	if (len == 0 && !c->ended)
		return;
	if (len <= 0 || recv(c->src.fd, line, (size_t)len, MSG_DONTWAIT) != len) {
		dev_conn_drop(c);
		return;
	}
	request(c, port);
}

int vsock_dev_adopt(struct vsock_dev *dev, int fd)
{
	struct conn *c = dev_conn_new(dev, fd);

	if (!c)
		return -errno;
	wait_begin(c);
	read_handshake(c);
	return 0;
}

static void listener_set(struct vsock_dev *dev, bool on)
{
	if (dev->listener.fd < 0 || dev->listener_on == on)
		return;
	if (loop_mod(dev->cfg.loop, &dev->listener, on ? EPOLLIN : 0) == 0)
		dev->listener_on = on;
}

/* One accept; false: nothing more to do now. */
static bool accept_one(struct vsock_dev *dev)
{
	int fd = accept4(dev->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		dev->accept_failing = false;
		(void)vsock_dev_adopt(dev, fd); /* a full table closes it: a refusal */
		return dev->handshakes < VSOCK_MAX_HANDSHAKES;
	}
	if (errno == EINTR || errno == ECONNABORTED)
		return true;
	if (errno == EAGAIN)
		return false;
	if (!dev->accept_failing)
		dev_log(dev, "accept: %s; trying again every %d ms", strerrordesc_np(errno),
			ACCEPT_RETRY_MS);
	dev->accept_failing = true;
	dev->accept_again_ms = dev_clock(dev) + ACCEPT_RETRY_MS;
	return false;
}

void host_listener_fire(struct loop_source *src, uint32_t events)
{
	struct vsock_dev *dev = container_of(src, struct vsock_dev, listener);

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_PASS; i++) {
		if (!accept_one(dev))
			break;
	}
}

void host_expire(struct vsock_dev *dev)
{
	struct conn *c;

	while ((c = TAILQ_FIRST(&dev->waiting)) && c->deadline_ms <= dev->now_ms)
		dev_conn_reset(c);
}

void host_listen(struct vsock_dev *dev)
{
	if (dev->accept_again_ms && dev->accept_again_ms <= dev->now_ms)
		dev->accept_again_ms = 0;
	listener_set(dev, !dev->accept_again_ms && dev->handshakes < VSOCK_MAX_HANDSHAKES);
}

void host_accepted(struct conn *c)
{
	char line[HYBRID_OK_MAX];
	size_t len = hybrid_format_ok(line, c->host_port);

	dev_conn_unwait(c);
	/* Nothing was written to this socket before, so a short write is not for want of room. */
	if (send(c->src.fd, line, len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len)
		c->host_gone = true;
	dev_conn_set_state(c, CONN_OPEN);
	dev_conn_consider(c);
}

static void poll_out(struct conn *c, bool on)
{
	uint32_t events = EPOLLIN | EPOLLRDHUP | EPOLLET;

	if (c->polling_out == on)
		return;
	/* Only while it is needed: else every read of the host would wake us. */
	if (loop_mod(c->dev->cfg.loop, &c->src, on ? events | EPOLLOUT : events) == 0)
		c->polling_out = on;
	else
		c->host_gone = true;
}

/*
 * sendmsg; returns the bytes taken, 0 when the host must read first. A host that is gone takes
 * everything.
 */
static uint64_t send_some(struct conn *c, struct iovec *iov, unsigned n, uint64_t len)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t done;

	if (c->host_gone)
		return len;
	done = sendmsg(c->src.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (done >= 0)
		return (uint64_t)done;
	if (errno == EAGAIN)
		return 0;
	c->host_gone = true;
	dev_conn_consider(c);
	return len;
}

static void count_forwarded(struct conn *c, uint64_t n)
{
	c->fwd += (uint32_t)n;
	c->dev->stats.to_host_bytes += n;
	if (c->state == CONN_OPEN && conn_update_due(c))
		dev_conn_owe(c, OWED_CREDIT_UPDATE);
}

static void flush_backlog(struct conn *c)
{
	struct iovec iov[2];
	uint64_t done = 1;
	unsigned n;

	while (done > 0 && (n = backlog_peek(&c->backlog, iov)) > 0) {
		done = send_some(c, iov, n, c->backlog.len);
		backlog_consume(&c->backlog, (uint32_t)done);
		count_forwarded(c, done);
	}
	if (c->backlog.len > 0)
		return;
	poll_out(c, false);
	host_follow_shutdown(c);
}

void host_send(struct conn *c, struct iovec *iov, unsigned n, uint32_t len)
{
	uint64_t done = 0;
	int r;

	if (c->backlog.len == 0)
		done = send_some(c, iov, n, len);
	if (done < len) {
		r = backlog_append(&c->backlog, c->alloc, iov, n, done);
		if (r < 0) {
			dev_log(c->dev, "connection %u:%u: no memory for its backlog", c->host_port,
				c->guest_port);
			dev_conn_reset(c);
			return;
		}
		poll_out(c, true);
	}
	if (done > 0)
		count_forwarded(c, done);
}

void host_follow_shutdown(struct conn *c)
{
	if (c->state == CONN_DRAINING) {
		if (c->backlog.len == 0 || c->host_gone)
			dev_conn_drop(c);
		return;
	}
	if ((c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND) && !c->host_wr_shut &&
	    c->backlog.len == 0) {
		c->host_wr_shut = true;
		(void)shutdown(c->src.fd,
			       SHUT_WR); /* fails only when the host has closed already */
		if (c->eof)
			dev_conn_owe(c, OWED_SHUTDOWN); /* now both directions are over */
	}
}

static void note_events(struct conn *c, uint32_t events)
{
	if (events & (EPOLLIN | EV_ENDED))
		c->readable = true;
	if (events & EV_ENDED)
		c->ended = true;
	if ((events & (EPOLLHUP | EPOLLERR)) && !c->host_wr_shut)
		c->host_gone = true;
}

void host_conn_fire(struct loop_source *src, uint32_t events)
{
	struct conn *c = container_of(src, struct conn, src);

	if (c->src.fd < 0)
		return; /* closed earlier in this pass */
	note_events(c, events);
	switch (c->state) {
	case CONN_HANDSHAKE:
		read_handshake(c);
		if (c->state != CONN_REQUESTED)
			break;
		__attribute__((fallthrough));
	case CONN_REQUESTED:
		if (c->host_gone)
			dev_conn_reset(c);
		break;
	case CONN_OPEN:
		if (events & EPOLLOUT)
			flush_backlog(c);
		dev_conn_consider(c);
		break;
	case CONN_DRAINING:
		flush_backlog(c);
		break;
	case CONN_RESETTING:
	case CONN_DEAD:
	case CONN_STATES:
		break;
	}
}
