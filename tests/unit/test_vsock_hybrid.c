/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hybrid-vsock handshake, both ways: the line, its deadline, its bounds, and what comes behind
 * it.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/vsock/hybrid.h"
#include "tests/harness/fake_guest.h"

#define SHORT_MS 300 /* a deadline that is to pass */

static struct fake_guest fg;
static char dir[] = "/tmp/test_vsock_XXXXXX";
static char prefix[64];
static int listener = -1;

static int listen_at(const char *path, int backlog)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, backlog), 0);
	return fd;
}

static int connect_to(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

static void setup_with(unsigned max_conns, unsigned handshake_ms)
{
	struct vsock_config cfg = {.handshake_ms = handshake_ms,
				   .dial_prefix = prefix,
				   .max_conns = max_conns};

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(prefix, sizeof(prefix), "%s/vsock", dir);
	listener = listen_at(prefix, 600);
	cfg.listen_fd = listener;
	fg_init(&fg, &(struct fg_opts){.event_idx = true, .rx = FG_INDIRECT});
	fg_create_device(&fg, &cfg);
	ck_assert_int_eq(fg_start(&fg), 0);
}

static void setup(void)
{
	setup_with(0, 60000);
}

static void teardown(void)
{
	char command[128];

	fg_free(&fg);
	close(listener);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

static void again_with(unsigned max_conns, unsigned handshake_ms)
{
	teardown();
	strcpy(dir, "/tmp/test_vsock_XXXXXX");
	setup_with(max_conns, handshake_ms);
}

static void say(int fd, const char *text)
{
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* What can be read now; "" when nothing; "EOF" at the end. */
static const char *hear(int fd)
{
	static char buf[256];
	ssize_t n = recv(fd, buf, sizeof(buf) - 1, MSG_DONTWAIT);

	if (n < 0) {
		ck_assert_msg(errno == EAGAIN || errno == ECONNRESET, "recv: %s", strerror(errno));
		return errno == EAGAIN ? "" : "EOF";
	}
	buf[n] = '\0';
	return n ? buf : "EOF";
}

static unsigned conns(void)
{
	struct vsock_stats st;

	vsock_dev_stats(fg.dev, &st);
	return st.conns;
}

/* The peer is closed, the guest saw nothing, and nothing is left. */
static void expect_refused(int fd)
{
	struct packet p;

	fg_pump(&fg);
	ck_assert_str_eq(hear(fd), "EOF");
	ck_assert(!fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(conns(), 0);
	close(fd);
}

/* ---- the line ---- */

static const struct {
	const char *text;
	int result;
	uint32_t port;
} lines[] = {
	{"CONNECT 520\n", 12, 520},
	{"CONNECT 0\n", 10, 0},
	{"CONNECT 4294967294\nrest", 19, 4294967294U},
	{"CONNECT 0000000005\n", 19, 5},
	{"CONNECT 1\n\n", 10, 1},
	{"", 0, 0},
	{"C", 0, 0},
	{"CONNECT ", 0, 0},
	{"CONNECT 12", 0, 0},
	{"CONNECT 4294967294", 0, 0},
	{"CONNECT 4294967295\n", -1, 0},
	{"CONNECT 4294967296", -1, 0},
	{"CONNECT 9999999999", -1, 0},
	{"CONNECT 18446744073709551617", -1, 0},
	{"CONNECT 00000000005\n", -1, 0},
	{"CONNECT \n", -1, 0},
	{"CONNECT  5\n", -1, 0},
	{"CONNECT 5 \n", -1, 0},
	{"CONNECT 5\r\n", -1, 0},
	{"CONNECT -1\n", -1, 0},
	{"CONNECT +1\n", -1, 0},
	{"CONNECT 0x5\n", -1, 0},
	{"connect 5\n", -1, 0},
	{"CONNECT5\n", -1, 0},
	{"\n", -1, 0},
	{"GET / HTTP/1.1\r\n", -1, 0},
	{"X", -1, 0},
};

START_TEST(line_is_parsed)
{
	uint32_t port = 0;
	size_t len = strlen(lines[_i].text);

	ck_assert_int_eq(hybrid_parse_connect(lines[_i].text, len, &port), lines[_i].result);
	if (lines[_i].result > 0)
		ck_assert_uint_eq(port, lines[_i].port);
	/* What is refused or accepted stays so however little of it has come. */
	for (size_t n = 0; n < len; n++) {
		int r = hybrid_parse_connect(lines[_i].text, n, &port);

		if (lines[_i].result > 0 && n < (size_t)lines[_i].result)
			ck_assert_int_eq(r, 0);
		if (lines[_i].result == 0)
			ck_assert_int_eq(r, 0);
	}
}
END_TEST

START_TEST(line_with_nul)
{
	uint32_t port;

	ck_assert_int_eq(hybrid_parse_connect("CONNECT 5\0\n", 11, &port), -1);
	ck_assert_int_eq(hybrid_parse_connect("\0", 1, &port), -1);
}
END_TEST

START_TEST(ok_line)
{
	char buf[HYBRID_OK_MAX];

	ck_assert_uint_eq(hybrid_format_ok(buf, 4294967294U), 14);
	ck_assert_str_eq(buf, "OK 4294967294\n");
}
END_TEST

/* ---- host to guest ---- */

static void expect_ok(int fd, const struct fg_conn *c)
{
	char ok[32];

	snprintf(ok, sizeof(ok), "OK %u\n", c->host_port);
	ck_assert_str_eq(hear(fd), ok);
}

START_TEST(connects)
{
	struct fg_conn c = {0};
	int fd = connect_to(prefix);

	say(fd, "CONNECT 520\n");
	fg_accept(&fg, &c, 520);
	ck_assert_uint_ge(c.host_port, 0x40000000);
	expect_ok(fd, &c);
	ck_assert_uint_eq(conns(), 1);
	close(fd);
}
END_TEST

START_TEST(line_in_single_bytes)
{
	static const char line[] = "CONNECT 4294967294\n";
	struct fg_conn c = {0};
	int fd = connect_to(prefix);

	for (size_t i = 0; i < sizeof(line) - 1; i++) {
		fg_pump(&fg);
		ck_assert_str_eq(hear(fd), "");
		ck_assert_int_eq(send(fd, line + i, 1, 0), 1);
	}
	fg_accept(&fg, &c, 4294967294U);
	expect_ok(fd, &c);
	close(fd);
}
END_TEST

START_TEST(early_bytes_are_kept)
{
	struct fg_conn c = {0};
	char got[256] = "";
	int fd = connect_to(prefix);

	say(fd, "CONNECT 520\nfirst");
	say(fd, " second");
	fg_accept(&fg, &c, 520);
	say(fd, " third");
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &c, got, sizeof(got), true), 18);
	ck_assert_str_eq(got, "first second third");
	expect_ok(fd, &c);
	close(fd);
}
END_TEST

START_TEST(early_bytes_and_end_are_kept)
{
	struct fg_conn c = {0};
	char got[256] = "";
	int fd = connect_to(prefix);

	say(fd, "CONNECT 520\nall there is");
	shutdown(fd, SHUT_WR);
	fg_accept(&fg, &c, 520);
	ck_assert_uint_eq(fg_conn_recv(&fg, &c, got, sizeof(got), true), 12);
	ck_assert_str_eq(got, "all there is");
	ck_assert(c.peer_done);
	expect_ok(fd, &c);
	close(fd);
}
END_TEST

static const char *const garbage[] = {
	"GET / HTTP/1.0\r\n\r\n", "CONNECT 5 \n", "CONNECT 99999999999\n", "\n", "OK 5\n",
	"CONNECT 4294967295\n",
};

START_TEST(garbage_is_refused)
{
	int fd = connect_to(prefix);

	say(fd, garbage[_i]);
	expect_refused(fd);
}
END_TEST

START_TEST(endless_line_is_refused)
{
	int fd = connect_to(prefix), left = 1 << 20;
	char zeros[4096];

	/* The first bytes that can't be a line end it; the other megabyte is never read. */
	memset(zeros, '0', sizeof(zeros));
	say(fd, "CONNECT ");
	while (left > 0) {
		ssize_t n = send(fd, zeros, sizeof(zeros), MSG_NOSIGNAL | MSG_DONTWAIT);

		fg_pump(&fg);
		if (n < 0)
			break;
		left -= (int)n;
	}
	ck_assert_int_gt(left, 0);
	ck_assert_uint_eq(conns(), 0);
	close(fd);
}
END_TEST

START_TEST(end_before_the_line_is_done)
{
	int fd = connect_to(prefix);

	say(fd, "CONNECT 5");
	shutdown(fd, SHUT_WR);
	expect_refused(fd);
	fd = connect_to(prefix);
	close(fd);
	fg_pump(&fg);
	ck_assert_uint_eq(conns(), 0);
}
END_TEST

START_TEST(silent_peer_is_dropped)
{
	int fd, slow;

	again_with(0, SHORT_MS);
	fd = connect_to(prefix);
	slow = connect_to(prefix);
	say(slow, "CONN");
	fg_pump(&fg);
	ck_assert_uint_eq(conns(), 2);
	ck_assert_str_eq(hear(fd), "");
	fg_pump_wait(&fg, 5000);
	ck_assert_str_eq(hear(fd), "EOF");
	ck_assert_str_eq(hear(slow), "EOF");
	ck_assert_uint_eq(conns(), 0);
	close(fd);
	close(slow);
}
END_TEST

START_TEST(silent_guest_is_given_up)
{
	struct packet p;
	int fd;

	again_with(0, SHORT_MS);
	fd = connect_to(prefix);
	say(fd, "CONNECT 520\n");
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_REQUEST);
	fg_pump_wait(&fg, 5000);
	ck_assert_str_eq(hear(fd), "EOF");
	/* The guest is told, should it still think about it; its late answer is ignored. */
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(conns(), 0);
	close(fd);
}
END_TEST

START_TEST(guest_that_is_not_up_yet)
{
	struct fg_conn c = {0};
	int fd = connect_to(prefix);

	/*
	 * C044: a connect right after the VM's start waits for the driver, as long as its deadline
	 * allows.
	 */
	fg_stop(&fg);
	fg_reset_rings(&fg);
	say(fd, "CONNECT 520\n");
	fg_pump(&fg);
	ck_assert_str_eq(hear(fd), "");
	ck_assert_int_eq(fg_start(&fg), 0);
	fg_accept(&fg, &c, 520);
	expect_ok(fd, &c);
	close(fd);
	/* And one that outlives its deadline is closed, not forgotten. */
	again_with(0, SHORT_MS);
	fg_stop(&fg);
	fd = connect_to(prefix);
	say(fd, "CONNECT 520\n");
	fg_pump_wait(&fg, 5000);
	ck_assert_str_eq(hear(fd), "EOF");
	close(fd);
}
END_TEST

START_TEST(guest_refuses)
{
	struct fg_conn c = {0};
	struct packet p;
	int fd = connect_to(prefix);

	say(fd, "CONNECT 521\nearly");
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	c.host_port = p.src_port, c.guest_port = p.dst_port;
	fg_op(&fg, &c, VIRTIO_VSOCK_OP_RST, 0);
	expect_refused(fd);
}
END_TEST

START_TEST(host_gives_up_first)
{
	struct fg_conn c = {0};
	struct packet p;
	int fd = connect_to(prefix);

	say(fd, "CONNECT 521\n");
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	c.host_port = p.src_port, c.guest_port = p.dst_port;
	close(fd);
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_RST);
	fg_op(&fg, &c, VIRTIO_VSOCK_OP_RESPONSE, 0); /* crossed on the way */
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_RST);
	ck_assert_uint_eq(conns(), 0);
}
END_TEST

