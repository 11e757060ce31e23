/* SPDX-License-Identifier: Apache-2.0 */
/* Framed streams: every split, back-pressure, the ways a peer can end. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/broker_rig.h"

struct probe {
	struct stream s;
	unsigned frames, drained, ended;
	enum stream_end why;
	uint32_t lengths[64];
	uint64_t sum; /* of all payload bytes */
	bool pause_each;
};

static struct loop loop;
static struct probe p;
static int peer;

static void on_frame(struct stream *s, const struct frame *f, const uint8_t *raw)
{
	if (p.frames < 64)
		p.lengths[p.frames] = f->length;
	p.frames++;
	for (uint32_t i = 0; i < f->length; i++)
		p.sum += raw[HUTCH_FRAME_HEADER + i];
	if (p.pause_each)
		stream_pause(s);
}

static void on_ended(struct stream *s, enum stream_end why, const struct hutch_error *err)
{
	(void)s;
	ck_assert((why == STREAM_FAULT) == (err != NULL));
	p.ended++;
	p.why = why;
}

static void on_drained(struct stream *s)
{
	(void)s;
	p.drained++;
}

static const struct stream_ops ops = {.frame = on_frame, .ended = on_ended, .drained = on_drained};

/* ---- passing on ---- */

static struct stream to; /* what p's frames are passed on to */
static int to_peer;
static unsigned sends; /* to it */
static const uint8_t
	*say_after; /* a byte that to's owner sends itself behind every frame, or NULL */

ssize_t __real_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t len, int flags)
{
	sends += to.fd >= 0 && fd == to.fd;
	return __real_send(fd, data, len, flags);
}

static void pass_on(struct stream *s, const struct frame *f, const uint8_t *raw)
{
	stream_pass(&to, s, raw, HUTCH_FRAME_HEADER + (size_t)f->length);
	if (say_after)
		stream_send(&to, say_after, 1);
}

static const struct stream_ops passing_ops = {.frame = pass_on,
					      .ended = on_ended,
					      .drained = on_drained};

static void turn(void)
{
	for (int i = 0; i < 8; i++)
		event_base_loop(loop.base, EVLOOP_NONBLOCK);
}

