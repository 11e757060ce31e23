/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that flow: every buffer layout, bulk both ways, credit, half-close, reset, stop and
 * start, fairness.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vsock/conn.h"
#include "tests/harness/fake_guest.h"

#define MIB 1048576U

static struct fake_guest fg;
static struct fg_conn conn;
static int host; /* the host's end of conn */

static uint8_t buf[2 * MIB];

static int connect_to_guest(struct fg_conn *c, uint32_t port)
{
	char line[32];
	int sv[2];
	ssize_t n = snprintf(line, sizeof(line), "CONNECT %u\n", port);

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
	ck_assert_int_eq(send(sv[0], line, (size_t)n, 0), n);
	ck_assert_int_eq(vsock_dev_adopt(fg.dev, sv[1]), 0);
	fg_accept(&fg, c, port);
	n = recv(sv[0], line, sizeof(line) - 1, 0);
	ck_assert_int_gt(n, 4);
	line[n] = '\0';
	ck_assert_uint_eq(strtoul(line + 3, NULL, 10), c->host_port);
	return sv[0];
}

static void setup_with(const struct fg_opts *opts)
{
	fg_init(&fg, opts);
	fg_create_device(&fg, NULL);
	ck_assert_int_eq(fg_start(&fg), 0);
	conn = (struct fg_conn){0};
	host = connect_to_guest(&conn, 520);
}

static void setup(void)
{
	setup_with(&(struct fg_opts){.event_idx = true, .rx = FG_INDIRECT, .tx = FG_INDIRECT});
}

static void teardown(void)
{
	close(host);
	fg_free(&fg);
}

static void again_with(const struct fg_opts *opts)
{
	teardown();
	setup_with(opts);
}

static uint8_t pattern(uint64_t i)
{
	return (uint8_t)((i * 2654435761U) >> 13 ^ i);
}

static void fill(uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = pattern(at + i);
}

static void check(uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (buf[i] != pattern(at + i))
			ck_abort_msg("byte %llu differs", (unsigned long long)(at + i));
	}
}

static struct vsock_stats stats(void)
{
	struct vsock_stats st;

	vsock_dev_stats(fg.dev, &st);
	return st;
}

/* ---- bytes ---- */

static void echo_once(size_t n, uint64_t at)
{
	size_t got = 0;

	fill(at, n);
	ck_assert_int_eq(send(host, buf, n, MSG_NOSIGNAL), (ssize_t)n);
	fg_pump(&fg);
	memset(buf, 0, n);
	while (got < n) {
		size_t k = fg_conn_recv(&fg, &conn, buf + got, n - got, true);

		ck_assert_uint_gt(k, 0);
		got += k;
		fg_pump(&fg);
	}
	check(at, n);
	ck_assert_uint_eq(fg_conn_send(&fg, &conn, buf, n), n);
	fg_pump(&fg);
	memset(buf, 0, n);
	ck_assert_int_eq(recv(host, buf, sizeof(buf), MSG_DONTWAIT), (ssize_t)n);
	check(at, n);
}

/*
 * Every layout of receive and transmit buffers, with and without event_idx, in one region and
 * across two.
 */
START_TEST(echo)
{
	static const size_t sizes[] = {1, 7, 8, 44, 4096, 4097, 65536, 100000};

	again_with(&(struct fg_opts){
		.rx = (enum fg_layout)(_i % FG_LAYOUTS),
		.tx = (enum fg_layout)(_i / FG_LAYOUTS % FG_LAYOUTS),
		.event_idx = _i / (FG_LAYOUTS * FG_LAYOUTS) % 2,
		.two_regions = _i / (FG_LAYOUTS * FG_LAYOUTS) / 2,
	});
	for (uint64_t i = 0; i < 40; i++)
		echo_once(sizes[i % 8], i * 1000);
	ck_assert(fg_interrupted(&fg, VSOCK_QUEUE_RX));
}
END_TEST

