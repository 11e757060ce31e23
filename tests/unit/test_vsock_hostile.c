/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile driver against the whole device: broken rings, broken protocol, floods; and that it
 * recovers on reset.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/harness/fake_guest.h"

static struct fake_guest fg;
static struct fg_conn conn;
static int host;
static int err_fd;
static uint8_t buf[FG_MAX_PAYLD];

static int connect_to_guest(struct fg_conn *c, uint32_t port)
{
	char line[32];
	int sv[2];
	ssize_t n = snprintf(line, sizeof(line), "CONNECT %u\n", port);

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
	ck_assert_int_eq(send(sv[0], line, (size_t)n, 0), n);
	ck_assert_int_eq(vsock_dev_adopt(fg.dev, sv[1]), 0);
	fg_accept(&fg, c, port);
	ck_assert_int_gt(recv(sv[0], line, sizeof(line), 0), 4);
	return sv[0];
}

static void setup_with(const struct fg_opts *opts, const struct vsock_config *cfg)
{
	fg_init(&fg, opts);
	fg_create_device(&fg, cfg);
	err_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ck_assert_int_eq(vsock_dev_set_err(fg.dev, VSOCK_QUEUE_RX, err_fd), 0);
	ck_assert_int_eq(vsock_dev_set_err(fg.dev, VSOCK_QUEUE_TX, err_fd), 0);
	ck_assert_int_eq(fg_start(&fg), 0);
	conn = (struct fg_conn){0};
	host = connect_to_guest(&conn, 520);
}

static void setup(void)
{
	setup_with(&(struct fg_opts){.num = 16,
				     .event_idx = true,
				     .rx = FG_INDIRECT,
				     .tx = FG_INDIRECT},
		   NULL);
}

static void teardown(void)
{
	close(host);
	close(err_fd);
	fg_free(&fg);
}

static bool host_sees_end(int fd)
{
	char c;
	ssize_t n = recv(fd, &c, 1, MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno == ECONNRESET);
}

static struct vsock_stats stats(void)
{
	struct vsock_stats st;

	vsock_dev_stats(fg.dev, &st);
	return st;
}

/* ---- rings ---- */

/*
 * After a ring broke: the host's peers are told, nothing is served, and a reset by the driver heals
 * it.
 */
static void expect_broken_and_healed(const char *why)
{
	uint64_t events = 0;
	struct fg_conn c = {0};
	int fd, sv[2];

	fg_pump(&fg);
	ck_assert_ptr_nonnull(stats().broken);
	ck_assert_msg(strstr(stats().broken, why), "%s, not %s", stats().broken, why);
	ck_assert(host_sees_end(host));
	ck_assert_uint_eq(stats().conns, 0);
	ck_assert_int_eq(read(err_fd, &events, sizeof(events)), sizeof(events));
	/* It stays so, quietly, however often the guest kicks. */
	for (int i = 0; i < 10; i++) {
		uint64_t one = 1;

		ck_assert_int_eq(write(fg.ring[VSOCK_QUEUE_TX].kick, &one, 8), 8);
		ck_assert_int_eq(write(fg.ring[VSOCK_QUEUE_RX].kick, &one, 8), 8);
		fg_pump(&fg);
	}
	ck_assert_int_eq(read(err_fd, &events, sizeof(events)), -1);
	ck_assert_ptr_nonnull(strstr(fg.log, why));
	ck_assert_ptr_null(strstr(strstr(fg.log, why) + 1, why));
	/* A new peer is refused at once. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	ck_assert_int_eq(send(sv[0], "CONNECT 5\n", 10, 0), 10);
	ck_assert_int_eq(vsock_dev_adopt(fg.dev, sv[1]), 0);
	fg_pump(&fg);
	ck_assert(host_sees_end(sv[0]));
	close(sv[0]);
	/* Stop and start change nothing; a reset does. */
	fg_stop(&fg);
	ck_assert_int_eq(vsock_dev_run(fg.dev, true), 0);
	fg_pump(&fg);
	ck_assert_ptr_nonnull(stats().broken);
	fg_stop(&fg);
	fg_reset_rings(&fg);
	ck_assert_int_eq(fg_start(&fg), 0);
	fd = connect_to_guest(&c, 9);
	ck_assert_int_eq(send(fd, "hello", 5, 0), 5);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &c, buf, sizeof(buf), true), 5);
	ck_assert_ptr_null(stats().broken);
	close(fd);
}

