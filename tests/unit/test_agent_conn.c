/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's connections, whole but for main(): streams that are cut, damaged and fed in pieces, over a socket
 * pair and the real loop. No peer may do more than end its own connection.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/conn.h"
#include "guest/exec.h"
#include "guest/exec_table.h"
#include "guest/leftover.h"
#include "guest/log.h"
#include "guest/loop.h"
#include "guest/reap.h"
#include "guest/ring.h"
#include "protocol/msg_exec.h"

struct agent agent = {.null_fd = -1, .proc_fd = -1, .oom_fd = -1};

static void stop(struct loop_task *t)
{
	(void)t;
	loop_stop();
}

/* Passes of the loop, without waiting. */
static void passes(int n)
{
	struct loop_task t = {.run = stop};

	while (n-- > 0) {
		loop_task_queue(&t);
		loop_run();
	}
}

/* A child that is just starting a program still holds our end for a moment, so its close may come late. */
static void all_closed(void)
{
	for (int i = 0; i < 5000 && conn_count(); i++) {
		passes(1);
		usleep(i ? 1000 : 0);
	}
	ck_assert_uint_eq(conn_count(), 0);
}

static int peer_of_new_conn(struct conn **c)
{
	int p[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p), 0);
	*c = conn_open(p[0]);
	ck_assert_ptr_nonnull(*c);
	return p[1];
}

static void put_hello(struct mp_buf *b)
{
	const struct msg_hello hello = {.proto = 1, .role = ROLE_BROKER, .name = "test"};

	msg_hello_encode(b, &hello);
}

static void put_call(struct mp_buf *b, const char *method, const char *id,
		     const struct mp_buf *params, unsigned flags)
{
	struct msg_call call = {0};

	strcpy(call.method, method);
	strcpy(call.id, id);
	if (params) {
		call.params = params->data;
		call.params_len = params->len;
	}
	msg_call_encode(b, &call, flags);
}

static void put_stdin(struct mp_buf *b, const char *text, unsigned flags)
{
	size_t start = mp_frame_begin(b);

	mp_put_raw(b, text, strlen(text));
	mp_frame_finish(b, start, FRAME_STDIN, flags);
}

static void put_start(struct mp_buf *b, const char *program, const char *id, unsigned flags)
{
	char name[32], *argv[] = {name, NULL};
	struct exec_start m = {.argv = argv, .argc = 1, .drain_ms = 50};
	struct mp_buf params;

	strcpy(name, program);
	mp_buf_init(&params, 0);
	exec_start_encode_params(&params, &m);
	put_call(b, "exec.start", id, &params, flags);
	mp_buf_free(&params);
}

/* A conversation with something of everything. */
static void put_stream(struct mp_buf *b)
{
	const struct exec_event ack = {.type = EXEC_EVENT_ACK, .stdout_offset = 3};

	put_hello(b);
	put_call(b, "ping", "", NULL, FRAME_END);
	put_call(b, "exec.list", "", NULL, FRAME_END);
	put_call(b, "exec.wait", "nobody", NULL, FRAME_END);
	put_start(b, "cat", "one", 0);
	put_stdin(b, "some input", 0);
	exec_event_encode(b, &ack);
	put_stdin(b, "", FRAME_END);
	put_call(b, "agent.info", "", NULL, FRAME_END);
}

static ssize_t drain_peer(int fd, uint8_t *buf, size_t size)
{
	ssize_t n, all = 0;

	while ((n = recv(fd, buf + all, size - (size_t)all, 0)) > 0)
		all += n;
	return all;
}

/* Frames of these types, in order, are what fd has to read. */
static void expect_types(int fd, const char *types)
{
	static uint8_t buf[1 << 16];
	size_t n = (size_t)drain_peer(fd, buf, sizeof(buf)), at = 0;
	struct hutch_error err = {0};

	for (; *types; types++) {
		struct frame f;

		ck_assert_msg(n - at >= HUTCH_FRAME_HEADER, "an answer is missing");
		ck_assert_int_eq(frame_decode(buf + at, &f, &err), 0);
		ck_assert_int_eq(f.type, *types == 'H'	 ? FRAME_HELLO
					 : *types == 'R' ? FRAME_RESULT
							 : FRAME_ERROR);
		at += HUTCH_FRAME_HEADER + f.length;
	}
	ck_assert_uint_eq(at, n);
}

