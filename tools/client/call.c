/* SPDX-License-Identifier: Apache-2.0 */
/* One call on a connection: its frames out, its frames in (wire.md section 2). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "protocol/msg.h"
#include "tools/client/client.h"

/* ---- Out ---- */

static int put_text(char *to, size_t size, const char *text, const char *what,
		    struct hutch_failure *why)
{
	if (text == NULL)
		text = "";
	if (strlen(text) >= size)
		return fail_set(why, HUTCH_E_INVALID, 0, "%s is longer than %zu bytes", what,
				size - 1);
	memcpy(to, text, strlen(text) + 1);
	return 0;
}

static int fill_envelope(struct msg_call *m, const struct hutch_call *call,
			 struct hutch_failure *why)
{
	if (put_text(m->method, sizeof(m->method), call->method, "a method's name", why) < 0 ||
	    put_text(m->vm, sizeof(m->vm), call->vm, "the VM's id or name", why) < 0 ||
	    put_text(m->id, sizeof(m->id), call->id, "the exec's id", why) < 0 ||
	    put_text(m->key, sizeof(m->key), call->key, "the key", why) < 0)
		return -1;
	return 0;
}

static int startable(struct hutch *h, const char *method, struct hutch_failure *why)
{
	if (h->fd < 0)
		return fail_set(why, HUTCH_E_NOT_DISPATCHED, 0,
				"%s was not sent: the connection had ended: %s", method,
				h->broken.message);
	if (h->open)
		return fail_set(why, HUTCH_E_STATE, 0,
				"%s was not sent: the connection is busy with %s", method,
				h->method);
	return 0;
}

int call_start(struct hutch *h, const struct hutch_call *call, const struct mp_buf *params,
	       struct hutch_failure *why)
{
	struct msg_call m = {0};
	struct mp_buf frame;
	int r;

	if (startable(h, call->method, why) < 0 || fill_envelope(&m, call, why) < 0)
		return -1;
	if (params != NULL && params->failed)
		return fail_set(why, HUTCH_E_TOO_LARGE, 0,
				"the parameters of %s do not fit into a call of 1 MiB",
				call->method);
	if (params != NULL) {
		m.params = params->data;
		m.params_len = params->len;
	}
	mp_buf_init(&frame, HUTCH_FRAME_HEADER + HUTCH_MAX_CALL);
	r = msg_call_encode(&frame, &m, call->input ? 0 : FRAME_END);
	if (r == 0)
		r = bytes_append(&h->out, frame.data, frame.len);
	mp_buf_free(&frame);
	if (r < 0)
		return fail_set(why, HUTCH_E_TOO_LARGE, 0,
				"the parameters of %s do not fit into a call of 1 MiB",
				call->method);
	memcpy(h->method, m.method, sizeof(h->method));
	h->call_unsent = h->out.len;
	h->open = true;
	h->input = call->input;
	/*
	 * A failure to send is told by hutch_next, with whatever the broker said before it closed.
	 */
	conn_flush(h);
	return 0;
}

int hutch_start(struct hutch *h, const struct hutch_call *call, struct hutch_failure *why)
{
	struct hutch_value map = hutch_map(call->params, call->param_count);
	struct mp_buf params;
	int r;

	if (call->param_count == 0)
		return call_start(h, call, NULL, why);
	mp_buf_init(&params, HUTCH_MAX_CALL);
	r = value_encode(&params, &map, 0);
	if (r < 0)
		fail_set(why, HUTCH_E_INVALID, 0, "the parameters of %s are nested too deeply",
			 call->method);
	else
		r = call_start(h, call, &params, why);
	mp_buf_free(&params);
	return r;
}

/*
 * What the socket takes at once of a frame, straight from the caller's memory; only with nothing
 * queued before it. An error is left to conn_flush.
 */
