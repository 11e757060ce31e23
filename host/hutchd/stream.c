/* SPDX-License-Identifier: Apache-2.0 */
/* One connected, non-blocking stream socket that carries frames. */
#include "host/hutchd/stream.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

#define BUF_LEAST  512u
#define KEPT_LEAST (16u << 10) /* room made for the rest of a frame that came in part */

/* Room for more bytes behind those that are there; false when memory is gone. */
static bool buf_reserve(struct stream_buf *b, size_t more)
{
	size_t want = b->len + more, cap = b->cap ? b->cap : BUF_LEAST;
	uint8_t *data;

	if (b->off + want <= b->cap)
		return true;
	if (want <= b->cap) {
		memmove(b->data, b->data + b->off, b->len);
		b->off = 0;
		return true;
	}
	while (cap < want)
		cap *= 2;
	data = malloc(cap);
	if (!data)
		return false;
	if (b->len)
		memcpy(data, b->data + b->off, b->len);
	free(b->data);
	*b = (struct stream_buf){.data = data, .len = b->len, .cap = cap};
	return true;
}

static bool buf_append(struct stream_buf *b, const void *data, size_t len)
{
	if (len == 0)
		return true;
	if (!buf_reserve(b, len))
		return false;
	memcpy(b->data + b->off + b->len, data, len);
	b->len += len;
	return true;
}

/* Drop n bytes at the front; an empty buffer holds no memory. */
static void buf_consume(struct stream_buf *b, size_t n)
{
	b->off += n;
	b->len -= n;
	if (b->len == 0) {
		free(b->data);
		*b = (struct stream_buf){.data = NULL};
	}
}

static void want(struct event *ev, bool on)
{
	bool is = event_pending(ev, EV_READ | EV_WRITE | EV_CLOSED, NULL);

	if (on && !is)
		event_add(ev, NULL);
	else if (!on && is)
		event_del(ev);
}

/*
 * Which events the socket is polled for. gone is edge-triggered, since what it is about (bytes that nobody reads, a peer
 * that half-closed) stays true. libevent wants one mode for all events of a descriptor, so it is there only where
 * the two others are not; a write fails anyway when the peer is gone.
 */
static void update_interest(struct stream *s)
{
	bool reading = !s->paused && !s->ended;
	bool writing = s->out.len > 0 && !s->broken;
	bool watching = s->watch_gone && !reading && !writing && !s->broken;

	if (!watching)
		want(&s->gone, false);
	want(&s->rd, reading);
	want(&s->wr, writing);
	if (watching)
		want(&s->gone, true);
}

static void end(struct stream *s, enum stream_end why, const struct hutch_error *err)
{
	if (s->ended)
		return;
	s->ended = true;
	update_interest(s);
	s->ops->ended(s, why, err);
}

/* Write what is held. */
static void release_run(struct stream *s)
{
	const struct stream_run run = s->held;

	s->held = (struct stream_run){.data = NULL};
	if (run.data)
		stream_send(s, run.data, run.len);
}

/* The buffer that s handed frames out of is about to change. */
static void end_passing(struct stream *s)
{
	struct stream *to = s->receiver;

	s->receiver = NULL;
	if (!to || !to->held.data)
		return;
	release_run(to);
	if (stream_queued(to) > STREAM_HIGH)
		stream_pause(s);
}

/* Hand out what is whole. Returns how many bytes were used; the rest is to be kept. */
static size_t parse(struct stream *s, const uint8_t *data, size_t len)
{
	size_t used = 0;

	while (s->fd >= 0 && !s->paused && !s->ended) {
		struct hutch_error err;
		struct frame f;
		size_t n;

		if (s->raw) {
			n = s->ops->bytes(s, data + used, len - used);
			used += n;
			if (n == 0)
				break;
			continue;
		}
		if (len - used < HUTCH_FRAME_HEADER)
			break;
		hutch_error_clear(&err);
		if (frame_decode(data + used, &f, &err) < 0) {
			end_passing(s);
			end(s, STREAM_FAULT, &err);
			break;
		}
		n = HUTCH_FRAME_HEADER + (size_t)f.length;
		if (len - used < n)
			break;
		used += n;
		s->ops->frame(s, &f, data + used - n);
	}
	end_passing(s);
	return used;
}

static void no_memory(struct stream *s)
{
	struct hutch_error err;

	hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a frame");
	end(s, STREAM_FAULT, &err);
}

static void parse_kept(struct stream *s)
{
	size_t used = parse(s, s->in.data + s->in.off, s->in.len);

	buf_consume(&s->in, used);
}

/* The peer has nothing more for us: err is the read's errno, 0 at end of file. */
static void on_read_end(struct stream *s, int err)
{
	bool clean = err == 0 && s->in.len == 0 && !s->broken;

	if (err == EINTR || (err == EAGAIN && !s->broken))
		return;
	end(s, clean ? STREAM_EOF : STREAM_GONE, NULL);
}

/* Read into the shared buffer, or behind the piece that is kept. */
static void on_readable(struct stream *s)
{
	uint8_t *to = s->loop->scratch;
	size_t room = LOOP_SCRATCH, used;
	ssize_t n;

	if (s->in.len > 0) {
		if (!buf_reserve(&s->in, s->in.len > KEPT_LEAST ? s->in.len : KEPT_LEAST)) {
			no_memory(s);
			return;
		}
		to = s->in.data + s->in.off + s->in.len;
		room = s->in.cap - s->in.off - s->in.len;
	}
	n = recv(s->fd, to, room, 0);
	if (n <= 0) {
		on_read_end(s, n < 0 ? errno : 0);
		return;
	}
	if (s->in.len > 0) {
		s->in.len += (size_t)n;
		parse_kept(s);
		return;
	}
	used = parse(s, to, (size_t)n);
	if (s->fd >= 0 && !s->ended && !buf_append(&s->in, to + used, (size_t)n - used))
		no_memory(s);
}