START_TEST(test_calls_in_any_pieces)
{
	struct mp_buf b;
	struct conn *c;

	mp_buf_init(&b, 0);
	put_hello(&b);
	put_call(&b, "ping", "", NULL, FRAME_END);
	put_call(&b, "no.such", "", NULL, FRAME_END);
	put_call(&b, "exec.wait", "nobody", NULL, FRAME_END);
	for (size_t piece = 1; piece <= b.len; piece += piece < 20 ? 1 : 37) {
		int fd = peer_of_new_conn(&c);

		for (size_t at = 0; at < b.len; at += piece) {
			size_t n = b.len - at < piece ? b.len - at : piece;

			ck_assert_int_eq(send(fd, b.data + at, n, 0), (ssize_t)n);
			passes(1);
		}
		passes(2);
		expect_types(fd, "HRAA");
		close(fd);
		all_closed();
	}
	mp_buf_free(&b);
}
END_TEST

/* Damage, cut, and split at random; then see that a new connection is served. */
static void one_bad_stream(const struct mp_buf *good, uint8_t *bytes)
{
	size_t len = good->len, at = 0;
	struct conn *c;
	int fd = peer_of_new_conn(&c);

	memcpy(bytes, good->data, len);
	for (int i = rand() % 4; i >= 0; i--)
		bytes[(size_t)rand() % len] = (uint8_t)rand();
	if (rand() % 3 == 0)
		len = 1 + (size_t)rand() % len;
	while (at < len) {
		size_t n = 1 + (size_t)rand() % (len - at);
		ssize_t sent = send(fd, bytes + at, n, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN)
			break;
		at += sent > 0 ? (size_t)sent : 0;
		passes(1);
		if (rand() % 2)
			drain_peer(fd, bytes + good->len, good->len);
	}
	if (rand() % 2)
		shutdown(fd, SHUT_WR);
	passes(2);
	close(fd);
	all_closed();
}

START_TEST(test_damaged_streams)
{
	struct mp_buf good, ping;
	uint8_t *bytes;

	mp_buf_init(&good, 0);
	mp_buf_init(&ping, 0);
	put_stream(&good);
	put_hello(&ping);
	put_call(&ping, "ping", "", NULL, FRAME_END);
	bytes = malloc(2 * good.len);
	srand(11);
	for (int i = 0; i < 10000; i++) {
		struct conn *c;
		int fd;

		one_bad_stream(&good, bytes);
		if (i % 50)
			continue;
		fd = peer_of_new_conn(&c);
		ck_assert_int_eq(send(fd, ping.data, ping.len, 0), (ssize_t)ping.len);
		passes(2);
		expect_types(fd, "HR");
		close(fd);
		all_closed();
	}
	free(bytes);
	mp_buf_free(&good);
	mp_buf_free(&ping);
}
END_TEST

static bool kill_one(struct exec *e, void *arg)
{
	(void)arg;
	if (e->state == EXEC_RUNNING)
		exec_kill(e, 0);
	return true;
}

static void setup(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), false);
	agent.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	agent.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	getrlimit(RLIMIT_NOFILE, &agent.nofile);
	ck_assert_int_eq(loop_init(), 0);
	ck_assert_int_eq(reap_init(), 0);
}

static void teardown(void)
{
	conn_close_all();
	exec_each(kill_one, NULL);
	exec_forget_all();
	leftover_close_all();
	reap_exit();
	loop_exit();
	ck_assert_uint_eq(ring_total(), 0);
}

int main(void)
{
	Suite *s = suite_create("agent_conn");
	TCase *t = tcase_create("conn");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 100);
	tcase_add_test(t, test_calls_in_any_pieces);
	tcase_add_test(t, test_damaged_streams);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