START_TEST(host_gives_up_at_once)
{
	struct packet p;
	int fd = connect_to(prefix);

	say(fd, "CONNECT 521\n");
	close(fd);
	fg_pump(&fg);
	/* The guest was asked and told, or not asked at all. */
	if (fg_recv(&fg, &p, NULL)) {
		ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_REQUEST);
		ck_assert(fg_recv(&fg, &p, NULL));
		ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_RST);
	}
	ck_assert_uint_eq(conns(), 0);
}
END_TEST

START_TEST(handshakes_are_bounded)
{
	int fd[VSOCK_MAX_HANDSHAKES + 50], last;
	struct fg_conn c = {0};
	struct vsock_stats st;

	for (size_t i = 0; i < sizeof(fd) / sizeof(fd[0]); i++)
		fd[i] = connect_to(prefix);
	fg_pump(&fg);
	vsock_dev_stats(fg.dev, &st);
	ck_assert_uint_eq(st.handshakes, VSOCK_MAX_HANDSHAKES);
	ck_assert_uint_eq(st.conns, VSOCK_MAX_HANDSHAKES);
	/* The others wait in the backlog, and are served when there is room. */
	last = fd[sizeof(fd) / sizeof(fd[0]) - 1];
	say(last, "CONNECT 520\n");
	fg_pump(&fg);
	ck_assert_str_eq(hear(last), "");
	for (int i = 0; i < 100; i++)
		close(fd[i]);
	fg_accept(&fg, &c, 520);
	expect_ok(last, &c);
	for (size_t i = 100; i < sizeof(fd) / sizeof(fd[0]); i++)
		close(fd[i]);
	fg_pump(&fg);
	vsock_dev_stats(fg.dev, &st);
	ck_assert_uint_eq(st.handshakes, 0);
}
END_TEST

