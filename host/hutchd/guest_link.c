/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a VM's agent. */
#include "host/hutchd/guest_link.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"

static void destroy(struct deferred *d)
{
	struct guest_link *g = container_of(d, struct guest_link, deferred);

	stream_release(&g->s);
	free(g);
}

void link_list_init(struct link_list *list)
{
	TAILQ_INIT(&list->links);
	list->count = 0;
}

void guest_link_move(struct guest_link *g, struct link_list *list)
{
	if (g->list) {
		TAILQ_REMOVE(&g->list->links, g, next);
		g->list->count--;
	}
	g->list = list;
	if (list) {
		TAILQ_INSERT_HEAD(&list->links, g, next);
		list->count++;
	}
}

void guest_link_close(struct guest_link *g)
{
	if (!g || g->state == LINK_DEAD)
		return;
	g->state = LINK_DEAD;
	guest_link_move(g, NULL);
	event_del(&g->deadline);
	stream_close(&g->s);
	loop_defer(g->s.loop, &g->deferred, destroy);
}

void guest_link_fail(struct guest_link *g, const struct hutch_error *err)
{
	bool busy = g->state == LINK_BUSY;

	if (g->state == LINK_DEAD)
		return;
	guest_link_close(g);
	if (busy)
		g->user->lost(g->user_arg, err);
	else
		g->owner->lost(g->owner_arg, g, err);
}

static void fail(struct guest_link *g, enum hutch_error_kind kind, int errnum, const char *text)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	hutch_error_set(&err, kind, errnum, "%s", text);
	guest_link_fail(g, &err);
}

static void fault(struct guest_link *g, const char *why)
{
	char text[160];

	snprintf(text, sizeof(text), "the agent broke the protocol: %.129s", why);
	fail(g, HUTCH_E_INTERNAL, 0, text);
}

static int send_hello(struct guest_link *g)
{
	const struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION,
					.role = ROLE_BROKER,
					.name = "hutchd/" HUTCH_VERSION};
	struct mp_buf b;
	int rc;

	mp_buf_init(&b, HUTCH_MAX_HELLO + HUTCH_FRAME_HEADER);
	rc = msg_hello_encode(&b, &hello);
	if (rc == 0)
		stream_send(&g->s, b.data, b.len);
	mp_buf_free(&b);
	return rc;
}

/* Length of the line "OK <digits>\n" at data; 0: not whole yet, -1: something else. */
static int ok_line(const uint8_t *data, size_t len)
{
	static const char ok[] = "OK ";

	for (size_t i = 0; i < len && i < GUEST_LINK_LINE_MAX; i++) {
		bool digit = data[i] >= '0' && data[i] <= '9';

		if (i < 3 ? data[i] != (uint8_t)ok[i] : !digit && data[i] != '\n')
			return -1;
		if (data[i] == '\n')
			return i > 3 ? (int)i + 1 : -1;
	}
	return len < GUEST_LINK_LINE_MAX ? 0 : -1;
}

/*
 * The OK line ends at its newline: what stands behind it in the same read are frames already, and stay with the
 * stream.
 */
static size_t on_bytes(struct stream *s, const uint8_t *data, size_t len)
{
	struct guest_link *g = container_of(s, struct guest_link, s);
	int n = ok_line(data, len);

	if (n < 0)
		fail(g, HUTCH_E_INTERNAL, 0, "the VMM's answer to CONNECT is not an OK line");
	if (n <= 0)
		return 0;
	s->raw = false;
	g->state = LINK_HELLO;
	if (send_hello(g) < 0)
		fail(g, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a HELLO");
	return (size_t)n;
}

/* What it says is quoted; its kind is not ours to pass on. */
static void refused(struct guest_link *g, const struct frame *f, const uint8_t *payload)
{
	struct hutch_error said, err;
	char text[300];

	hutch_error_clear(&said);
	hutch_error_clear(&err);
	if (msg_error_decode(&said, payload, f->length, &err) < 0) {
		fault(g, err.message);
		return;
	}
	snprintf(text, sizeof(text), "the agent refuses the connection: %.250s", said.message);
	fail(g, HUTCH_E_IO, 0, text);
}

static void on_hello(struct guest_link *g, const struct frame *f, const uint8_t *payload)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	if (f->type == FRAME_ERROR) {
		refused(g, f, payload);
		return;
	}
	if (f->type != FRAME_HELLO) {
		fault(g, "its first frame is no HELLO");
		return;
	}
	if (msg_hello_decode(&g->hello, payload, f->length, &err) < 0) {
		fault(g, err.message);
		return;
	}
	if (g->hello.role != ROLE_AGENT) {
		fault(g, "its HELLO is not an agent's");
		return;
	}
	event_del(&g->deadline);
	g->state = LINK_IDLE;
	g->owner->ready(g->owner_arg, g);
}

static void on_frame(struct stream *s, const struct frame *f, const uint8_t *raw)
{
	struct guest_link *g = container_of(s, struct guest_link, s);
	const char *why = "";

	if (g->state == LINK_HELLO) {
		on_hello(g, f, raw + HUTCH_FRAME_HEADER);
		return;
	}
	if (call_from_callee(&g->ends, f, &why) != CALL_TAKE) {
		fault(g, why);
		return;
	}
	g->answered = true;
	g->user->frame(g->user_arg, f, raw);
}