enum { FREE_DESC = 3 }; /* in a ring that was just started, no chain of the driver's uses it */

static void offer(unsigned queue, uint16_t head)
{
	fg_offer(&fg, queue, head);
	fg_kick(&fg, queue);
}

START_TEST(tx_short_packet)
{
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, fg.buf[1], VSOCK_HDR_BYTES - 1, 0, 0);
	offer(VSOCK_QUEUE_TX, FREE_DESC);
	expect_broken_and_healed("shorter than its header");
}
END_TEST

START_TEST(tx_empty_packet)
{
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, 0, 0, 0, 0);
	offer(VSOCK_QUEUE_TX, FREE_DESC);
	expect_broken_and_healed("shorter than its header");
}
END_TEST

START_TEST(tx_writable_buffer)
{
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, fg.buf[1], 100, VRING_DESC_F_WRITE, 0);
	offer(VSOCK_QUEUE_TX, FREE_DESC);
	expect_broken_and_healed("wrong direction");
}
END_TEST

START_TEST(tx_outside_memory)
{
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, fg.end - 10, 100, 0, 0);
	offer(VSOCK_QUEUE_TX, FREE_DESC);
	expect_broken_and_healed("outside memory");
}
END_TEST

START_TEST(tx_loop)
{
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, fg.buf[1], 100, VRING_DESC_F_NEXT, FREE_DESC);
	offer(VSOCK_QUEUE_TX, FREE_DESC);
	expect_broken_and_healed("loop");
}
END_TEST

START_TEST(tx_index_ahead)
{
	for (int i = 0; i < 40; i++)
		fg_offer(&fg, VSOCK_QUEUE_TX, FREE_DESC);
	fg_kick(&fg, VSOCK_QUEUE_TX);
	expect_broken_and_healed("ahead");
}
END_TEST

/* For the receive queue: the next buffer that the device will take is replaced by a bad one. */
static void spoil_next_rx(uint64_t addr, uint32_t len, uint16_t flags)
{
	uint16_t next = fg_used_idx(&fg, VSOCK_QUEUE_RX);
	uint16_t head = *(uint16_t *)fg_ptr(&fg, fg.ring[0].avail + 4 + 2 * (next % 16U), 2);

	fg_desc(&fg, VSOCK_QUEUE_RX, head, addr, len, flags, 0);
	ck_assert_int_eq(send(host, "data", 4, 0), 4);
}

START_TEST(rx_readable_buffer)
{
	spoil_next_rx(fg.buf[0], 4140, 0);
	expect_broken_and_healed("wrong direction");
}
END_TEST

START_TEST(rx_outside_memory)
{
	spoil_next_rx(fg.end - 100, 4140, VRING_DESC_F_WRITE);
	expect_broken_and_healed("outside memory");
}
END_TEST

START_TEST(rx_without_room)
{
	spoil_next_rx(fg.buf[0], (uint32_t)_i, VRING_DESC_F_WRITE);
	expect_broken_and_healed("no room");
}
END_TEST

START_TEST(rx_bad_behind_good)
{
	uint16_t next = (uint16_t)(fg_used_idx(&fg, VSOCK_QUEUE_RX) + 2);
	uint16_t head = *(uint16_t *)fg_ptr(&fg, fg.ring[0].avail + 4 + 2 * (next % 16U), 2);

	fg_desc(&fg, VSOCK_QUEUE_RX, head, 0, 10000, VRING_DESC_F_WRITE, 0);
	ck_assert_int_eq(send(host, buf, 60000, 0), 60000);
	fg_pump(&fg);
	expect_broken_and_healed("outside memory");
}
END_TEST

START_TEST(memory_is_taken_away)
{
	struct gmem_region small = {FG_GPA, 4096, (uint64_t)(uintptr_t)fg.region[0].hva};

	/* The table is the VMM's word: what it no longer holds is not touched from then on. */
	ck_assert_int_eq(vsock_dev_set_mem(fg.dev, &small, 1), 0);
	ck_assert_int_eq(send(host, "data", 4, 0), 4);
	expect_broken_and_healed("memory");
}
END_TEST