static const struct fg_opts bulk_opts[] = {
	{.event_idx = true, .rx = FG_INDIRECT, .tx = FG_INDIRECT},
	{.event_idx = true, .rx = FG_SINGLE, .tx = FG_PAIR, .rx_size = 3776},
	{.rx = FG_PAIR, .tx = FG_SHREDDED, .rx_size = 65536, .num = 16},
	{.event_idx = true, .rx = FG_SHREDDED, .tx = FG_SINGLE, .rx_size = 1, .num = 128},
	{.event_idx = true, .rx = FG_INDIRECT, .tx = FG_INDIRECT, .num = 4, .two_regions = true},
};

/* The host's side moves at most step bytes at a time, to meet full and empty sockets on the way. */
START_TEST(bulk_to_guest)
{
	const size_t total = bulk_opts[_i].rx_size == 1 ? 20000 : 8 * MIB, step = 30000;
	uint64_t sent = 0, got = 0;

	again_with(&bulk_opts[_i]);
	for (int rounds = 0; got < total; rounds++) {
		size_t n = total - sent < step ? total - sent : step;
		ssize_t k;

		fill(sent, n);
		k = n ? send(host, buf, n, MSG_NOSIGNAL) : 0;
		if (k > 0)
			sent += (uint64_t)k;
		fg_pump(&fg);
		n = fg_conn_recv(&fg, &conn, buf, sizeof(buf), rounds % 3 == 0);
		check(got, n);
		got += n;
		ck_assert_int_lt(rounds, 100000);
	}
	ck_assert_uint_eq(got, total);
	ck_assert_uint_eq(stats().to_guest_bytes, total);
}
END_TEST

START_TEST(bulk_to_host)
{
	const size_t total = 8 * MIB, step = 50000;
	uint64_t sent = 0, got = 0;

	again_with(&bulk_opts[_i]);
	for (int rounds = 0; got < total; rounds++) {
		size_t n = total - sent < 200000 ? total - sent : 200000;
		ssize_t k;

		fg_conn_recv(&fg, &conn, NULL, 0, false);
		fill(sent, n);
		sent += fg_conn_send(&fg, &conn, buf, n);
		fg_pump(&fg);
		k = rounds % 3 ? recv(host, buf, step * 3, MSG_DONTWAIT) : 0;
		if (k > 0) {
			check(got, (size_t)k);
			got += (uint64_t)k;
		}
		fg_pump(&fg);
		ck_assert_int_lt(rounds, 100000);
	}
	ck_assert_uint_eq(got, total);
	ck_assert_uint_eq(stats().to_host_bytes, total);
}
END_TEST

/* ---- credit ---- */

START_TEST(credit_to_guest)
{
	struct vsock_stats before = stats();
	size_t got = 0, n;
	ssize_t k;

	conn.buf_alloc = 10000;
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	fg_pump(&fg);
	fill(0, MIB);
	k = send(host, buf, 100000, MSG_NOSIGNAL);
	ck_assert_int_eq(k, 100000);
	fg_pump(&fg);
	/* Exactly the credit; a guest that stays silent is asked for more, once. */
	ck_assert_uint_eq(stats().to_guest_bytes - before.to_guest_bytes, 10000);
	ck_assert_uint_eq(stats().to_guest_packets - before.to_guest_packets, 3);
	fg_pump_wait(&fg, 1000);
	ck_assert_uint_eq(stats().to_guest_packets - before.to_guest_packets, 4);
	fg_pump_wait(&fg, 50);
	ck_assert_uint_eq(stats().to_guest_packets - before.to_guest_packets, 4);
	got = fg_conn_recv(&fg, &conn, buf, sizeof(buf), false); /* answers the request: no news */
	fg_pump(&fg);
	ck_assert_uint_eq(got, 10000);
	ck_assert_uint_eq(stats().to_guest_bytes - before.to_guest_bytes, 10000);
	while (got < 100000) {
		n = fg_conn_recv(&fg, &conn, buf + got, sizeof(buf) - got, true);
		got += n;
		fg_pump(&fg);
		ck_assert_uint_le(n, 10000);
	}
	check(0, got);
}
END_TEST

