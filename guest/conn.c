/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: reading and parsing, the order of frames, and the end. Sending is in conn_send.c. */
#include "guest/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/conn_send.h"
#include "guest/exec.h"
#include "guest/limits.h"
#include "guest/log.h"
#include "protocol/msg.h"

static struct list conns = LIST_INIT(conns);
static unsigned count;
static size_t big_calls; /* memory of half-received CALLs above the chunk */
static uint8_t chunk[AGENT_READ_CHUNK + HUTCH_FRAME_HEADER];

static const char *const state_names[] = {
	[CONN_HELLO] = "hello", [CONN_IDLE] = "idle",	    [CONN_CALL] = "call",
	[CONN_SKIP] = "skip",	[CONN_CLOSING] = "closing", [CONN_DEAD] = "dead",
};
_Static_assert(sizeof(state_names) / sizeof(*state_names) == CONN_DEAD + 1, "a name per state");

static void set_state(struct conn *c, enum conn_state to)
{
	log_debug("connection %d: %s -> %s", c->src.fd, state_names[c->state], state_names[to]);
	c->state = to;
}

unsigned conn_count(void)
{
	return count;
}

/* Memory for received bytes */

/* cap 0 frees it. -1: no memory; the old stays. */
static int set_in_cap(struct conn *c, size_t cap)
{
	size_t was = c->in_cap > sizeof(chunk) ? c->in_cap : 0;
	uint8_t *in;

	if (!cap) {
		free(c->in);
		c->in = NULL;
	} else {
		in = realloc(c->in, cap);
		if (!in)
			return -1;
		c->in = in;
	}
	c->in_cap = cap;
	big_calls += (cap > sizeof(chunk) ? cap : 0) - was;
	return 0;
}

/* Keep n bytes that could not be handled yet, in place of what c->in holds. p does not lie in c->in. */
static int keep_input(struct conn *c, const uint8_t *p, size_t n)
{
	c->in_len = 0;
	if (n > c->in_cap || !n)
		set_in_cap(c, 0);
	if (!n)
		return 0;
	if (!c->in && set_in_cap(c, n) < 0)
		return -1;
	memcpy(c->in, p, n);
	c->in_len = n;
	return 0;
}

/* The first used bytes of c->in were handled. */
static void drop_input(struct conn *c, size_t used)
{
	c->in_len -= used;
	if (c->in_len)
		memmove(c->in, c->in + used, c->in_len);
	else
		set_in_cap(c, 0);
}

/* The end of a connection */

static void release(void *p)
{
	struct conn *c = p;

	set_in_cap(c, 0);
	mp_buf_free(&c->out);
	free(c);
}

static void end_call(struct conn *c, bool lost)
{
	const struct call_ops *ops = c->ops;

	c->ops = NULL;
	loop_timer_clear(&c->timer);
	if (ops && ops->over)
		ops->over(c, lost);
}

void conn_lost(struct conn *c)
{
	if (c->state == CONN_DEAD)
		return;
	set_state(c, CONN_DEAD);
	end_call(c, true);
	loop_close(&c->src);
	loop_task_cancel(&c->task);
	list_del(&c->link);
	count--;
	loop_free_later(&c->garbage, c, release);
	if (c->closed)
		c->closed();
}

void conn_close_all(void)
{
	while (!list_empty(&conns)) {
		struct conn *c = container_of(conns.next, struct conn, link);

		c->closed = NULL;
		conn_lost(c);
	}
}

static void linger_due(struct loop_timer *t)
{
	conn_lost(container_of(t, struct conn, timer));
}

/* What is in conn_out still goes out, then the connection ends. */
static void finish(struct conn *c)
{
	if (c->state == CONN_DEAD || c->state == CONN_CLOSING)
		return;
	set_state(c, CONN_CLOSING);
	end_call(c, true);
	c->timer.due = linger_due;
	loop_timer_after_ms(&c->timer, AGENT_LINGER_MS);
	conn_wake(c);
}

void conn_break(struct conn *c, const struct hutch_error *err)
{
	if (c->state == CONN_DEAD || c->state == CONN_CLOSING)
		return;
	log_info("connection %d: %s", c->src.fd, err->message);
	msg_error_encode(conn_out(c), err);
	finish(c);
}

/* The order of frames */