START_TEST(one_bad_guest_log)
{
	/* A guest that breaks its ring for ever does not fill the log. */
	for (int i = 0; i < 300; i++) {
		fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, 0, 100, 0, 0);
		offer(VSOCK_QUEUE_TX, FREE_DESC);
		fg_pump(&fg);
		ck_assert_ptr_nonnull(stats().broken);
		fg_stop(&fg);
		fg_reset_rings(&fg);
		ck_assert_int_eq(fg_start(&fg), 0);
		fg.log[sizeof(fg.log) / 2] = '\0';
	}
	ck_assert_ptr_null(strstr(fg.log, "nothing"));
	fg.log[0] = '\0';
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, 0, 100, 0, 0);
	offer(VSOCK_QUEUE_TX, FREE_DESC);
	fg_pump(&fg);
	ck_assert_str_eq(fg.log, "");
}
END_TEST

/* ---- packets ---- */

/* The device answers RST to p, and to nobody else. */
static void expect_rst(const struct packet *p)
{
	struct packet answer;

	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &answer, NULL));
	ck_assert_uint_eq(answer.op, VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(answer.src_cid, p->dst_cid);
	ck_assert_uint_eq(answer.src_port, p->dst_port);
	ck_assert_uint_eq(answer.dst_port, p->src_port);
	fg_pump(&fg);
	ck_assert(!fg_recv(&fg, &answer, NULL));
}

static void expect_silence(void)
{
	struct packet answer;

	fg_pump(&fg);
	ck_assert(!fg_recv(&fg, &answer, NULL));
}

static void expect_conn_alive(void)
{
	ck_assert_uint_eq(stats().conns, 1);
	ck_assert_int_eq(send(host, "alive?", 6, 0), 6);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, buf, sizeof(buf), true), 6);
	fg_pump(&fg);
}

START_TEST(no_such_connection)
{
	struct packet p = fg_header(&conn, (uint16_t)_i);

	p.src_port = 4711;
	ck_assert(fg_send(&fg, &p, NULL));
	if (_i == VIRTIO_VSOCK_OP_RST)
		expect_silence();
	else
		expect_rst(&p);
	expect_conn_alive();
}
END_TEST

START_TEST(foreign_source_cid)
{
	static const uint64_t cids[] = {0,	    1,		2,	    3,
					FG_CID + 1, UINT32_MAX, UINT64_MAX, FG_CID | 1ULL << 32};
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_RST);

	p.src_cid = cids[_i];
	ck_assert(fg_send(&fg, &p, NULL));
	expect_silence();
	ck_assert_uint_eq(stats().bad_cid, 1);
	expect_conn_alive();
}
END_TEST

START_TEST(foreign_destination_cid)
{
	static const uint64_t cids[] = {0, 1, 3, FG_CID, UINT32_MAX, UINT64_MAX};
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_SHUTDOWN);

	p.dst_cid = cids[_i];
	p.flags = 3;
	ck_assert(fg_send(&fg, &p, NULL));
	expect_rst(&p);
	expect_conn_alive();
}
END_TEST

START_TEST(foreign_type)
{
	static const uint16_t types[] = {0, 2, 3, UINT16_MAX};
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_RW);

	p.type = types[_i];
	ck_assert(fg_send(&fg, &p, NULL));
	expect_rst(&p);
	expect_conn_alive();
}
END_TEST

/* Breaches on a connection: it is reset, its host end closed, and only it. */
static void expect_violation(const char *what)
{
	fg_pump(&fg);
	fg_conn_recv(&fg, &conn, buf, sizeof(buf), false);
	ck_assert(conn.reset);
	ck_assert(host_sees_end(host));
	ck_assert_uint_eq(stats().violations, 1);
	ck_assert_uint_eq(stats().conns, 0);
	ck_assert_msg(strstr(fg.log, what), "%s", fg.log);
}

START_TEST(bad_operation)
{
	static const uint16_t ops[] = {0, VIRTIO_VSOCK_OP_REQUEST, 8, 9, 255, UINT16_MAX};

	fg_op(&fg, &conn, ops[_i], 0);
	expect_violation("no connection has");
}
END_TEST

START_TEST(answer_twice)
{
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_RESPONSE, 0);
	expect_violation("answered twice");
}
END_TEST