START_TEST(credit_to_guest_is_capped)
{
	conn.buf_alloc = UINT32_MAX;
	again_with(&(struct fg_opts){.num = 1024, .event_idx = true, .rx = FG_INDIRECT});
	conn.buf_alloc = UINT32_MAX;
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	for (int i = 0; i < 40; i++) {
		(void)!send(host, buf, 65536, MSG_NOSIGNAL);
		fg_pump(&fg);
	}
	ck_assert_uint_eq(stats().to_guest_bytes, CONN_CREDIT);
}
END_TEST

START_TEST(credit_lies_harm_the_liar)
{
	/*
	 * More freed than was ever sent, and a window that shrank below what is in flight: nothing
	 * flows, that is all.
	 */
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE);

	p.fwd_cnt = 12345;
	ck_assert(fg_send(&fg, &p, NULL));
	fg_pump(&fg);
	ck_assert_int_eq(send(host, buf, 1000, MSG_NOSIGNAL), 1000);
	fg_pump(&fg);
	ck_assert_uint_eq(stats().to_guest_bytes, 0);
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0); /* the truth again */
	fg_pump(&fg);
	ck_assert_uint_eq(stats().to_guest_bytes, 1000);
	p = fg_header(&conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	p.buf_alloc = 10;
	ck_assert(fg_send(&fg, &p, NULL));
	ck_assert_int_eq(send(host, buf, 1000, MSG_NOSIGNAL), 1000);
	fg_pump(&fg);
	ck_assert_uint_eq(stats().to_guest_bytes, 1000);
	ck_assert_uint_eq(stats().conns, 1);
}
END_TEST

START_TEST(credit_to_host)
{
	size_t sent = 0;
	ssize_t got = 0, k;

	/*
	 * The host does not read: the guest can send the socket's buffer and its credit, and then
	 * no more.
	 */
	fill(0, sizeof(buf));
	for (int i = 0; i < 20; i++) {
		sent += fg_conn_send(&fg, &conn, buf + sent, sizeof(buf) - sent);
		fg_pump(&fg);
		fg_conn_recv(&fg, &conn, NULL, 0, false);
	}
	ck_assert_uint_ge(sent, CONN_CREDIT);
	ck_assert_uint_lt(sent, MIB);
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
	fg_pump(&fg);
	fg_conn_recv(&fg, &conn, NULL, 0, false);
	ck_assert_uint_eq(conn.peer_alloc - (conn.sent - conn.peer_fwd), 0);
	/* It reads: all comes, in order, and the credit is given back without being asked for. */
	memset(buf, 0, sizeof(buf));
	while ((size_t)got < sent) {
		k = recv(host, buf + got, 100000, MSG_DONTWAIT);
		ck_assert_int_gt(k, 0);
		got += k;
		fg_pump(&fg);
	}
	check(0, sent);
	fg_conn_recv(&fg, &conn, NULL, 0, false);
	ck_assert_uint_ge(conn.peer_alloc - (conn.sent - conn.peer_fwd), CONN_CREDIT / 2);
}
END_TEST

START_TEST(credit_overrun_resets)
{
	struct packet p = fg_header(&conn, VIRTIO_VSOCK_OP_RW);

	p.len = FG_MAX_PAYLD;
	for (int i = 0; i < 20; i++) {
		ck_assert(fg_send(&fg, &p, buf));
		fg_pump(&fg);
	}
	fg_conn_recv(&fg, &conn, NULL, 0, false);
	ck_assert(conn.reset);
	ck_assert_uint_eq(stats().violations, 1);
	ck_assert_uint_eq(stats().conns, 0);
	ck_assert_ptr_nonnull(strstr(fg.log, "more than its credit"));
}
END_TEST

