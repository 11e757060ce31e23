/* SPDX-License-Identifier: Apache-2.0 */
/* exec.start and exec.attach: output to the connection, input from it; see attach.h. */
#include "guest/attach.h"

#include <string.h>

#include "guest/limits.h"

static const struct call_ops owner_ops, viewer_ops;

static void put_event(struct conn *c, const struct exec_event *ev)
{
	exec_event_encode(conn_out(c), ev);
}

static void put_exec_event(struct conn *c, const struct exec *e, enum exec_event_type type)
{
	struct exec_event ev = {
		.type = type,
		.pid = (uint64_t)e->pid,
		.stdout_offset = c->x.at[0],
		.stderr_offset = c->x.at[1],
		.rows = e->rows,
		.cols = e->cols,
	};

	memcpy(ev.id, e->id, sizeof(ev.id));
	put_event(c, &ev);
}

void attach_answer(struct conn *c, const struct exec *e)
{
	struct exec_result res;

	exec_result(e, &res);
	exec_result_encode(conn_out(c), &res);
	c->answered = e->serial;
	conn_answered(c);
}

void attach_answer_detached(struct conn *c, const struct exec *e)
{
	struct mp_buf *b = conn_out(c);
	size_t start = mp_frame_begin(b);

	mp_map_begin(b);
	mp_kv_str(b, "id", e->id);
	mp_kv_uint(b, "pid", (uint64_t)e->pid);
	mp_kv_bool(b, "started", true);
	mp_map_end(b);
	mp_frame_finish(b, start, FRAME_RESULT, FRAME_END);
	conn_answered(c);
}

/* Output */

/* The bytes that this reader wanted next are gone. */
static void skip_gap(struct conn *c, unsigned i)
{
	const struct ring *r = &c->x.exec->out[i].ring;
	struct exec_event ev = {.type = EXEC_EVENT_GAP,
				.stderr_stream = i == 1,
				.from = c->x.at[i],
				.to = r->start};

	if (c->x.at[i] >= r->start)
		return;
	c->x.at[i] = r->start;
	put_event(c, &ev);
}

static void copy_frame(struct conn *c, enum frame_type type, const struct ring_span s[2])
{
	struct mp_buf *out = conn_out(c);
	size_t start = mp_frame_begin(out);

	mp_put_raw(out, s[0].p, s[0].len);
	mp_put_raw(out, s[1].p, s[1].len);
	mp_frame_finish(out, start, type, 0);
}

/* One frame of a stream. False: there is nothing. */
static bool send_stream(struct conn *c, unsigned i)
{
	const enum frame_type type = i ? FRAME_STDERR : FRAME_STDOUT;
	struct exec_stream *s = &c->x.exec->out[i];
	struct ring_span span[2];
	size_t n;

	skip_gap(c, i);
	n = ring_peek(&s->ring, c->x.at[i], AGENT_DATA_FRAME, span);
	if (!n)
		return false;
	if (n <= AGENT_COPY_FRAME)
		copy_frame(c, type, span);
	else
		conn_send_data(c, type, span, n);
	c->x.at[i] += n;
	return true;
}

static bool pump(struct conn *c)
{
	struct exec *e = c->x.exec;
	bool sent = send_stream(c, 0);

	if (conn_may_send(c))
		sent = send_stream(c, 1) || sent;
	if (sent) {
		if (c->x.owner)
			exec_reader_moved(e);
		return true;
	}
	if (e->state == EXEC_ENDED && c->x.at[0] == e->out[0].ring.end &&
	    c->x.at[1] == e->out[1].ring.end)
		attach_answer(c, e);
	return false;
}

static void over(struct conn *c, bool lost)
{
	exec_unlink(&c->x, lost);
}

/* Input */

static size_t take_input(struct conn *c, const uint8_t *p, size_t n)
{
	struct exec_link *l = &c->x;
	size_t skip = l->skip < n ? (size_t)l->skip : n, taken;

	l->skip -= skip;
	taken = exec_input(l->exec, p + skip, n - skip);
	l->exec->in_bytes += taken;
	if (skip + taken < n)
		exec_input_wait(l);
	return skip + taken;
}

static bool end_input(struct conn *c)
{
	if (!c->x.close_stdin || exec_input_end(c->x.exec))
		return true;
	exec_input_wait(&c->x);
	return false;
}

static void handle_event(struct conn *c, const uint8_t *payload, size_t n)
{
	struct hutch_error err;
	struct exec_link *l = &c->x;
	struct exec_event ev;

	if (exec_event_decode(&ev, payload, n, &err) < 0) {
		conn_break(c, &err);
		return;
	}
	if (ev.type == EXEC_EVENT_DETACH && l->owner) {
		l->exec->detach = true;
		attach_answer_detached(c, l->exec);
		return;
	}
	if (ev.type != EXEC_EVENT_ACK)
		return;
	/* No further than what was sent, and never back. */
	for (unsigned i = 0; i < 2; i++) {
		uint64_t to = i ? ev.stderr_offset : ev.stdout_offset;

		if (to > l->at[i])
			to = l->at[i];
		if (to > l->acked[i])
			l->acked[i] = to;
	}
	if (l->owner)
		exec_reader_moved(l->exec);
}

void attach_stdin_closed(struct exec *e)
{
	const struct exec_event ev = {.type = EXEC_EVENT_STDIN_CLOSED};

	list_for_each(it, &e->links) {
		struct conn *c = container_of(container_of(it, struct exec_link, link), struct conn,
					      x);

		if (c->ops == &owner_ops && !c->caller_end)
			put_event(c, &ev);
	}
}

static const struct call_ops owner_ops = {.data = take_input,
					  .end = end_input,
					  .event = handle_event,
					  .pump = pump,
					  .over = over};
/* What a viewer sends as input is discarded. */
static const struct call_ops viewer_ops = {.event = handle_event, .pump = pump, .over = over};

/* Start */

static void begin(struct conn *c, struct exec *e, const struct call_ops *ops)
{
	memset(&c->x, 0, sizeof(c->x));
	list_init(&c->x.link);
	c->ops = ops;
	exec_link(e, &c->x);
}

static void begin_owner(struct conn *c, struct exec *e, bool input, bool notify)
{
	begin(c, e, &owner_ops);
	c->x.close_stdin = input;
	exec_set_owner(e, &c->x);
	if (notify)
		put_exec_event(c, e, EXEC_EVENT_STARTED);
	conn_wake(c);
}

void attach_started(struct conn *c, struct exec *e, bool input, bool notify)
{
	begin_owner(c, e, input, notify);
}

void attach_repeated(struct conn *c, struct exec *e, bool input, bool notify)
{
	uint64_t had = e->in_bytes;

	begin_owner(c, e, input, notify);
	c->x.skip = had;
}

static uint64_t start_offset(const struct ring *r, bool given, uint64_t after, bool tail)
{
	if (tail || (given && after > r->end))
		return r->end;
	return given ? after : r->start;
}

void attach_to(struct conn *c, struct exec *e, const struct exec_attach *a, bool input)
{
	begin(c, e, a->owner ? &owner_ops : &viewer_ops);
	c->x.at[0] = start_offset(&e->out[0].ring, a->has_stdout_after, a->stdout_after, a->tail);
	c->x.at[1] = start_offset(&e->out[1].ring, a->has_stderr_after, a->stderr_after, a->tail);
	c->x.acked[0] = c->x.at[0];
	c->x.acked[1] = c->x.at[1];
	c->x.close_stdin = input;
	if (a->owner)
		exec_set_owner(e, &c->x);
	put_exec_event(c, e, EXEC_EVENT_ATTACHED);
	conn_wake(c);
}