static void setup(void)
{
	int pair[2];

	ck_assert_int_eq(loop_init(&loop), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	peer = pair[1];
	memset(&p, 0, sizeof(p));
	stream_open(&p.s, &loop, pair[0], &ops);
}

static void teardown(void)
{
	stream_close(&p.s);
	stream_release(&p.s);
	loop_free(&loop);
	close(peer);
}

static void setup_passing(void)
{
	int pair[2];

	setup();
	p.s.ops = &passing_ops;
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	to_peer = pair[1];
	stream_open(&to, &loop, pair[0], &ops);
	sends = 0;
	say_after = NULL;
}

static void teardown_passing(void)
{
	stream_close(&to);
	stream_release(&to);
	close(to_peer);
	teardown();
}

static size_t read_all(int fd, uint8_t *data, size_t size)
{
	size_t got = 0;
	ssize_t n;

	while (got < size && (n = read(fd, data + got, size - got)) > 0)
		got += (size_t)n;
	return got;
}

/* count EVENT frames, each of one byte of its own. */
static size_t put_events(uint8_t *out, unsigned count)
{
	const struct frame f = {.type = FRAME_EVENT, .length = 1};
	size_t at = 0;

	for (unsigned i = 0; i < count; i++) {
		frame_encode(out + at, &f);
		at += HUTCH_FRAME_HEADER;
		out[at++] = (uint8_t)i;
	}
	return at;
}

START_TEST(what_came_at_once_leaves_at_once)
{
	static uint8_t in[200 * (HUTCH_FRAME_HEADER + 1)], out[2 * sizeof(in)];
	size_t len = put_events(in, 200);

	peer_raw(peer, in, len);
	turn();
	ck_assert_uint_eq(sends, 1);
	ck_assert_uint_eq(read_all(to_peer, out, sizeof(out)), len);
	ck_assert_mem_eq(out, in, len);
	/* A piece of a frame waits for the rest, and what was whole does not wait for it. */
	peer_raw(peer, in, len - 3);
	turn();
	ck_assert_uint_eq(read_all(to_peer, out, sizeof(out)), len - HUTCH_FRAME_HEADER - 1);
	peer_raw(peer, in + len - 3, 3);
	turn();
	ck_assert_uint_eq(read_all(to_peer, out, sizeof(out)), HUTCH_FRAME_HEADER + 1);
	ck_assert_uint_eq(sends, 3);
	ck_assert_uint_eq(stream_queued(&to), 0);
}
END_TEST

START_TEST(order_is_kept_with_what_the_owner_sends)
{
	static uint8_t in[5 * (HUTCH_FRAME_HEADER + 1)], out[2 * sizeof(in)];
	const uint8_t mark = 0xEE;
	size_t len = put_events(in, 5);

	say_after = &mark;
	peer_raw(peer, in, len);
	turn();
	ck_assert_uint_eq(read_all(to_peer, out, sizeof(out)), len + 5);
	for (size_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(out[i * 10 + 8], i);
		ck_assert_uint_eq(out[i * 10 + 9], mark);
	}
}
END_TEST

/* Broken bytes behind good frames: those are sent before the source's owner hears of it. */
START_TEST(what_came_before_a_fault_is_sent)
{
	uint8_t in[2 * (HUTCH_FRAME_HEADER + 1)], out[64];
	size_t len = put_events(in, 2);

	in[HUTCH_FRAME_HEADER + 1 + 6] = 1; /* reserved */
	peer_raw(peer, in, len);
	turn();
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_uint_eq(read_all(to_peer, out, sizeof(out)), HUTCH_FRAME_HEADER + 1);
}
END_TEST

START_TEST(a_slow_receiver_stops_the_source)
{
	static uint8_t in[2000 * (HUTCH_FRAME_HEADER + 1)], out[sizeof(in)];
	size_t len = put_events(in, 2000), sent = 0, got = 0;
	int idle = 0;

	while (idle < 3) {
		ssize_t n = write(peer, in + sent % len, len - sent % len);

		sent += n > 0 ? (size_t)n : 0;
		idle = n > 0 ? 0 : idle + 1;
		turn();
		ck_assert_uint_le(stream_queued(&to), STREAM_HIGH + HUTCH_FRAME_HEADER + 1);
	}
	ck_assert(p.s.paused && p.drained == 0);
	for (idle = 0; idle < 3; idle++) {
		size_t n = read_all(to_peer, out, len - got % len);

		ck_assert_mem_eq(out, in + got % len, n);
		got += n;
		if (n)
			idle = 0;
		turn();
		if (stream_queued(&to) <= STREAM_LOW)
			stream_resume(&p.s);
		turn();
	}
	ck_assert_uint_eq(got + stream_unread(&p.s), sent);
}
END_TEST

START_TEST(a_receiver_that_is_gone)
{
	uint8_t in[2 * (HUTCH_FRAME_HEADER + 1)];
	size_t len = put_events(in, 2);

	close(to_peer);
	for (int i = 0; i < 3; i++) {
		peer_raw(peer, in, len);
		turn();
	}
	ck_assert_uint_eq(stream_queued(&to), 0);
	stream_close(&to);
	peer_raw(peer, in, len);
	turn();
	ck_assert(!p.s.paused && p.s.fd >= 0 && stream_unread(&p.s) == 0);
	to_peer = dup(peer);
}
END_TEST

/* Three frames, cut in two at every byte. */
START_TEST(split_at_every_byte)
{
	uint8_t bytes[3 * HUTCH_FRAME_HEADER + 1 + 300];
	const uint32_t lengths[] = {1, 0, 300};
	size_t at = 0;

	for (int i = 0; i < 3; i++) {
		const struct frame f = {.type = FRAME_STDOUT, .length = lengths[i]};

		frame_encode(bytes + at, &f);
		at += HUTCH_FRAME_HEADER;
		memset(bytes + at, i + 1, lengths[i]);
		at += lengths[i];
	}
	for (size_t cut = 0; cut <= at; cut++) {
		p.frames = 0;
		p.sum = 0;
		peer_raw(peer, bytes, cut);
		turn();
		peer_raw(peer, bytes + cut, at - cut);
		turn();
		ck_assert_uint_eq(p.frames, 3);
		ck_assert_uint_eq(p.lengths[2], 300);
		ck_assert_uint_eq(p.sum, 1 + 300 * 3);
		ck_assert_uint_eq(stream_unread(&p.s), 0);
	}
}
END_TEST

START_TEST(paused_between_frames)
{
	p.pause_each = true;
	for (int i = 0; i < 3; i++)
		peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	for (unsigned i = 1; i <= 3; i++) {
		turn();
		ck_assert_uint_eq(p.frames, i);
		stream_resume(&p.s);
	}
	turn();
	ck_assert_uint_eq(p.frames, 3);
	ck_assert_uint_eq(stream_unread(&p.s), 0);
}
END_TEST

/* The queue takes what the socket does not, and tells when it is low. */
START_TEST(back_pressure)
{
	static uint8_t data[HUTCH_FRAME_HEADER + 60000];
	const struct frame f = {.type = FRAME_STDOUT, .length = 60000};
	size_t sent = 0, got = 0;
	ssize_t n;

	frame_encode(data, &f);
	while (stream_queued(&p.s) <= STREAM_HIGH) {
		stream_send(&p.s, data, sizeof(data));
		sent += sizeof(data);
	}
	ck_assert_uint_lt(stream_queued(&p.s), STREAM_HIGH + sizeof(data) + 1);
	ck_assert_uint_eq(p.drained, 0);
	while (got < sent) {
		while ((n = read(peer, data, sizeof(data))) > 0)
			got += (size_t)n;
		turn();
	}
	ck_assert_uint_eq(got, sent);
	ck_assert_uint_ge(p.drained, 1);
	ck_assert_uint_eq(stream_queued(&p.s), 0);
}
END_TEST

START_TEST(end_between_frames)
{
	peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	close(peer);
	turn();
	ck_assert_uint_eq(p.frames, 1);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_EOF);
	ck_assert(stream_peer_closed(&p.s));
}
END_TEST