START_TEST(credit_is_shared)
{
	/*
	 * Hundreds of connections: each gets the minimum at least, all together no more than the
	 * whole.
	 */
	static struct fg_conn c[600];
	static int fd[600];
	uint64_t sum = 0;

	for (int i = 0; i < 600; i++) {
		fd[i] = connect_to_guest(&c[i], 600);
		ck_assert_uint_ge(c[i].peer_alloc, CONN_CREDIT_MIN);
		sum += c[i].peer_alloc;
	}
	ck_assert_uint_eq(c[0].peer_alloc, CONN_CREDIT);
	ck_assert_uint_eq(c[599].peer_alloc, CONN_CREDIT_MIN);
	ck_assert_uint_le(sum, (32U << 20) + 600 * CONN_CREDIT_MIN);
	for (int i = 0; i < 600; i++)
		close(fd[i]);
	fg_pump(&fg);
	while (fg_recv(&fg, &(struct packet){0}, NULL))
		fg_pump(&fg);
	fd[0] = connect_to_guest(&c[0], 600);
	ck_assert_uint_eq(c[0].peer_alloc, CONN_CREDIT);
	close(fd[0]);
}
END_TEST

/* ---- ends ---- */

static const char *host_reads(void)
{
	static char text[64];
	ssize_t n = recv(host, text, sizeof(text) - 1, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN ? "" : "ERROR";
	text[n] = '\0';
	return n ? text : "EOF";
}

START_TEST(host_ends_first)
{
	char got[16] = "";

	ck_assert_int_eq(send(host, "ask", 3, 0), 3);
	shutdown(host, SHUT_WR);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, got, sizeof(got), true), 3);
	ck_assert(conn.peer_done && !conn.reset);
	ck_assert_uint_eq(fg_conn_send(&fg, &conn, "answer", 6), 6);
	fg_pump(&fg);
	ck_assert_str_eq(host_reads(), "answer");
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, 3);
	fg_pump(&fg);
	fg_conn_recv(&fg, &conn, NULL, 0, false);
	ck_assert(conn.reset); /* what a closing guest waits for */
	ck_assert_str_eq(host_reads(), "EOF");
	ck_assert_uint_eq(stats().conns, 0);
}
END_TEST

START_TEST(host_ends_behind_its_data)
{
	size_t total = 150000, got = 0;

	/* The end comes after the last byte, whatever the credit and the number of turns. */
	conn.buf_alloc = 5000;
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	fg_pump(&fg);
	fill(0, total);
	ck_assert_int_eq(send(host, buf, total, MSG_NOSIGNAL), (ssize_t)total);
	shutdown(host, SHUT_WR);
	memset(buf, 0, total);
	while (!conn.peer_done) {
		fg_pump(&fg);
		got += fg_conn_recv(&fg, &conn, buf + got, sizeof(buf) - got, true);
	}
	ck_assert_uint_eq(got, total);
	check(0, total);
	ck_assert(!conn.reset);
}
END_TEST

START_TEST(guest_ends_first)
{
	char got[16] = "";

	ck_assert_uint_eq(fg_conn_send(&fg, &conn, "last", 4), 4);
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
	fg_pump(&fg);
	ck_assert_str_eq(host_reads(), "last");
	ck_assert_str_eq(host_reads(), "EOF");
	ck_assert_int_eq(send(host, "still", 5, MSG_NOSIGNAL), 5);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, got, sizeof(got), true), 5);
	ck_assert(!conn.reset && !conn.peer_done);
	/* Then the host closes: its end is told in order, both directions are over. */
	ck_assert_int_eq(send(host, "bye", 3, MSG_NOSIGNAL), 3);
	close(host);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, got, sizeof(got), true), 3);
	ck_assert(conn.peer_done && !conn.reset);
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_RST, 0);
	fg_pump(&fg);
	ck_assert_uint_eq(stats().conns, 0);
	host = -1;
}
END_TEST

START_TEST(both_end_with_data_on_the_way)
{
	size_t total = 150000, got = 0;

	/*
	 * The guest's end shuts the socket's other half, which makes it look closed (EPOLLHUP); it
	 * is not.
	 */
	conn.buf_alloc = 5000;
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	fg_pump(&fg);
	fill(0, total);
	ck_assert_int_eq(send(host, buf, total, MSG_NOSIGNAL), (ssize_t)total);
	shutdown(host, SHUT_WR);
	fg_pump(&fg);
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
	memset(buf, 0, total);
	while (!conn.peer_done && !conn.reset) {
		fg_pump(&fg);
		got += fg_conn_recv(&fg, &conn, buf + got, sizeof(buf) - got, true);
	}
	ck_assert(!conn.reset);
	ck_assert_uint_eq(got, total);
	check(0, total);
}
END_TEST