static size_t send_at_once(struct hutch *h, uint8_t *header, const void *data, size_t len)
{
	union {
		const void *from;
		void *to;
	} u = {.from = data};
	struct iovec iov[2] = {{header, HUTCH_FRAME_HEADER}, {u.to, len}};
	const struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t n;

	if (h->out.len > 0 || h->deaf)
		return 0;
	n = sendmsg(h->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? 0 : (size_t)n;
}

static int queue_stdin(struct hutch *h, const void *data, size_t len, unsigned flags)
{
	struct frame f = {.type = FRAME_STDIN, .flags = (uint8_t)flags, .length = (uint32_t)len};
	uint8_t header[HUTCH_FRAME_HEADER];
	size_t sent, skip;

	frame_encode(header, &f);
	sent = send_at_once(h, header, data, len);
	if (sent == sizeof(header) + len)
		return 0;
	if (bytes_room(&h->out, sizeof(header) + len) == NULL)
		return -1;
	skip = sent < sizeof(header) ? sent : sizeof(header);
	bytes_append(&h->out, header + skip, sizeof(header) - skip);
	skip = sent - skip;
	return bytes_append(&h->out, (const char *)data + skip, len - skip);
}

size_t hutch_send_room(const struct hutch *h)
{
	return h->open && h->input && h->out.len == 0 ? HUTCH_MAX_DATA : 0;
}

size_t hutch_send(struct hutch *h, const void *data, size_t len)
{
	size_t room;

	if (h->fd < 0 || conn_flush(h) < 0)
		return 0;
	room = hutch_send_room(h);
	if (len > room)
		len = room;
	if (len == 0)
		return 0;
	if (queue_stdin(h, data, len, 0) < 0) {
		conn_break(h, HUTCH_E_IO, ENOMEM, "no memory for the input of %s", h->method);
		return 0;
	}
	conn_flush(h);
	return len;
}

void hutch_send_end(struct hutch *h)
{
	if (h->fd < 0 || !h->input)
		return;
	if (queue_stdin(h, NULL, 0, FRAME_END) < 0) {
		conn_break(h, HUTCH_E_IO, ENOMEM, "no memory to end the input of %s", h->method);
		return;
	}
	h->input = false;
	conn_flush(h);
}

int hutch_send_event(struct hutch *h, const char *name)
{
	struct mp_buf b;
	size_t start;
	int r;

	if (h->fd < 0 || !h->open || !h->input)
		return -1;
	mp_buf_init(&b, HUTCH_FRAME_HEADER + HUTCH_MAX_EVENT);
	start = mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_str(&b, "event", name);
	mp_map_end(&b);
	r = mp_frame_finish(&b, start, FRAME_EVENT, 0);
	if (r == 0)
		r = bytes_append(&h->out, b.data, b.len);
	mp_buf_free(&b);
	return r < 0 ? -1 : conn_flush(h);
}

/* ---- In ---- */

static enum hutch_next broken(struct hutch *h, struct hutch_failure *why)
{
	if (why != NULL)
		*why = h->broken;
	return HUTCH_FAILED;
}

static enum hutch_next offence(struct hutch *h, const char *what, struct hutch_failure *why)
{
	conn_break(h, HUTCH_E_PROTOCOL, 0, "the broker's answer to %s breaks the protocol: %s",
		   h->method, what);
	return broken(h, why);
}

/* The answer is complete; the caller's END follows where it was not sent. */
static void over(struct hutch *h)
{
	hutch_send_end(h);
	h->open = false;
}

static enum hutch_next on_hello(struct hutch *h, const uint8_t *p, size_t len,
				struct hutch_failure *why)
{
	struct hutch_error err = {0};
	struct msg_hello m;

	if (msg_hello_decode(&m, p, len, &err) < 0) {
		conn_break(h, err.kind, 0, "the broker's HELLO is refused: %s", err.message);
		return broken(h, why);
	}
	if (m.role == ROLE_CLIENT)
		return offence(h, "it is a client", why);
	h->greeted = true;
	return HUTCH_AGAIN;
}

static enum hutch_next on_error(struct hutch *h, const struct frame *f, const uint8_t *p,
				struct hutch_failure *why)
{
	struct hutch_error told = {0}, err = {0};

	if (msg_error_decode(&told, p, f->length, &err) < 0)
		return offence(h, err.message, why);
	if (!(f->flags & FRAME_END) || !h->greeted || told.kind == HUTCH_E_PROTOCOL) {
		conn_break(h, told.kind, told.errnum, "%s", told.message);
		fail_from(&h->broken, &told);
		return broken(h, why);
	}
	over(h);
	fail_from(why, &told);
	return HUTCH_FAILED;
}

static enum hutch_next on_doc(struct hutch *h, const struct frame *f, const uint8_t *p,
			      struct hutch_item *item, struct hutch_failure *why)
{
	bool result = f->type == FRAME_RESULT;
	struct hutch_error err = {0};

	if (result != ((f->flags & FRAME_END) != 0))
		return offence(h, result ? "a RESULT without END" : "an EVENT with END", why);
	item->doc = doc_parse(p, f->length, &err);
	if (item->doc == NULL)
		return offence(h, err.message, why);
	if (result)
		over(h);
	return result ? HUTCH_RESULT : HUTCH_EVENT;
}

static enum hutch_next on_control(struct hutch *h, const struct frame *f, const uint8_t *p,
				  struct hutch_item *item, struct hutch_failure *why)
{
	if (f->type == FRAME_ERROR)
		return on_error(h, f, p, why);
	if (f->type == FRAME_HELLO && !h->greeted)
		return on_hello(h, p, f->length, why);
	if (!h->greeted)
		return offence(h, "its first frame is no HELLO", why);
	if (f->type != FRAME_RESULT && f->type != FRAME_EVENT)
		return offence(h, frame_type_name(f->type), why);
	return on_doc(h, f, p, item, why);
}

/* Hand out what is there of a data frame's payload. */
static enum hutch_next on_data(struct hutch *h, struct hutch_item *item)
{
	item->data = h->in.data + h->in.start;
	item->len = h->in.len < h->left ? h->in.len : h->left;
	if (item->len == 0)
		return HUTCH_AGAIN;
	h->given = item->len;
	h->left -= (uint32_t)item->len;
	return h->data_type == FRAME_STDOUT ? HUTCH_STDOUT : HUTCH_STDERR;
}

static enum hutch_next begin_data(struct hutch *h, const struct frame *f, struct hutch_item *item,
				  struct hutch_failure *why)
{
	if (f->type == FRAME_STDIN || (f->flags & FRAME_END) || !h->greeted)
		return offence(h, "a data frame that has no place there", why);
	bytes_consume(&h->in, HUTCH_FRAME_HEADER);
	h->data_type = f->type;
	h->left = f->length;
	return on_data(h, item);
}

/* The next item in the bytes at hand. *more: nothing can be said before more arrive. */
static enum hutch_next parse(struct hutch *h, struct hutch_item *item, bool *more,
			     struct hutch_failure *why)
{
	struct hutch_error err = {0};
	enum hutch_next r;
	struct frame f;

	*more = false;
	if (h->left > 0) {
		*more = h->in.len == 0;
		return on_data(h, item);
	}
	if (h->in.len < HUTCH_FRAME_HEADER) {
		*more = true;
		return HUTCH_AGAIN;
	}
	if (frame_decode(h->in.data + h->in.start, &f, &err) < 0)
		return offence(h, err.message, why);
	if (frame_is_data(f.type)) {
		r = begin_data(h, &f, item, why);
		*more = r == HUTCH_AGAIN && h->in.len == 0;
		return r;
	}
	*more = h->in.len < HUTCH_FRAME_HEADER + f.length;
	if (*more) {
		if (bytes_room(&h->in, HUTCH_FRAME_HEADER + f.length - h->in.len) == NULL) {
			conn_break(h, HUTCH_E_IO, ENOMEM, "no memory to receive the answer to %s",
				   h->method);
			*more = false;
			return broken(h, why);
		}
		return HUTCH_AGAIN;
	}
	r = on_control(h, &f, h->in.data + h->in.start + HUTCH_FRAME_HEADER, item, why);
	if (hutch_alive(h))
		bytes_consume(&h->in, HUTCH_FRAME_HEADER + f.length);
	return r;
}

enum hutch_next hutch_next(struct hutch *h, struct hutch_item *item, struct hutch_failure *why)
{
	enum hutch_next r;
	bool more;

	*item = (struct hutch_item){0};
	if (h->fd < 0)
		return broken(h, why);
	if (!h->open) {
		fail_set(why, HUTCH_E_STATE, 0, "no call is open on this connection");
		return HUTCH_FAILED;
	}
	bytes_consume(&h->in, h->given);
	h->given = 0;
	if (conn_flush(h) < 0)
		return broken(h, why);
	for (;;) {
		r = parse(h, item, &more, why);
		if (r != HUTCH_AGAIN)
			return r;
		if (!more)
			continue;
		switch (conn_fill(h)) {
		case 0:
			return HUTCH_AGAIN;
		case -1:
			return broken(h, why);
		}
	}
}
