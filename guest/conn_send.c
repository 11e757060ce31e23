/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: sending. Small answers are collected and leave in one write; output goes out of its ring. */
#include "guest/conn_send.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "guest/limits.h"

/* Turns of one connection per pass of the loop, at most a data frame each. */
#define MAX_TURNS 16

struct mp_buf *conn_out(struct conn *c)
{
	loop_task_queue(&c->task);
	return &c->out;
}

void conn_wake(struct conn *c)
{
	loop_task_queue(&c->task);
}

bool conn_sent_all(const struct conn *c)
{
	return c->out_at == c->out.len;
}

bool conn_may_send(const struct conn *c)
{
	return c->state == CONN_CALL && !c->send_blocked && !c->out.failed &&
	       c->out.len - c->out_at < AGENT_COPY_FRAME;
}

/* Bytes taken; 0 with send_blocked set when the peer takes none. -1: the connection broke. */
static ssize_t send_vec(struct conn *c, struct iovec *iov, size_t n, size_t total)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t sent;

	do {
		sent = sendmsg(c->src.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN)
		return -1;
	if (sent < 0)
		sent = 0;
	if ((size_t)sent < total)
		c->send_blocked = true;
	return sent;
}

static void out_sent(struct conn *c, size_t n)
{
	c->out_at += n;
	if (!conn_sent_all(c))
		return;
	c->out_at = 0;
	if (c->out.cap > AGENT_COPY_FRAME)
		mp_buf_free(&c->out);
	else
		mp_buf_reset(&c->out);
}

void conn_send_data(struct conn *c, enum frame_type type, const struct ring_span s[2], size_t n)
{
	uint8_t header[HUTCH_FRAME_HEADER];
	struct frame f = {.type = type, .length = (uint32_t)n};
	size_t pending = c->out.len - c->out_at;
	struct iovec iov[4] = {
		{c->out.data ? c->out.data + c->out_at : NULL, pending},
		{header, sizeof(header)},
		{(void *)(uintptr_t)s[0].p, s[0].len},
		{(void *)(uintptr_t)s[1].p, s[1].len},
	};
	ssize_t sent;

	frame_encode(header, &f);
	sent = send_vec(c, iov, 4, pending + sizeof(header) + n);
	if (sent < 0) {
		c->out.failed = true; /* conn_flush ends it */
		return;
	}
	if ((size_t)sent < pending) {
		c->out_at += (size_t)sent;
		sent = 0;
	} else {
		sent -= (ssize_t)pending;
		out_sent(c, pending);
	}
	for (int i = 1; i < 4; i++) {
		size_t gone = (size_t)sent < iov[i].iov_len ? (size_t)sent : iov[i].iov_len;

		mp_put_raw(&c->out, (const uint8_t *)iov[i].iov_base + gone, iov[i].iov_len - gone);
		sent -= (ssize_t)gone;
	}
}

static int send_out(struct conn *c)
{
	struct iovec iov = {c->out.data ? c->out.data + c->out_at : NULL, c->out.len - c->out_at};
	ssize_t sent;

	if (c->out.failed)
		return -1;
	if (c->send_blocked || conn_sent_all(c))
		return 0;
	sent = send_vec(c, &iov, 1, iov.iov_len);
	if (sent < 0)
		return -1;
	out_sent(c, (size_t)sent);
	return 0;
}

void conn_update_watch(struct conn *c)
{
	uint32_t want = EPOLLERR;

	if (c->state == CONN_DEAD)
		return;
	if (!c->eof && !c->held && (c->state == CONN_CLOSING || !c->stopped))
		want |= EPOLLIN;
	if (c->send_blocked)
		want |= EPOLLOUT;
	if (loop_watch(&c->src, want) < 0)
		conn_lost(c);
}

bool conn_flush(struct conn *c)
{
	int turns = 0;

	for (;;) {
		if (turns == MAX_TURNS) {
			conn_wake(c); /* the others first */
			return true;
		}
		if (conn_may_send(c) && c->ops && c->ops->pump && c->ops->pump(c)) {
			turns++;
			continue;
		}
		if (!c->out.failed && (c->send_blocked || conn_sent_all(c)))
			break;
		if (send_out(c) < 0) {
			conn_lost(c);
			break;
		}
	}
	return false;
}