START_TEST(guest_ends_behind_its_data)
{
	size_t sent = 0, got = 0;
	ssize_t k;

	/* The host reads nothing until the guest has sent all it can, ended, and gone. */
	fill(0, sizeof(buf));
	for (int i = 0; i < 10; i++) {
		sent += fg_conn_send(&fg, &conn, buf + sent, sizeof(buf) - sent);
		fg_pump(&fg);
		fg_conn_recv(&fg, &conn, NULL, 0, false);
	}
	ck_assert_uint_gt(sent, 300000);
	if (_i == 0) {
		fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, 3);
	} else {
		fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
		fg_op(&fg, &conn, VIRTIO_VSOCK_OP_RST, 0);
	}
	fg_pump(&fg);
	ck_assert_uint_eq(stats().conns, 1); /* draining */
	memset(buf, 0, sizeof(buf));
	while ((k = recv(host, buf + got, sizeof(buf) - got, MSG_DONTWAIT)) > 0) {
		got += (size_t)k;
		fg_pump(&fg);
	}
	ck_assert_int_eq(k, 0);
	ck_assert_uint_eq(got, sent);
	check(0, sent);
	ck_assert_uint_eq(stats().conns, 0);
}
END_TEST

START_TEST(draining_host_closes)
{
	for (int i = 0; i < 10; i++) {
		fg_conn_send(&fg, &conn, buf, sizeof(buf));
		fg_pump(&fg);
		fg_conn_recv(&fg, &conn, NULL, 0, false);
	}
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, 3);
	fg_pump(&fg);
	ck_assert_uint_eq(stats().conns, 1);
	close(host);
	fg_pump(&fg);
	ck_assert_uint_eq(stats().conns, 0);
	host = -1;
}
END_TEST

START_TEST(guest_stops_receiving)
{
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_RCV);
	fg_pump(&fg);
	ck_assert_int_eq(send(host, "x", 1, MSG_NOSIGNAL), -1);
	ck_assert_int_eq(errno, EPIPE);
	ck_assert_uint_eq(fg_conn_send(&fg, &conn, "still", 5), 5);
	fg_pump(&fg);
	ck_assert_str_eq(host_reads(), "still");
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_SHUTDOWN_SEND);
	fg_pump(&fg);
	ck_assert_str_eq(host_reads(), "EOF");
	ck_assert_uint_eq(stats().conns, 0);
}
END_TEST

START_TEST(host_close_is_abortive)
{
	char got[16] = "";

	/* What needs no waiting is delivered, then RST. */
	ck_assert_int_eq(send(host, "bye", 3, 0), 3);
	close(host);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, got, sizeof(got), false), 3);
	ck_assert(conn.reset && !conn.peer_done);
	ck_assert_uint_eq(stats().conns, 0);
	host = -1;
}
END_TEST

START_TEST(host_close_without_credit)
{
	conn.buf_alloc = 100;
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	fg_pump(&fg);
	ck_assert_int_eq(send(host, buf, 100000, 0), 100000);
	fg_pump(&fg);
	close(host);
	fg_pump(&fg); /* fails if the device spins on EPOLLHUP */
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, buf, sizeof(buf), false), 100);
	ck_assert(conn.reset);
	ck_assert_uint_eq(stats().conns, 0);
	host = -1;
}
END_TEST

START_TEST(host_close_with_backlog)
{
	for (int i = 0; i < 10; i++) {
		fg_conn_send(&fg, &conn, buf, sizeof(buf));
		fg_pump(&fg);
		fg_conn_recv(&fg, &conn, NULL, 0, false);
	}
	close(host);
	fg_pump(&fg);
	fg_conn_recv(&fg, &conn, NULL, 0, false);
	ck_assert(conn.reset);
	ck_assert_uint_eq(stats().conns, 0);
	host = -1;
}
END_TEST