void conn_answered(struct conn *c)
{
	end_call(c, false);
	c->stopped = false;
	if (c->caller_end || c->end_due)
		set_state(c, CONN_IDLE);
	else
		set_state(c, CONN_SKIP);
	c->end_due = false;
	if (c->in_len)
		conn_resume(c);
	conn_wake(c);
}

void conn_answer(struct conn *c, const char *key, uint64_t v)
{
	struct mp_buf *b = conn_out(c);
	size_t start = mp_frame_begin(b);

	mp_map_begin(b);
	if (key)
		mp_kv_uint(b, key, v);
	mp_map_end(b);
	mp_frame_finish(b, start, FRAME_RESULT, FRAME_END);
	conn_answered(c);
}

void conn_input_taken(struct conn *c)
{
	keep_input(c, NULL, 0);
}

void conn_returned(struct conn *c, bool caller_end, const struct conn_rest *rest)
{
	c->caller_end = caller_end;
	c->in_data = rest->in_data;
	c->data_left = rest->data_left;
	c->data_end = rest->data_end;
	if (keep_input(c, rest->head, rest->head_len) < 0)
		conn_lost(c);
	else
		conn_answered(c);
}

void conn_end(struct conn *c)
{
	finish(c);
}

void conn_fail(struct conn *c, const struct hutch_error *err)
{
	msg_error_encode(conn_out(c), err);
	conn_answered(c);
}

static void caller_end(struct conn *c)
{
	if (c->state == CONN_SKIP) {
		set_state(c, CONN_IDLE);
		return;
	}
	c->caller_end = true;
	if (c->ops && c->ops->end && !c->ops->end(c)) {
		c->caller_end = false;
		c->end_due = c->stopped = true;
	}
}

static int check_order(const struct conn *c, const struct frame *f, struct hutch_error *err)
{
	const char *name = frame_type_name(f->type);

	switch (c->state) {
	case CONN_HELLO:
		if (f->type == FRAME_HELLO)
			return 0;
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0, "%s came before HELLO", name);
	case CONN_IDLE:
		if (f->type == FRAME_CALL)
			return 0;
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0, "%s came outside a call", name);
	case CONN_CALL:
	case CONN_SKIP:
		if (c->caller_end || c->end_due)
			return hutch_error_set(err, HUTCH_E_PROTOCOL, 0,
					       "%s came after END and before the result", name);
		if (f->type == FRAME_STDIN || (f->type == FRAME_EVENT && !(f->flags & FRAME_END)))
			return 0;
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0, "%s came inside a call", name);
	case CONN_CLOSING:
	case CONN_DEAD:
		break;
	}
	return hutch_error_set(err, HUTCH_E_INTERNAL, 0, "%s came after the end", name);
}

static void handle_hello(struct conn *c, const uint8_t *payload, size_t n)
{
	struct hutch_error err;
	struct msg_hello hello;

	if (msg_hello_decode(&hello, payload, n, &err) < 0) {
		conn_break(c, &err);
		return;
	}
	set_state(c, CONN_IDLE);
	if (c->greeted)
		c->greeted();
}

static void handle_call(struct conn *c, const uint8_t *payload, size_t n, bool end)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	if (c->answered) /* who sends the next CALL has the last result */
		exec_collected(c->answered);
	c->answered = 0;
	set_state(c, CONN_CALL);
	c->caller_end = end;
	if (dispatch_call(c, payload, n, &err) == 0)
		return;
	if (err.kind == HUTCH_E_PROTOCOL)
		conn_break(c, &err);
	else
		conn_fail(c, &err);
}

static void handle_map(struct conn *c, const struct frame *f, const uint8_t *payload)
{
	switch (f->type) {
	case FRAME_HELLO:
		handle_hello(c, payload, f->length);
		break;
	case FRAME_CALL:
		handle_call(c, payload, f->length, f->flags & FRAME_END);
		break;
	default: /* EVENT, by check_order */
		if (c->ops && c->ops->event)
			c->ops->event(c, payload, f->length);
		break;
	}
}

/* Parsing */