START_TEST(full_table_refuses)
{
	struct fg_conn c[4] = {0};
	struct packet p;
	int fd[5];

	again_with(4, 60000);
	for (int i = 0; i < 4; i++) {
		fd[i] = connect_to(prefix);
		say(fd[i], "CONNECT 520\n");
		fg_accept(&fg, &c[i], 520);
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(c[i].host_port, c[j].host_port);
	}
	fd[4] = connect_to(prefix);
	fg_pump(&fg);
	ck_assert_str_eq(hear(fd[4]), "EOF");
	/* So is the guest's dial. */
	fg_op(&fg, &(struct fg_conn){.host_port = 1, .guest_port = 5}, VIRTIO_VSOCK_OP_REQUEST, 0);
	fg_pump(&fg);
	ck_assert(fg_recv(&fg, &p, NULL));
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_RST);
	close(fd[0]);
	fg_pump(&fg);
	close(fd[4]);
	fd[4] = connect_to(prefix);
	fg_pump(&fg);
	ck_assert_str_eq(hear(fd[4]), "");
	for (int i = 1; i < 5; i++)
		close(fd[i]);
}
END_TEST

START_TEST(no_descriptors_left)
{
	struct rlimit old, tight;
	struct fg_conn c = {0};
	int fd = connect_to(prefix), probe = dup(fd);

	say(fd, "CONNECT 520\n");
	close(probe);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)probe;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &tight), 0);
	fg_pump(&fg); /* fails the test if it spins */
	fg_pump(&fg);
	ck_assert_str_eq(hear(fd), "");
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	fg_pump_wait(&fg, 5000);
	fg_accept(&fg, &c, 520);
	expect_ok(fd, &c);
	ck_assert_ptr_nonnull(strstr(fg.log, "accept: Too many open files"));
	close(fd);
}
END_TEST