START_TEST(host_close_without_buffers)
{
	/*
	 * No receive buffer: the RST waits for one, without spinning, and nothing else happens to
	 * the ports.
	 */
	again_with(
		&(struct fg_opts){.num = 4, .event_idx = true, .rx = FG_INDIRECT, .rx_buffers = 1});
	ck_assert_int_eq(send(host, "x", 1, 0), 1);
	fg_pump(&fg);
	close(host);
	host = -1;
	fg_pump(&fg);
	ck_assert_uint_eq(stats().conns, 1);
	ck_assert_uint_eq(fg_conn_recv(&fg, &conn, buf, sizeof(buf), false), 1);
	fg_pump(&fg);
	fg_conn_recv(&fg, &conn, NULL, 0, false);
	ck_assert(conn.reset);
	ck_assert_uint_eq(stats().conns, 0);
}
END_TEST

START_TEST(guest_resets)
{
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_RST, 0);
	fg_pump(&fg);
	ck_assert_str_eq(host_reads(), "EOF");
	ck_assert_uint_eq(stats().conns, 0);
	ck_assert(!fg_recv(&fg, &(struct packet){0}, NULL)); /* an RST is not answered */
}
END_TEST

/* ---- stop, start, reset ---- */

START_TEST(stop_keeps_connections)
{
	for (int i = 0; i < 5; i++) {
		uint32_t base[2];

		echo_once(1000, 5);
		ck_assert_int_eq(send(host, "while stopped", 13, 0), 13);
		ck_assert_int_eq(fg_stop(&fg), 0);
		for (unsigned q = 0; q < 2; q++) {
			ck_assert_int_eq(vsock_dev_get_base(fg.dev, q, &base[q]), 0);
			ck_assert_int_eq(vsock_dev_set_base(fg.dev, q, base[q]), 0);
		}
		fg_pump(&fg);
		ck_assert_uint_eq(fg_conn_recv(&fg, &conn, buf, sizeof(buf), true), 0);
		ck_assert_int_eq(fg_start(&fg), 0);
		fg_pump(&fg);
		ck_assert_uint_eq(fg_conn_recv(&fg, &conn, buf, sizeof(buf), true), 13);
		fg_pump(&fg);
	}
	ck_assert_uint_eq(stats().conns, 1);
}
END_TEST

START_TEST(stop_leaves_no_interrupt_behind)
{
	/* The transmit interrupt is late on purpose; a stop must not lose it. */
	fg_interrupted(&fg, VSOCK_QUEUE_TX);
	ck_assert_uint_eq(fg_conn_send(&fg, &conn, "x", 1), 1);
	fg_pump(&fg);
	fg_stop(&fg);
	ck_assert(fg_interrupted(&fg, VSOCK_QUEUE_TX));
}
END_TEST

START_TEST(late_transmit_interrupt)
{
	fg_pump_wait(&fg, 100);
	fg_interrupted(&fg, VSOCK_QUEUE_TX);
	ck_assert_uint_eq(fg_conn_send(&fg, &conn, "x", 1), 1);
	fg_pump(&fg);
	fg_pump_wait(&fg, 1000);
	ck_assert(fg_interrupted(&fg, VSOCK_QUEUE_TX));
	/* A quarter of the ring does not wait. */
	for (unsigned i = 0; i < 32; i++)
		ck_assert_uint_eq(fg_conn_send(&fg, &conn, "x", 1), 1);
	fg_pump(&fg);
	ck_assert(fg_interrupted(&fg, VSOCK_QUEUE_TX));
}
END_TEST

START_TEST(driver_reset_closes_connections)
{
	struct fg_conn c = {0};
	int fd;

	echo_once(100, 1);
	ck_assert_int_eq(fg_stop(&fg), 0);
	fg_reset_rings(&fg);
	ck_assert_int_eq(fg_start(&fg), 0);
	fg_pump(&fg);
	ck_assert_str_eq(host_reads(), "EOF");
	ck_assert_uint_eq(stats().conns, 0);
	ck_assert(!fg_recv(&fg, &(struct packet){0}, NULL));
	fd = connect_to_guest(&c, 9);
	ck_assert_uint_ne(c.host_port, conn.host_port);
	close(fd);
}
END_TEST