/* Told even behind an end of file: now nobody will read an answer. */
static void gone(struct stream *s)
{
	s->broken = true;
	s->ended = false;
	end(s, STREAM_GONE, NULL);
}

static void on_rd(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;

	(void)fd;
	(void)what;
	if (s->broken && (s->ended || s->paused)) {
		gone(s);
		return;
	}
	if (s->in.len > 0)
		parse_kept(s);
	if (s->fd < 0 || s->ended || s->paused)
		return;
	if (s->broken || (what & EV_READ))
		on_readable(s);
	if (s->broken && s->fd >= 0 && !s->ended)
		event_active(&s->rd, EV_TIMEOUT, 0);
}

static void on_gone(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;

	(void)fd;
	(void)what;
	if (stream_peer_closed(s))
		gone(s);
}

/*
 * A failed write is told from the loop, never from inside the send of somebody else's callback, and behind what the
 * peer had sent before.
 */
static void break_off(struct stream *s)
{
	s->broken = true;
	s->held = (struct stream_run){.data = NULL};
	buf_consume(&s->out, s->out.len);
	update_interest(s);
	event_active(&s->rd, EV_TIMEOUT, 0);
}

static size_t write_some(struct stream *s, const uint8_t *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = send(s->fd, data + done, len - done, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			break_off(s);
			break;
		}
		done += (size_t)n;
	}
	return done;
}

static void on_wr(evutil_socket_t fd, short what, void *arg)
{
	struct stream *s = arg;
	size_t done;

	(void)fd;
	(void)what;
	done = write_some(s, s->out.data + s->out.off, s->out.len);
	if (s->broken)
		return;
	buf_consume(&s->out, done);
	update_interest(s);
	if (s->out.len <= STREAM_LOW)
		s->ops->drained(s);
}

void stream_open(struct stream *s, struct loop *l, int fd, const struct stream_ops *ops)
{
	*s = (struct stream){.loop = l, .ops = ops, .fd = fd};
	event_assign(&s->rd, l->base, fd, EV_READ | EV_PERSIST, on_rd, s);
	event_assign(&s->wr, l->base, fd, EV_WRITE | EV_PERSIST, on_wr, s);
	event_assign(&s->gone, l->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_gone, s);
	update_interest(s);
}

void stream_close(struct stream *s)
{
	if (s->fd < 0)
		return;
	s->ended = true;
	s->held = (struct stream_run){.data = NULL};
	event_del(&s->rd);
	event_del(&s->wr);
	event_del(&s->gone);
	fd_close(&s->fd);
}

void stream_release(struct stream *s)
{
	free(s->in.data);
	free(s->out.data);
	s->in = s->out = (struct stream_buf){.data = NULL};
}

void stream_send(struct stream *s, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t done = 0;

	if (s->fd < 0 || s->broken)
		return;
	if (s->held.data && s->held.data + s->held.len == p) {
		p = s->held.data;
		len += s->held.len;
		s->held = (struct stream_run){.data = NULL};
	}
	release_run(s);
	if (s->broken)
		return;
	if (s->out.len == 0)
		done = write_some(s, p, len);
	if (s->broken || done == len)
		return;
	if (!buf_append(&s->out, p + done, len - done)) {
		break_off(s);
		return;
	}
	update_interest(s);
}

/* Only what the socket may take at once is held, and no more than may be queued. */
void stream_pass(struct stream *s, struct stream *from, const void *data, size_t len)
{
	const uint8_t *p = data;

	if (from->receiver != s) {
		end_passing(from);
		from->receiver = s;
	}
	if (s->fd < 0 || s->broken)
		return;
	if (s->held.data && (s->held.data + s->held.len != p || s->held.len + len > STREAM_HIGH))
		release_run(s);
	if (s->out.len > 0) {
		stream_send(s, p, len);
		if (stream_queued(s) > STREAM_HIGH)
			stream_pause(from);
		return;
	}
	s->held = (struct stream_run){.data = s->held.data ? s->held.data : p,
				      .len = s->held.len + len};
}

size_t stream_queued(const struct stream *s)
{
	return s->out.len + s->held.len;
}

size_t stream_unread(const struct stream *s)
{
	return s->in.len;
}

void stream_pause(struct stream *s)
{
	if (s->fd < 0 || s->paused)
		return;
	s->paused = true;
	update_interest(s);
}

void stream_resume(struct stream *s)
{
	if (s->fd < 0 || !s->paused)
		return;
	s->paused = false;
	update_interest(s);
	if (s->in.len > 0)
		event_active(&s->rd, EV_TIMEOUT, 0);
}

bool stream_stale(const struct stream *s)
{
	uint8_t byte;
	ssize_t n;

	if (s->fd < 0 || s->ended || s->broken || s->in.len > 0)
		return true;
	n = recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n >= 0 || errno != EAGAIN;
}

bool stream_peer_closed(const struct stream *s)
{
	struct pollfd p = {.fd = s->fd, .events = 0};

	return s->fd < 0 || s->broken || (poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)));
}