/* ---- guest to host ---- */

static struct fg_conn dial(uint32_t port)
{
	struct fg_conn c = {.host_port = port, .guest_port = 1024 + port, .buf_alloc = 262144};

	fg_op(&fg, &c, VIRTIO_VSOCK_OP_REQUEST, 0);
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &c, NULL, 0, false), 0);
	return c;
}

static int serve(uint32_t port, int backlog)
{
	char path[80];

	snprintf(path, sizeof(path), "%s_%u", prefix, port);
	return listen_at(path, backlog);
}

START_TEST(dials)
{
	int l = serve(521, 5), fd;
	struct fg_conn c = dial(521);
	char got[16] = "";

	ck_assert(c.open && !c.reset);
	fd = accept(l, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(fg_conn_send(&fg, &c, "hello", 5), 5);
	fg_pump(&fg);
	ck_assert_str_eq(hear(fd), "hello");
	say(fd, "welcome");
	fg_pump(&fg);
	ck_assert_uint_eq(fg_conn_recv(&fg, &c, got, sizeof(got), true), 7);
	ck_assert_str_eq(got, "welcome");
	close(fd);
	close(l);
}
END_TEST

START_TEST(dial_refused)
{
	struct fg_conn c;
	char path[80];
	int l;

	c = dial(600); /* ENOENT */
	ck_assert(c.reset && !c.open);
	l = serve(601, 5);
	close(l);
	c = dial(601); /* ECONNREFUSED */
	ck_assert(c.reset && !c.open);
	snprintf(path, sizeof(path), "%s_602", prefix);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	c = dial(602);
	ck_assert(c.reset && !c.open);
	c = dial(0x40000000); /* a port of the host's own connections */
	ck_assert(c.reset && !c.open);
	ck_assert_uint_eq(conns(), 0);
}
END_TEST

START_TEST(dial_of_a_full_backlog)
{
	int l = serve(603, 0);
	struct fg_conn c = {0};
	bool reset = false;

	for (uint32_t i = 0; i < 8 && !reset; i++) {
		c = (struct fg_conn){.host_port = 603, .guest_port = i};
		fg_op(&fg, &c, VIRTIO_VSOCK_OP_REQUEST, 0);
		fg_pump(&fg);
		fg_conn_recv(&fg, &c, NULL, 0, false);
		reset = c.reset;
	}
	ck_assert(reset);
	close(l);
}
END_TEST

START_TEST(dial_twice)
{
	int l = serve(521, 5);
	struct fg_conn c = dial(521);

	ck_assert(c.open);
	fg_op(&fg, &c, VIRTIO_VSOCK_OP_REQUEST, 0); /* the same ports again */
	fg_pump(&fg);
	fg_conn_recv(&fg, &c, NULL, 0, false);
	ck_assert(c.reset);
	ck_assert_uint_eq(conns(), 0);
	close(l);
}
END_TEST

START_TEST(prefix_too_long)
{
	struct loop loop;
	char long_prefix[120];
	struct vsock_config cfg = {.loop = &loop, .listen_fd = -1, .dial_prefix = long_prefix};

	memset(long_prefix, 'x', sizeof(long_prefix));
	long_prefix[97] = '\0';
	ck_assert_int_eq(hybrid_check_prefix(long_prefix), -ENAMETOOLONG);
	ck_assert_ptr_null(vsock_dev_create(&cfg));
	ck_assert_int_eq(errno, ENAMETOOLONG);
	long_prefix[96] = '\0';
	ck_assert_int_eq(hybrid_check_prefix(long_prefix), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vsock_hybrid");
	TCase *t = tcase_create("line");

	tcase_add_loop_test(t, line_is_parsed, 0, (int)(sizeof(lines) / sizeof(lines[0])));
	tcase_add_test(t, line_with_nul);
	tcase_add_test(t, ok_line);
	tcase_add_test(t, prefix_too_long);
	suite_add_tcase(s, t);
	t = tcase_create("device");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, connects);
	tcase_add_test(t, line_in_single_bytes);
	tcase_add_test(t, early_bytes_are_kept);
	tcase_add_test(t, early_bytes_and_end_are_kept);
	tcase_add_loop_test(t, garbage_is_refused, 0, (int)(sizeof(garbage) / sizeof(garbage[0])));
	tcase_add_test(t, endless_line_is_refused);
	tcase_add_test(t, end_before_the_line_is_done);
	tcase_add_test(t, silent_peer_is_dropped);
	tcase_add_test(t, silent_guest_is_given_up);
	tcase_add_test(t, guest_that_is_not_up_yet);
	tcase_add_test(t, guest_refuses);
	tcase_add_test(t, host_gives_up_first);
	tcase_add_test(t, host_gives_up_at_once);
	tcase_add_test(t, handshakes_are_bounded);
	tcase_add_test(t, full_table_refuses);
	tcase_add_test(t, no_descriptors_left);
	tcase_add_test(t, dials);
	tcase_add_test(t, dial_refused);
	tcase_add_test(t, dial_of_a_full_backlog);
	tcase_add_test(t, dial_twice);
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
