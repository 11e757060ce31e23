/* SPDX-License-Identifier: Apache-2.0 */
/* Output of execs: from pipe or PTY into the ring, at the owner's pace, and the rule of how it ends (exec.h). */
#include "guest/exec.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "guest/leftover.h"
#include "guest/limits.h"
#include "guest/log.h"

#define EVERYTHING SIZE_MAX /* exec_stream::owed: all until end-of-file */

static uint8_t buffer[64u << 10]; /* a pipe's worth */

static unsigned index_of(const struct exec_stream *s)
{
	return (unsigned)(s - s->exec->out);
}

/* The offset from which bytes must be kept for the owner. */
static uint64_t floor_of(const struct exec_stream *s)
{
	const struct exec_link *o = s->exec->owner;
	unsigned i = index_of(s);

	if (!o)
		return s->ring.end; /* nobody is waited for */
	if (s->exec->resumable && o->acked[i] < o->at[i])
		return o->acked[i];
	return o->at[i];
}

static bool limit_reached(const struct exec_stream *s)
{
	return s->exec->output_limit && s->ring.end >= s->exec->output_limit;
}

/* Bytes that may be read now. */
static size_t room(const struct exec_stream *s)
{
	size_t n = sizeof(buffer);

	if (!limit_reached(s)) {
		size_t r = ring_room(&s->ring, floor_of(s));

		n = r < n ? r : n;
	}
	return n;
}

static void update_watch(struct exec_stream *s)
{
	if (s->src.fd >= 0 && !s->exec->held)
		loop_watch(&s->src, room(s) ? EPOLLIN : 0);
}

static void put(struct exec_stream *s, size_t n)
{
	struct exec *e = s->exec;
	size_t keep = n;
	size_t history = e->owner && !e->pty && !e->resumable ? RING_HISTORY : RING_MAX;

	s->written += n;
	if (e->output_limit && keep > e->output_limit - s->ring.end)
		keep = (size_t)(e->output_limit - s->ring.end);
	if (!keep)
		return;
	if (ring_put(&s->ring, buffer, keep, floor_of(s), history) < 0) {
		log_info("exec %s: no memory for output, %zu bytes are dropped", e->id, keep);
		ring_drop(&s->ring);
		s->ring.start = s->ring.end += keep; /* readers get a gap */
	}
	exec_wake_links(e);
}

static void stream_ended(struct exec_stream *s)
{
	loop_close(&s->src);
	s->owed = 0;
}

/* One read. False: nothing is there now, or it is the end. */
static bool read_some(struct exec_stream *s)
{
	size_t max = room(s);
	ssize_t n;

	if (s->owed && s->owed < max)
		max = s->owed;
	if (!max)
		return false;
	n = read(s->src.fd, buffer, max);
	if (n > 0) {
		put(s, (size_t)n);
		if (s->owed && s->owed != EVERYTHING)
			s->owed -= (size_t)n;
		return true;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		stream_ended(s); /* EIO is the end of a PTY */
	return false;
}

/* DRAINING: read what is owed, as far as the owner lets us; then see whether it is the end. */
static void drain(struct exec_stream *s)
{
	struct pollfd p = {.fd = s->src.fd, .events = POLLIN};

	while (s->owed && read_some(s))
		;
	if (s->src.fd < 0)
		return;
	if (!s->owed && poll(&p, 1, 0) == 1 && (p.revents & POLLHUP)) {
		s->owed = EVERYTHING;
		while (read_some(s))
			;
	}
	if (s->src.fd >= 0 && !s->owed && s->exec->drain_over)
		leftover_add(&s->src);
	update_watch(s);
}

void exec_output_ready(struct loop_source *src, uint32_t events)
{
	struct exec_stream *s = container_of(src, struct exec_stream, src);

	(void)events;
	read_some(s);
	if (s->src.fd < 0) {
		exec_check_done(s->exec);
	} else if (s->exec->state == EXEC_DRAINING && s->exec->drain_over) {
		drain(s);
		exec_check_done(s->exec);
	} else {
		update_watch(s);
	}
}

void exec_outputs_open(struct exec *e)
{
	for (int i = 0; i < 2; i++)
		update_watch(&e->out[i]);
}

/* Look at both outputs with one call: mostly they are at their end. */
void exec_outputs_process_ended(struct exec *e)
{
	struct pollfd p[2];

	e->held = false;
	for (int i = 0; i < 2; i++)
		p[i] = (struct pollfd){.fd = e->out[i].src.fd, .events = POLLIN};
	if (exec_outputs_closed(e) || poll(p, 2, 0) < 0)
		return;
	for (int i = 0; i < 2; i++) {
		struct exec_stream *s = &e->out[i];
		int pending = 0;

		if (s->src.fd < 0)
			continue;
		if (p[i].revents & POLLHUP)
			s->owed = EVERYTHING; /* nobody writes any more */
		else if ((p[i].revents & POLLIN) && ioctl(s->src.fd, FIONREAD, &pending) == 0)
			s->owed = (size_t)pending;
		if (p[i].revents == POLLHUP && !e->pty)
			stream_ended(s);
		else
			drain(s);
	}
}

void exec_outputs_give_up(struct exec *e)
{
	e->drain_over = true;
	for (int i = 0; i < 2; i++)
		if (e->out[i].src.fd >= 0)
			drain(&e->out[i]);
	exec_check_done(e);
}

bool exec_outputs_closed(const struct exec *e)
{
	return e->out[0].src.fd < 0 && e->out[1].src.fd < 0;
}

void exec_reader_moved(struct exec *e)
{
	for (int i = 0; i < 2; i++) {
		struct exec_stream *s = &e->out[i];

		if (s->src.fd < 0)
			continue;
		if (e->state == EXEC_DRAINING)
			drain(s);
		else
			update_watch(s);
	}
	exec_check_done(e);
}