/* A data frame's payload, piece by piece. True: something was done. */
static bool step_data(struct conn *c, const uint8_t *p, size_t n, size_t *used)
{
	size_t taken;

	if (!c->data_left) {
		c->in_data = false;
		if (c->data_end)
			caller_end(c);
		return true;
	}
	if (n > c->data_left)
		n = c->data_left;
	if (!n)
		return false;
	taken = c->ops && c->ops->data ? c->ops->data(c, p, n) : n;
	c->data_left -= (uint32_t)taken;
	*used += taken;
	if (taken < n && c->state == CONN_CALL)
		c->stopped = true;
	return taken > 0 || c->state != CONN_CALL;
}

static bool step_frame(struct conn *c, const uint8_t *p, size_t n, size_t *used)
{
	struct hutch_error err;
	struct frame f;

	if (n && p[0]) { /* no need to wait for the rest: 16 MiB or more */
		hutch_error_set(&err, HUTCH_E_PROTOCOL, 0,
				"a frame header starts with byte %u; no payload is that long",
				p[0]);
		conn_break(c, &err);
		return false;
	}
	if (n < HUTCH_FRAME_HEADER)
		return false;
	if (frame_decode(p, &f, &err) < 0 || check_order(c, &f, &err) < 0) {
		conn_break(c, &err);
		return false;
	}
	if (f.type == FRAME_STDIN) {
		c->in_data = true;
		c->data_left = f.length;
		c->data_end = f.flags & FRAME_END;
		*used += HUTCH_FRAME_HEADER;
		return true;
	}
	if (n - HUTCH_FRAME_HEADER < f.length)
		return false;
	*used += HUTCH_FRAME_HEADER + f.length;
	handle_map(c, &f, p + HUTCH_FRAME_HEADER);
	return true;
}

/* Returns the count of bytes that were handled. */
static size_t parse(struct conn *c, const uint8_t *p, size_t n)
{
	size_t used = 0;
	bool more = true;

	while (more && !c->stopped && c->state != CONN_DEAD && c->state != CONN_CLOSING)
		more = c->in_data ? step_data(c, p + used, n - used, &used)
				  : step_frame(c, p + used, n - used, &used);
	return used;
}

/* Reading */

/* Bytes of the frame that c->in starts with, header included; 0: not known, or it is not kept whole. */
static size_t frame_need(const struct conn *c)
{
	struct hutch_error err;
	struct frame f;

	if (c->in_data || c->in_len < HUTCH_FRAME_HEADER || frame_decode(c->in, &f, &err) < 0)
		return 0;
	return HUTCH_FRAME_HEADER + f.length;
}

/* Grow c->in towards need as the bytes arrive, within what all connections may have together. */
static int grow_call(struct conn *c, size_t need)
{
	struct hutch_error err;
	size_t cap = 2 * c->in_cap > need ? need : 2 * c->in_cap;

	if (c->in_len < c->in_cap)
		return 0;
	if (cap < 2 * sizeof(chunk))
		cap = need < 2 * sizeof(chunk) ? need : 2 * sizeof(chunk);
	if (big_calls + cap - c->in_cap > AGENT_CALL_TOTAL || set_in_cap(c, cap) < 0) {
		hutch_error_set(&err, HUTCH_E_BUSY, 0,
				"too many large calls are being received at once");
		conn_break(c, &err);
		return -1;
	}
	return 0;
}

/* A CALL larger than the chunk is collected in c->in. */
static ssize_t read_call(struct conn *c, size_t need)
{
	ssize_t n;

	if (grow_call(c, need) < 0)
		return -1;
	n = read(c->src.fd, c->in + c->in_len, (c->in_cap < need ? c->in_cap : need) - c->in_len);
	if (n <= 0)
		return n;
	c->in_len += (size_t)n;
	if (c->in_len == need) {
		size_t used = parse(c, c->in, need);

		if (c->state != CONN_DEAD)
			drop_input(c, used);
	}
	return n;
}

static ssize_t read_chunk(struct conn *c)
{
	size_t have = c->in_len, used;
	ssize_t n;

	if (have)
		memcpy(chunk, c->in, have);
	n = read(c->src.fd, chunk + have, sizeof(chunk) - have);
	if (n <= 0)
		return n;
	have += (size_t)n;
	used = parse(c, chunk, have);
	if (c->state != CONN_DEAD && keep_input(c, chunk + used, have - used) < 0)
		conn_lost(c);
	return n;
}