START_TEST(driver_reset_asks_again)
{
	struct fg_conn c = {0};
	struct packet p;
	int sv[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv), 0);
	ck_assert_int_eq(send(sv[0], "CONNECT 7\n", 10, 0), 10);
	ck_assert_int_eq(vsock_dev_adopt(fg.dev, sv[1]), 0);
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op,
			  VIRTIO_VSOCK_OP_REQUEST); /* the guest reboots instead of an answer */
	fg_stop(&fg);
	fg_reset_rings(&fg);
	ck_assert_int_eq(fg_start(&fg), 0);
	fg_accept(&fg, &c, 7);
	ck_assert_int_gt(recv(sv[0], buf, 64, 0), 0);
	close(sv[0]);
}
END_TEST

START_TEST(owner_reset_forgets_all)
{
	vsock_dev_reset(fg.dev);
	ck_assert_str_eq(host_reads(), "EOF");
	fg_pump(&fg);
	ck_assert_int_eq(vsock_dev_run(fg.dev, true), -EINVAL);
	fg_reset_rings(&fg);
	ck_assert_int_eq(fg_start(&fg), 0);
	close(host);
	host = connect_to_guest(&conn, 520);
	echo_once(100, 1);
}
END_TEST

START_TEST(back_end_calls_are_checked)
{
	const struct virtq_addr addr = {0};
	uint32_t base;

	ck_assert_int_eq(vsock_dev_set_features(fg.dev, 0), -EBUSY);
	ck_assert_int_eq(vsock_dev_set_num(fg.dev, 0, 8), -EBUSY);
	ck_assert_int_eq(vsock_dev_set_base(fg.dev, 0, 8), -EBUSY);
	ck_assert_int_eq(vsock_dev_set_addr(fg.dev, 0, &addr), -EBUSY);
	ck_assert_int_eq(vsock_dev_set_num(fg.dev, 2, 8), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_base(fg.dev, 2, 8), -EINVAL);
	ck_assert_int_eq(vsock_dev_get_base(fg.dev, 2, &base), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_addr(fg.dev, 2, &addr), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_kick(fg.dev, 2, -1), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_call(fg.dev, 2, -1), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_err(fg.dev, 2, -1), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_call(fg.dev, 0, 100000), -EBADF);
	ck_assert_int_eq(vsock_dev_set_cid(fg.dev, 2), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_cid(fg.dev, UINT32_MAX), -EINVAL);
	fg_stop(&fg);
	ck_assert_int_eq(vsock_dev_set_base(fg.dev, 0, 0x10000), -EINVAL);
	ck_assert_int_eq(vsock_dev_set_features(fg.dev, 1ULL << 34), -EINVAL); /* packed ring */
	ck_assert_int_eq(vsock_dev_set_mem(fg.dev, NULL, 65), -E2BIG);
	ck_assert_int_eq(vsock_dev_set_addr(fg.dev, 0, &addr), -EFAULT);
	ck_assert_int_eq(fg_start(&fg), 0);
}
END_TEST

/* ---- many ---- */

START_TEST(thousand_connections)
{
	enum { N = 1000 };
	static struct fg_conn c[N];
	static int fd[N];
	struct rlimit rl;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &rl), 0);
	rl.rlim_cur = rl.rlim_max < 4096 ? rl.rlim_max : 4096;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &rl), 0);
	ck_assert_uint_ge(rl.rlim_cur, 2 * N + 50);
	for (int i = 0; i < N; i++)
		fd[i] = connect_to_guest(&c[i], (uint32_t)i);
	ck_assert_uint_eq(stats().conns, N + 1);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++) {
			uint64_t x = (uint64_t)i * 10 + (uint64_t)round, y = 0;

			ck_assert_int_eq(send(fd[i], &x, sizeof(x), 0), sizeof(x));
			fg_pump(&fg);
			ck_assert_uint_eq(fg_conn_recv(&fg, &c[i], &y, sizeof(y), false),
					  sizeof(y));
			ck_assert_uint_eq(x, y);
			ck_assert_uint_eq(fg_conn_send(&fg, &c[i], &x, sizeof(x)), sizeof(x));
			fg_pump(&fg);
			ck_assert_int_eq(recv(fd[i], &y, sizeof(y), 0), sizeof(y));
			ck_assert_uint_eq(x, y);
		}
	}
	for (int i = 0; i < N; i++)
		close(fd[i]);
	for (int i = 0; i < N / 100; i++) {
		fg_pump(&fg);
		while (fg_recv(&fg, &(struct packet){0}, NULL))
			;
	}
	fg_pump(&fg);
	ck_assert_uint_eq(stats().conns, 1);
	echo_once(100, 1);
}
END_TEST