static void on_ended(struct stream *s, enum stream_end why, const struct hutch_error *err)
{
	struct guest_link *g = container_of(s, struct guest_link, s);

	if (why == STREAM_FAULT)
		fault(g, err->message);
	else
		fail(g, HUTCH_E_IO, ECONNRESET,
		     g->state == LINK_LINE ? "the connection to the agent was refused"
					   : "the connection to the agent was lost");
}

static void on_drained(struct stream *s)
{
	struct guest_link *g = container_of(s, struct guest_link, s);

	if (g->state == LINK_BUSY)
		g->user->drained(g->user_arg);
}

static const struct stream_ops stream_ops = {.frame = on_frame,
					     .ended = on_ended,
					     .drained = on_drained,
					     .bytes = on_bytes};

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct guest_link *g = arg;

	(void)fd;
	(void)what;
	fail(g, HUTCH_E_TIMEOUT, ETIMEDOUT,
	     g->state == LINK_LINE ? "the VMM did not answer CONNECT" : "the agent sent no HELLO");
}

/* Takes over fd. */
static struct guest_link *link_new(struct loop *l, int fd, enum link_state state,
				   const struct link_owner *owner, void *arg)
{
	struct guest_link *g = calloc(1, sizeof(*g));

	if (!g) {
		fd_close(&fd);
		return NULL;
	}
	g->state = state;
	g->owner = owner;
	g->owner_arg = arg;
	stream_open(&g->s, l, fd, &stream_ops);
	event_assign(&g->deadline, l->base, -1, 0, on_deadline, g);
	loop_timer(&g->deadline, GUEST_LINK_DEADLINE_MS);
	return g;
}

struct guest_link *guest_link_dial(struct loop *l, int rundir_fd, unsigned port,
				   const struct link_owner *owner, void *arg,
				   struct hutch_error *err)
{
	int fd = unix_connect(rundir_fd, "vsock", SOCK_STREAM);
	struct guest_link *g;
	char line[32];

	if (fd < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno,
				"cannot connect to the VMM's vsock socket: %s", strerror(errno));
		return NULL;
	}
	g = link_new(l, fd, LINK_LINE, owner, arg);
	if (!g) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a connection");
		return NULL;
	}
	g->s.raw = true;
	stream_send(&g->s, line, (size_t)snprintf(line, sizeof(line), "CONNECT %u\n", port));
	return g;
}

struct guest_link *guest_link_accept(struct loop *l, int fd, const struct link_owner *owner,
				     void *arg)
{
	struct guest_link *g = link_new(l, fd, LINK_HELLO, owner, arg);

	if (g && send_hello(g) < 0) {
		guest_link_close(g);
		return NULL;
	}
	return g;
}

void guest_link_set_owner(struct guest_link *g, const struct link_owner *owner, void *arg)
{
	g->owner = owner;
	g->owner_arg = arg;
}

void guest_link_take(struct guest_link *g, const struct link_user *user, void *arg)
{
	assert(g->state == LINK_IDLE);
	g->state = LINK_BUSY;
	g->answered = false;
	g->user = user;
	g->user_arg = arg;
}

/* May this be sent? */
static bool note_sent(struct guest_link *g, const uint8_t *raw)
{
	struct hutch_error err;
	const char *why = "";
	struct frame f;

	if (g->state != LINK_BUSY)
		return false;
	hutch_error_clear(&err);
	if (frame_decode(raw, &f, &err) < 0 || call_from_caller(&g->ends, &f, &why) == CALL_FAULT) {
		assert(!"a frame of our own breaks the protocol");
		return false;
	}
	return true;
}

void guest_link_send(struct guest_link *g, const uint8_t *raw, size_t len)
{
	if (note_sent(g, raw))
		stream_send(&g->s, raw, len);
}

void guest_link_pass(struct guest_link *g, struct stream *from, const uint8_t *raw, size_t len)
{
	if (note_sent(g, raw))
		stream_pass(&g->s, from, raw, len);
}

void guest_link_end_input(struct guest_link *g)
{
	const struct frame f = {.type = FRAME_STDIN, .flags = FRAME_END, .length = 0};
	uint8_t header[HUTCH_FRAME_HEADER];

	if (!g->ends.open || g->ends.caller_ended)
		return;
	frame_encode(header, &f);
	guest_link_send(g, header, sizeof(header));
}

bool guest_link_clean(const struct guest_link *g)
{
	return g->state == LINK_BUSY && !g->ends.open && !g->s.paused && !g->s.ended &&
	       !g->s.broken && stream_queued(&g->s) == 0;
}

void guest_link_release(struct guest_link *g)
{
	bool clean = guest_link_clean(g);

	if (g->state != LINK_BUSY)
		return;
	g->state = LINK_IDLE;
	g->used = true;
	g->user = NULL;
	g->user_arg = NULL;
	if (!clean)
		fail(g, HUTCH_E_IO, 0, "the connection to the agent cannot be used again");
}