START_TEST(header_longer_than_packet)
{
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_RW);

	p.len = 1000;
	ck_assert(fg_send(&fg, &p, NULL));
	expect_violation("longer than its packet");
}
END_TEST

START_TEST(data_after_shutdown)
{
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_RW);

	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
	p.len = 4;
	ck_assert(fg_send(&fg, &p, "late"));
	fg_pump(&fg);
	expect_violation("after its shutdown");
}
END_TEST

START_TEST(nothing_before_the_answer)
{
	struct fg_conn c = {0};
	struct packet p;
	int sv[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	ck_assert_int_eq(send(sv[0], "CONNECT 5\n", 10, 0), 10);
	ck_assert_int_eq(vsock_dev_adopt(fg.dev, sv[1]), 0);
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	c = (struct fg_conn){.host_port = p.src_port, .guest_port = p.dst_port};
	p = fg_header(&c, _i ? VIRTIO_VSOCK_OP_SHUTDOWN : VIRTIO_VSOCK_OP_RW);
	p.len = _i ? 0 : 4;
	p.flags = 3;
	ck_assert(fg_send(&fg, &p, _i ? NULL : "data"));
	expect_rst(&p);
	ck_assert(host_sees_end(sv[0]));
	expect_conn_alive();
	close(sv[0]);
}
END_TEST

START_TEST(answer_to_the_unasked)
{
	struct fg_conn c = {.guest_port = 5};
	struct packet p = {0};
	uint16_t used;
	int sv[2];

	/*
	 * No receive buffer is left, so the REQUEST can't have been sent; the guest guesses its
	 * ports and answers.
	 */
	teardown();
	setup_with(
		&(struct fg_opts){.num = 16, .event_idx = true, .rx = FG_INDIRECT, .rx_buffers = 1},
		NULL);
	ck_assert_int_eq(send(host, "x", 1, 0), 1);
	fg_pump(&fg);
	used = fg_used_idx(&fg, VSOCK_QUEUE_RX);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	ck_assert_int_eq(send(sv[0], "CONNECT 5\n", 10, 0), 10);
	ck_assert_int_eq(vsock_dev_adopt(fg.dev, sv[1]), 0);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_used_idx(&fg, VSOCK_QUEUE_RX), used);
	c.host_port = conn.host_port + 1;
	fg_op(&fg, &c, VIRTIO_VSOCK_OP_RESPONSE, 0);
	fg_pump(&fg);
	ck_assert(host_sees_end(sv[0]));
	ck_assert_uint_eq(stats().violations, 1);
	(void)p;
	close(sv[0]);
}
END_TEST

/* ---- floods ---- */

START_TEST(flood_of_refusals)
{
	unsigned sent = 0, answered = 0;
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_SHUTDOWN);

	/*
	 * Packets to nobody, and no receive buffer given back: the device stops reading rather than
	 * keep answers.
	 */
	for (int round = 0; round < 100; round++) {
		p.src_port = 1000 + sent;
		while (fg_send(&fg, &p, NULL))
			p.src_port = 1000 + ++sent;
		fg_pump(&fg);
	}
	ck_assert_uint_ge(sent, 128);
	ck_assert_uint_le(sent, 128 + 2 * 16);
	/* Then it takes them, and every one is answered, in order. */
	while (fg_recv(&fg, &p, NULL)) {
		ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_RST);
		ck_assert_uint_eq(p.dst_port, 1000 + answered);
		answered++;
		fg_pump(&fg);
	}
	ck_assert_uint_eq(answered, sent);
	expect_conn_alive();
}
END_TEST

START_TEST(flood_of_credit_requests)
{
	struct packet p;
	unsigned answers = 0;

	for (int round = 0; round < 1000; round++) {
		fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
		if (round % 8 == 7)
			fg_pump(&fg);
	}
	while (fg_recv(&fg, &p, NULL)) {
		ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		answers++;
		fg_pump(&fg);
	}
	ck_assert_uint_le(
		answers,
		16 + 2); /* the ring's buffers, and what was owed at the end: no queue of them */
	expect_conn_alive();
}
END_TEST