static void discard_input(struct conn *c)
{
	ssize_t n = read(c->src.fd, chunk, sizeof(chunk));

	if (n == 0)
		c->eof = true;
	if ((n == 0 && conn_sent_all(c)) || (n < 0 && errno != EAGAIN && errno != EINTR))
		conn_lost(c);
}

/* The peer sends no more. hung_up: nor does it read. */
static void input_ended(struct conn *c, bool hung_up)
{
	c->eof = true;
	if (hung_up || c->state == CONN_HELLO || (c->state == CONN_CALL && !c->caller_end))
		conn_lost(c);
	else if (c->state != CONN_CALL)
		finish(c);
}

static void conn_read(struct conn *c, bool hung_up)
{
	size_t need = frame_need(c);
	ssize_t n;

	errno = 0;
	n = need > sizeof(chunk) ? read_call(c, need) : read_chunk(c);
	if (c->state == CONN_DEAD || c->state == CONN_CLOSING)
		return;
	if (n == 0)
		input_ended(c, hung_up);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		conn_lost(c);
}

static void conn_ready(struct loop_source *src, uint32_t events)
{
	struct conn *c = container_of(src, struct conn, src);

	if (events & EPOLLOUT) {
		c->send_blocked = false;
		conn_wake(c);
	}
	if (c->state == CONN_CLOSING && (events & EPOLLIN))
		discard_input(c);
	else if ((events & EPOLLIN) && (src->events & EPOLLIN))
		conn_read(c, events & EPOLLHUP);
	else if (events & (EPOLLHUP | EPOLLERR))
		conn_lost(c);
	if (c->state != CONN_DEAD)
		conn_update_watch(c);
}

void conn_resume(struct conn *c)
{
	c->stopped = false;
	c->resume_due = true;
	conn_wake(c);
}

static void resume(struct conn *c)
{
	size_t used;

	c->resume_due = false;
	if (c->end_due) {
		c->end_due = false;
		caller_end(c);
	}
	if (c->state == CONN_DEAD || c->state == CONN_CLOSING || c->stopped)
		return;
	used = parse(c, c->in, c->in_len);
	if (c->state != CONN_DEAD)
		drop_input(c, used);
}

static void conn_task(struct loop_task *t)
{
	struct conn *c = container_of(t, struct conn, task);

	if (c->resume_due && !c->held)
		resume(c);
	if (c->state != CONN_DEAD && !conn_flush(c) && !c->resume_due)
		loop_task_cancel(t); /* queued by what was just done */
	if (c->state == CONN_CALL && c->ops && c->ops->sent && !c->held && conn_sent_all(c))
		c->ops->sent(c);
	if (c->state == CONN_IDLE && c->eof)
		finish(c);
	if (c->state == CONN_CLOSING && conn_sent_all(c)) {
		if (c->eof)
			conn_lost(c);
		else
			shutdown(c->src.fd, SHUT_WR);
	}
	conn_update_watch(c);
}

void conn_hold(const struct conn *but)
{
	list_for_each_safe(it, &conns) {
		struct conn *c = container_of(it, struct conn, link);

		if (c == but)
			continue;
		c->held = true;
		conn_update_watch(c);
	}
}

void conn_release(bool restored)
{
	list_for_each_safe(it, &conns) {
		struct conn *c = container_of(it, struct conn, link);

		if (!c->held)
			continue;
		c->held = false;
		if (restored)
			conn_lost(c);
		else
			conn_wake(c);
	}
}

struct conn *conn_open(int fd)
{
	struct msg_hello hello = {
		.proto = HUTCH_PROTO_VERSION,
		.role = ROLE_AGENT,
		.name = AGENT_NAME,
		.generation = agent.generation,
		.pid1 = agent.mode == AGENT_PID1,
		.held = agent.held,
	};
	struct conn *c = count < AGENT_MAX_CONNS ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		log_info("connection refused: %u are open", count);
		close(fd);
		return NULL;
	}
	memcpy(hello.boot_id, agent.boot_id, sizeof(hello.boot_id));
	loop_source_init(&c->src, fd, conn_ready);
	c->task.run = conn_task;
	list_init(&c->x.link);
	mp_buf_init(&c->out, AGENT_OUT_MAX);
	list_add_tail(&conns, &c->link);
	count++;
	msg_hello_encode(conn_out(c), &hello);
	conn_update_watch(c);
	return c;
}