/*
 * How many payload bytes are ahead of the first one of connection c in the packets that wait for
 * the guest.
 */
START_TEST(ping_waits_for_few_quanta)
{
	struct fg_conn bulk[4] = {0};
	struct packet p;
	size_t ahead = 0;
	int fd[4];

	again_with(&(struct fg_opts){.num = 1024, .event_idx = true, .rx = FG_INDIRECT});
	for (int i = 0; i < 4; i++)
		fd[i] = connect_to_guest(&bulk[i], 600);
	for (int i = 0; i < 4; i++)
		ck_assert_int_gt(send(fd[i], buf, 200000, 0), 150000);
	ck_assert_int_eq(send(host, "ping", 4, 0), 4);
	fg_pump(&fg);
	while (fg_recv(&fg, &p, NULL) && p.src_port != conn.host_port)
		ahead += p.len;
	ck_assert_uint_eq(p.len, 4);
	/* One turn of each of the others, and not the 800000 bytes that they have. */
	ck_assert_uint_le(ahead, 4 * VSOCK_QUANTUM);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
}
END_TEST

START_TEST(control_goes_before_data)
{
	struct fg_conn bulk = {0};
	struct packet p;
	int fd;

	again_with(&(struct fg_opts){.num = 1024, .event_idx = true, .rx = FG_INDIRECT});
	fd = connect_to_guest(&bulk, 600);
	fill(0, 200000);
	ck_assert_int_gt(send(fd, buf, 200000, 0), 150000);
	fg_op(&fg, &conn, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	ck_assert_uint_eq(p.src_port, conn.host_port);
	close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vsock_conn");
	TCase *t = tcase_create("all");
	int opts = (int)(sizeof(bulk_opts) / sizeof(bulk_opts[0]));

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, echo, 0, FG_LAYOUTS * FG_LAYOUTS * 4);
	tcase_add_loop_test(t, bulk_to_guest, 0, opts);
	tcase_add_loop_test(t, bulk_to_host, 0, opts);
	tcase_add_test(t, credit_to_guest);
	tcase_add_test(t, credit_to_guest_is_capped);
	tcase_add_test(t, credit_lies_harm_the_liar);
	tcase_add_test(t, credit_to_host);
	tcase_add_test(t, credit_overrun_resets);
	tcase_add_test(t, credit_is_shared);
	tcase_add_test(t, host_ends_first);
	tcase_add_test(t, host_ends_behind_its_data);
	tcase_add_test(t, guest_ends_first);
	tcase_add_test(t, both_end_with_data_on_the_way);
	tcase_add_loop_test(t, guest_ends_behind_its_data, 0, 2);
	tcase_add_test(t, draining_host_closes);
	tcase_add_test(t, guest_stops_receiving);
	tcase_add_test(t, host_close_is_abortive);
	tcase_add_test(t, host_close_without_credit);
	tcase_add_test(t, host_close_with_backlog);
	tcase_add_test(t, host_close_without_buffers);
	tcase_add_test(t, guest_resets);
	tcase_add_test(t, stop_keeps_connections);
	tcase_add_test(t, stop_leaves_no_interrupt_behind);
	tcase_add_test(t, late_transmit_interrupt);
	tcase_add_test(t, driver_reset_closes_connections);
	tcase_add_test(t, driver_reset_asks_again);
	tcase_add_test(t, owner_reset_forgets_all);
	tcase_add_test(t, back_end_calls_are_checked);
	tcase_add_test(t, thousand_connections);
	tcase_add_test(t, ping_waits_for_few_quanta);
	tcase_add_test(t, control_goes_before_data);
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
