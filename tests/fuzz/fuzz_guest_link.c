/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's bytes against the broker's guest side: the OK line (first byte odd: none, as on a connection that the agent dialled),
 * HELLO, then the answers to a call. The second byte says how many bytes come at a time.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/hutchd/guest_link.h"
#include "host/hutchd/log.h"

static struct loop loop;
static struct guest_link *peer_link; /* NULL once it is dead */

static void on_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	(void)arg;
	(void)g;
	if (err->kind == HUTCH_OK || !err->message[0])
		abort();
	peer_link = NULL;
}

static void user_frame(void *arg, const struct frame *f, const uint8_t *raw)
{
	(void)arg;
	/* Every byte of it is there. */
	if (raw[4] != (uint8_t)f->type ||
	    (f->length && raw[HUTCH_FRAME_HEADER + f->length - 1] > 255))
		abort();
	guest_link_end_input(peer_link);
}

static void user_lost(void *arg, const struct hutch_error *err)
{
	on_lost(arg, peer_link, err);
}

static void user_drained(void *arg)
{
	(void)arg;
}

static const struct link_user user = {user_frame, user_lost, user_drained};

static void on_ready(void *arg, struct guest_link *g)
{
	static const struct msg_call ping = {.method = "ping"};
	struct mp_buf b;

	guest_link_take(g, &user, arg);
	mp_buf_init(&b, 256);
	if (msg_call_encode(&b, &ping, 0) < 0)
		abort();
	guest_link_send(g, b.data, b.len);
	mp_buf_free(&b);
}

static const struct link_owner owner = {on_ready, on_lost};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t sink[4096];
	size_t step;
	int pair[2];

	if (!loop.base) {
		log_setup("fuzz", LOG_LEVEL_ERROR + 1, 0);
		if (loop_init(&loop) < 0)
			abort();
	}
	if (size < 3 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
		return 0;
	peer_link = guest_link_accept(&loop, pair[0], &owner, NULL);
	if (!peer_link)
		abort();
	if (!(data[0] & 1)) {
		peer_link->state = LINK_LINE;
		peer_link->s.raw = true;
	}
	step = data[1] ? data[1] : size;
	for (size_t at = 2; at < size && peer_link; at += step) {
		size_t n = size - at < step ? size - at : step;

		if (send(pair[1], data + at, n, MSG_NOSIGNAL) < 0)
			break;
		event_base_loop(loop.base, EVLOOP_NONBLOCK);
		while (read(pair[1], sink, sizeof(sink)) > 0)
			;
		if (peer_link && guest_link_clean(peer_link)) {
			guest_link_release(peer_link);
			on_ready(NULL, peer_link);
		}
	}
	close(pair[1]);
	event_base_loop(loop.base, EVLOOP_NONBLOCK);
	guest_link_close(peer_link);
	event_base_loop(loop.base, EVLOOP_NONBLOCK);
	return 0;
}
