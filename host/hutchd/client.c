/* SPDX-License-Identifier: Apache-2.0 */
/* One client: HELLO, one call at a time, and how it ends. */
#include "host/hutchd/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/hutchd/dispatch.h"
#include "host/hutchd/log.h"

static void destroy(struct deferred *d)
{
	struct client *c = container_of(d, struct client, deferred);

	stream_release(&c->s);
	free(c);
}

/* Take the running call off; its gone is for the caller to call. */
static void drop_call(struct client *c)
{
	const struct call_ops *ops = c->ops;

	c->ops = NULL;
	if (ops)
		ops->gone(c->call);
}

void client_close(struct client *c)
{
	if (c->state == CLIENT_DEAD)
		return;
	c->state = CLIENT_DEAD;
	event_del(&c->timer);
	stream_close(&c->s);
	TAILQ_REMOVE(&c->b->clients, c, next);
	c->b->client_count--;
	loop_defer(&c->b->loop, &c->deferred, destroy);
	drop_call(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct client *c = arg;

	(void)fd;
	(void)what;
	if (c->state == CLIENT_HELLO)
		client_fault(c, "no HELLO in time");
	else
		client_close(c);
}

/* Nothing more is read; it is closed once it has read what is queued, or after a while. */
static void close_flushed(struct client *c)
{
	if (c->state >= CLIENT_CLOSING)
		return;
	if (stream_queued(&c->s) == 0) {
		client_close(c);
		return;
	}
	c->state = CLIENT_CLOSING;
	stream_pause(&c->s);
	loop_timer(&c->timer, CLIENT_CLOSING_MS);
}

static void send_error(struct client *c, const struct hutch_error *err)
{
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_ERROR + HUTCH_FRAME_HEADER);
	if (msg_error_encode(&b, err) == 0)
		stream_send(&c->s, b.data, b.len);
	mp_buf_free(&b);
}

static void fault_error(struct client *c, const struct hutch_error *err)
{
	if (c->state >= CLIENT_CLOSING)
		return;
	log_info(c->object, "closed: %s", err->message);
	send_error(c, err);
	drop_call(c);
	close_flushed(c);
}

void client_fault(struct client *c, const char *why)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_PROTOCOL, 0, "the connection broke the protocol: %s", why);
	fault_error(c, &err);
}

/* Behind an answer: a client that will send no more is done with. */
static void after_reply(struct client *c)
{
	if (c->s.ended && c->state == CLIENT_OPEN)
		close_flushed(c);
}

static void end_call(struct client *c)
{
	/* RESULT or ERROR: whether the caller's half is open still shows in ends. */
	const struct frame f = {.type = FRAME_RESULT, .flags = FRAME_END, .length = 0};
	const char *why = "";

	c->ops = NULL;
	c->call = NULL;
	call_from_callee(&c->ends, &f, &why);
}

void client_begin(struct client *c, const struct call_ops *ops, void *call)
{
	c->ops = ops;
	c->call = call;
}

void client_forward(struct client *c, struct stream *from, const uint8_t *raw, size_t len)
{
	stream_pass(&c->s, from, raw, len);
}

void client_reply(struct client *c, const uint8_t *raw, size_t len)
{
	if (c->state != CLIENT_OPEN)
		return;
	end_call(c);
	stream_send(&c->s, raw, len);
	after_reply(c);
}

void client_error(struct client *c, const struct hutch_error *err)
{
	if (c->state != CLIENT_OPEN)
		return;
	end_call(c);
	send_error(c, err);
	after_reply(c);
}

void client_reply_buf(struct client *c, struct mp_buf *b)
{
	struct hutch_error err;

	if (mp_frame_finish(b, 0, FRAME_RESULT, FRAME_END) == 0) {
		client_reply(c, b->data, b->len);
	} else {
		hutch_error_clear(&err);
		hutch_error_set(&err, HUTCH_E_TOO_LARGE, 0, "the result does not fit in a frame");
		client_error(c, &err);
	}
	mp_buf_free(b);
}

void client_reply_empty(struct client *c)
{
	struct mp_buf b;

	mp_buf_init(&b, 64);
	if (msg_empty_result_encode(&b) == 0)
		client_reply(c, b.data, b.len);
	mp_buf_free(&b);
}