START_TEST(end_inside_a_frame)
{
	peer_raw(peer, "\0\0\0\5\x10\0\0\0ab", 10);
	turn();
	close(peer);
	turn();
	ck_assert_uint_eq(p.frames, 0);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_GONE);
}
END_TEST

START_TEST(half_close_then_close)
{
	p.s.watch_gone = true;
	shutdown(peer, SHUT_WR);
	turn();
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_EOF);
	ck_assert(!stream_peer_closed(&p.s));
	stream_send(&p.s, "\0\0\0\0\x11\0\0\0", 8);
	turn();
	ck_assert_uint_eq(p.ended, 1);
	close(peer);
	turn();
	ck_assert_uint_eq(p.ended, 2);
	ck_assert_int_eq(p.why, STREAM_GONE);
}
END_TEST

/* A paused stream notices a peer that goes, also behind bytes that nobody reads; and does not spin on a half-close. */
START_TEST(gone_while_paused)
{
	p.s.watch_gone = true;
	stream_pause(&p.s);
	peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	shutdown(peer, SHUT_WR);
	turn();
	ck_assert_uint_eq(p.ended, 0);
	ck_assert_int_eq(event_base_loop(loop.base, EVLOOP_NONBLOCK), 0);
	close(peer);
	turn();
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_GONE);
	ck_assert_uint_eq(p.frames, 0);
}
END_TEST

START_TEST(half_close_while_paused_then_read)
{
	p.s.watch_gone = true;
	stream_pause(&p.s);
	peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	shutdown(peer, SHUT_WR);
	turn();
	stream_resume(&p.s);
	turn();
	ck_assert_uint_eq(p.frames, 1);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_EOF);
}
END_TEST

/* What the peer said before it closed is heard, although a write has failed already. */
START_TEST(write_failure_comes_behind_what_was_read)
{
	peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	close(peer);
	stream_send(&p.s, "\0\0\0\0\x11\0\0\0", 8);
	ck_assert_uint_eq(p.ended, 0);
	turn();
	ck_assert_uint_eq(p.frames, 1);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_GONE);
}
END_TEST

START_TEST(bad_header)
{
	peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	peer_raw(peer, "\0\0\0\0\x63\0\0\0", 8);
	peer_send(peer, FRAME_STDIN, 0, "abc", 3);
	turn();
	ck_assert_uint_eq(p.frames, 1);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.why, STREAM_FAULT);
}
END_TEST

/* A header that promises a megabyte makes nothing be allocated before the bytes come. */
START_TEST(promised_length_costs_nothing)
{
	peer_raw(peer, "\0\x10\0\0\2\0\0\0x", 9);
	turn();
	ck_assert_uint_eq(stream_unread(&p.s), 9);
	ck_assert_uint_le(p.s.in.cap, 512);
	peer_raw(peer, "y", 1);
	turn();
	ck_assert_uint_le(p.s.in.cap, 32u << 10);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stream");
	TCase *t = tcase_create("stream"), *passing = tcase_create("passing");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, split_at_every_byte);
	tcase_add_test(t, paused_between_frames);
	tcase_add_test(t, back_pressure);
	tcase_add_test(t, end_between_frames);
	tcase_add_test(t, end_inside_a_frame);
	tcase_add_test(t, half_close_then_close);
	tcase_add_test(t, gone_while_paused);
	tcase_add_test(t, half_close_while_paused_then_read);
	tcase_add_test(t, write_failure_comes_behind_what_was_read);
	tcase_add_test(t, bad_header);
	tcase_add_test(t, promised_length_costs_nothing);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(passing, setup_passing, teardown_passing);
	tcase_add_test(passing, what_came_at_once_leaves_at_once);
	tcase_add_test(passing, order_is_kept_with_what_the_owner_sends);
	tcase_add_test(passing, what_came_before_a_fault_is_sent);
	tcase_add_test(passing, a_slow_receiver_stops_the_source);
	tcase_add_test(passing, a_receiver_that_is_gone);
	suite_add_tcase(s, passing);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