START_TEST(flood_of_dials)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct vsock_config cfg = {.listen_fd = -1, .max_conns = 40};
	char dir[] = "/tmp/test_vsock_XXXXXX";
	struct fg_conn c;
	char prefix[64];
	unsigned opened = 0;
	int l;

	teardown();
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(prefix, sizeof(prefix), "%s/vsock", dir);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s_521", prefix);
	l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(l, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(l, 1000), 0);
	cfg.dial_prefix = prefix;
	setup_with(&(struct fg_opts){.num = 16, .event_idx = true, .rx = FG_INDIRECT}, &cfg);
	for (uint32_t i = 0; i < 200; i++) {
		c = (struct fg_conn){.host_port = 521, .guest_port = i};
		fg_op(&fg, &c, VIRTIO_VSOCK_OP_REQUEST, 0);
		fg_pump(&fg);
		fg_conn_recv(&fg, &c, NULL, 0, false);
		ck_assert(c.open != c.reset);
		opened += c.open;
	}
	ck_assert_uint_eq(opened, 39);
	ck_assert_uint_eq(stats().conns, 40);
	unlink(sa.sun_path);
	rmdir(dir);
	close(l);
}
END_TEST

/* A long chain of descriptors in every packet: the work of one pass stays bounded. */
START_TEST(descriptor_bombs)
{
	uint64_t table = fg.buf[1] + 4 * FG_MAX_PAYLD;
	struct virtio_vsock_hdr hdr;
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	uint16_t before;

	packet_encode(&hdr, &p);
	fg_write(&fg, fg.buf[1], &hdr, sizeof(hdr));
	for (unsigned i = 0; i < 1023; i++) {
		struct vring_desc d = {.addr = fg.buf[1],
				       .len = i == 0 ? 44 : 1,
				       .flags = VRING_DESC_F_NEXT,
				       .next = (uint16_t)(i + 1)};

		if (i == 1022)
			d.flags = 0;
		fg_write(&fg, table + i * sizeof(d), &d, sizeof(d));
	}
	fg_desc(&fg, VSOCK_QUEUE_TX, FREE_DESC, table, 1023 * 16, VRING_DESC_F_INDIRECT, 0);
	for (int i = 0; i < 16; i++)
		fg_offer(&fg, VSOCK_QUEUE_TX, FREE_DESC);
	before = fg_used_idx(&fg, VSOCK_QUEUE_TX);
	vsock_dev_service(fg.dev);
	ck_assert_uint_eq((uint16_t)(fg_used_idx(&fg, VSOCK_QUEUE_TX) - before), 2);
	fg_pump(&fg);
	ck_assert_uint_eq((uint16_t)(fg_used_idx(&fg, VSOCK_QUEUE_TX) - before), 16);
	ck_assert_ptr_null(stats().broken);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vsock_hostile");
	TCase *t = tcase_create("rings");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, tx_short_packet);
	tcase_add_test(t, tx_empty_packet);
	tcase_add_test(t, tx_writable_buffer);
	tcase_add_test(t, tx_outside_memory);
	tcase_add_test(t, tx_loop);
	tcase_add_test(t, tx_index_ahead);
	tcase_add_test(t, rx_readable_buffer);
	tcase_add_test(t, rx_outside_memory);
	tcase_add_loop_test(t, rx_without_room, 0, VSOCK_HDR_BYTES + 1);
	tcase_add_test(t, rx_bad_behind_good);
	tcase_add_test(t, memory_is_taken_away);
	tcase_add_test(t, one_bad_guest_log);
	suite_add_tcase(s, t);
	t = tcase_create("packets");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, no_such_connection, 0, 9);
	tcase_add_loop_test(t, foreign_source_cid, 0, 8);
	tcase_add_loop_test(t, foreign_destination_cid, 0, 6);
	tcase_add_loop_test(t, foreign_type, 0, 4);
	tcase_add_loop_test(t, bad_operation, 0, 6);
	tcase_add_test(t, answer_twice);
	tcase_add_test(t, header_longer_than_packet);
	tcase_add_test(t, data_after_shutdown);
	tcase_add_loop_test(t, nothing_before_the_answer, 0, 2);
	tcase_add_test(t, answer_to_the_unasked);
	tcase_add_test(t, flood_of_refusals);
	tcase_add_test(t, flood_of_credit_requests);
	tcase_add_test(t, flood_of_dials);
	tcase_add_test(t, descriptor_bombs);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