static void on_hello(struct client *c, const struct frame *f, const uint8_t *payload)
{
	struct hutch_error err;
	struct msg_hello hello;

	hutch_error_clear(&err);
	if (f->type != FRAME_HELLO) {
		client_fault(c, "its first frame is no HELLO");
		return;
	}
	if (msg_hello_decode(&hello, payload, f->length, &err) < 0) {
		fault_error(c, &err);
		return;
	}
	if (hello.role != ROLE_CLIENT) {
		client_fault(c, "its HELLO is not a client's");
		return;
	}
	event_del(&c->timer);
	c->state = CLIENT_OPEN;
	log_debug(c->object, "is %s", hello.name);
}

static void on_frame(struct stream *s, const struct frame *f, const uint8_t *raw)
{
	struct client *c = container_of(s, struct client, s);
	const char *why = "";

	if (c->state == CLIENT_HELLO) {
		on_hello(c, f, raw + HUTCH_FRAME_HEADER);
		return;
	}
	switch (call_from_caller(&c->ends, f, &why)) {
	case CALL_FAULT:
		client_fault(c, why);
		break;
	case CALL_DISCARD:
		break;
	case CALL_TAKE:
		if (f->type == FRAME_CALL)
			dispatch_call(c, f, raw + HUTCH_FRAME_HEADER);
		else if (c->ops && c->ops->input)
			c->ops->input(c->call, f, raw);
		break;
	}
	/* A client that reads no answers asks no more. */
	if (!c->ops && c->state == CLIENT_OPEN && stream_queued(s) > STREAM_HIGH)
		stream_pause(s);
}

/*
 * A peer that only closed its sending half gets the answer of a call whose input it had ended; otherwise it has
 * gone.
 */
static void on_ended(struct stream *s, enum stream_end why, const struct hutch_error *err)
{
	struct client *c = container_of(s, struct client, s);

	if (c->state == CLIENT_CLOSING && why != STREAM_GONE)
		return;
	if (why == STREAM_FAULT)
		fault_error(c, err);
	else if (why == STREAM_GONE || stream_peer_closed(s) || c->state != CLIENT_OPEN)
		client_close(c);
	else if (c->ends.open && !c->ends.caller_ended && !c->ends.callee_ended)
		client_fault(c, "its input stops without END");
	else if (!c->ops)
		close_flushed(c);
}

static void on_drained(struct stream *s)
{
	struct client *c = container_of(s, struct client, s);

	if (c->state == CLIENT_CLOSING) {
		if (stream_queued(s) == 0)
			client_close(c);
	} else if (c->ops && c->ops->drained) {
		c->ops->drained(c->call);
	} else if (!c->ops) {
		stream_resume(s);
	}
}

static const struct stream_ops stream_ops = {.frame = on_frame,
					     .ended = on_ended,
					     .drained = on_drained};

static int send_hello(struct client *c)
{
	const struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION,
					.role = ROLE_BROKER,
					.name = "hutchd/" HUTCH_VERSION};
	struct mp_buf b;
	int rc;

	mp_buf_init(&b, HUTCH_MAX_HELLO + HUTCH_FRAME_HEADER);
	rc = msg_hello_encode(&b, &hello);
	if (rc == 0)
		stream_send(&c->s, b.data, b.len);
	mp_buf_free(&b);
	return rc;
}

struct client *client_new(struct broker *b, int fd, uint32_t uid, int32_t pid)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->b = b;
	c->uid = uid;
	c->pid = pid;
	c->admin = broker_is_admin(b, uid);
	snprintf(c->object, sizeof(c->object), "client %llu (uid %u, pid %d)",
		 (unsigned long long)b->next_client++, (unsigned)uid, (int)pid);
	TAILQ_INSERT_TAIL(&b->clients, c, next);
	b->client_count++;
	stream_open(&c->s, &b->loop, fd, &stream_ops);
	c->s.watch_gone = true;
	event_assign(&c->timer, b->loop.base, -1, 0, on_timer, c);
	loop_timer(&c->timer, CLIENT_HELLO_MS);
	if (send_hello(c) < 0) {
		client_close(c);
		return NULL;
	}
	return c;
}
