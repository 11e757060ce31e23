/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to an agent: the hybrid handshake however it arrives, the pool, a hostile peer. Cases C021, C044. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/broker_rig.h"

static struct rig *rig;
static struct vm *vm;
static int listen_fd;

struct want {
	struct guest_waiter waiter;
	struct guest_link *link;
	struct hutch_error err;
	bool failed;
	uint64_t failed_us;
};

static void on_got(struct guest_waiter *w, struct guest_link *g)
{
	container_of(w, struct want, waiter)->link = g;
}

static void on_failed(struct guest_waiter *w, const struct hutch_error *err)
{
	struct want *want = container_of(w, struct want, waiter);

	want->failed = true;
	want->failed_us = clock_us();
	want->err = *err;
}

static bool settled(void *arg)
{
	const struct want *w = arg;

	return w->link || w->failed;
}

static void ask(struct want *w)
{
	*w = (struct want){.waiter = {.got = on_got, .failed = on_failed}};
	hutch_error_clear(&w->err);
	w->link = guest_pool_get(&vm->pool, &w->waiter);
}

/* The calls of a link that a test holds. */
struct user {
	unsigned frames;
	enum frame_type last;
	bool lost;
	struct hutch_error err;
};

static void user_frame(void *arg, const struct frame *f, const uint8_t *raw)
{
	struct user *u = arg;

	(void)raw;
	u->frames++;
	u->last = f->type;
}

static void user_lost(void *arg, const struct hutch_error *err)
{
	struct user *u = arg;

	u->lost = true;
	u->err = *err;
}

static void user_drained(void *arg)
{
	(void)arg;
}

static const struct link_user ops = {user_frame, user_lost, user_drained};

static void setup(void)
{
	rig = rig_new();
	vm = rig_vm(rig, 1000, "", &listen_fd);
}

static void teardown(void)
{
	close(listen_fd);
	rig_free(rig);
}

static size_t hello_frame(uint8_t *out)
{
	const struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION,
					.role = ROLE_AGENT,
					.name = "test/1"};
	struct mp_buf b;
	size_t n;

	mp_buf_init(&b, HUTCH_MAX_HELLO);
	ck_assert_int_eq(msg_hello_encode(&b, &hello), 0);
	n = b.len;
	memcpy(out, b.data, n);
	mp_buf_free(&b);
	return n;
}

static void send_ping(struct guest_link *g)
{
	const struct msg_call ping = {.method = "ping"};
	struct mp_buf b;

	mp_buf_init(&b, 256);
	ck_assert_int_eq(msg_call_encode(&b, &ping, FRAME_END), 0);
	guest_link_send(g, b.data, b.len);
	mp_buf_free(&b);
}

START_TEST(c021_line_and_frames_in_one_write)
{
	uint8_t buf[512] = "OK 1073741826\n";
	struct user user = {.frames = 0};
	size_t n = strlen((char *)buf);
	struct want w;
	int fd;

	ask(&w);
	fd = rig_accept(rig, listen_fd);
	n += hello_frame(buf + n);
	peer_raw(fd, buf, n);
	ck_assert(rig_until(rig, 2000, settled, &w));
	ck_assert_ptr_nonnull(w.link);
	ck_assert_str_eq(w.link->hello.name, "test/1");
	guest_link_take(w.link, &ops, &user);
	send_ping(w.link);
	rig_turn(rig);
	peer_send(fd, FRAME_EVENT, 0, "\x80", 1);
	peer_send(fd, FRAME_RESULT, FRAME_END, "\x80", 1);
	rig_turn(rig);
	ck_assert_uint_eq(user.frames, 2);
	ck_assert(guest_link_clean(w.link));
	guest_pool_put(&vm->pool, w.link);
	ck_assert_uint_eq(vm->pool.idle.count, 1);
	close(fd);
}
END_TEST

START_TEST(c021_a_byte_at_a_time)
{
	uint8_t buf[512] = "OK 12\n";
	size_t n = 6 + hello_frame(buf + 6);
	struct want w;
	int fd;

	ask(&w);
	fd = rig_accept(rig, listen_fd);
	for (size_t i = 0; i < n; i++) {
		ck_assert(!settled(&w));
		peer_raw(fd, buf + i, 1);
		rig_turn(rig);
	}
	ck_assert(rig_until(rig, 2000, settled, &w));
	ck_assert_ptr_nonnull(w.link);
	guest_pool_put(&vm->pool, w.link);
	close(fd);
}
END_TEST

static const char *const bad_lines[] = {"",	    "OK\n",	 "OK \n",    "NO 12\n",
					"OK 12x\n", "OKAY 12\n", "OK -1\n",  "\n",
					"OK 12 \n", "ok 12\n",	 "OK\t12\n", "HTTP/1.1 200 OK\r\n"};

/* Whatever is no OK line ends that dial, and the call is served by the next one. */
START_TEST(c021_other_lines)
{
	const char *line = bad_lines[_i];
	struct want w;
	int fd;

	ask(&w);
	fd = rig_accept(rig, listen_fd);
	if (line[0])
		peer_raw(fd, line, strlen(line));
	else
		close(fd);
	rig_turn(rig);
	ck_assert(!settled(&w));
	if (line[0]) {
		peer_expect_end(rig, fd);
		close(fd);
	}
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &w));
	ck_assert_ptr_nonnull(w.link);
	guest_pool_put(&vm->pool, w.link);
	close(fd);
}
END_TEST

START_TEST(c021_line_without_end)
{
	char digits[1u << 16];
	struct want w;
	int fd;

	memset(digits, '7', sizeof(digits));
	memcpy(digits, "OK ", 3);
	ask(&w);
	fd = rig_accept(rig, listen_fd);
	peer_raw(fd, digits, sizeof(digits));
	peer_expect_end(rig, fd);
	ck_assert(!settled(&w));
	close(fd);
	guest_pool_cancel(&w.waiter);
}
END_TEST

/* Nobody answers: the call fails in time, by name, and is retryable. */
START_TEST(c021_silence)
{
	uint64_t begun = clock_us();
	struct want w;
	int fds[16];
	int n = 0;

	ask(&w);
	while (!settled(&w)) {
		int fd = rig_accept(rig, listen_fd);

		if (fd < 0)
			break;
		ck_assert_int_lt(n, 16);
		fds[n++] = fd;
	}
	ck_assert(rig_until(rig, 6000, settled, &w));
	ck_assert(w.failed);
	ck_assert_int_eq(w.err.kind, HUTCH_E_NOT_DISPATCHED);
	ck_assert(w.err.retryable);
	ck_assert_uint_le(w.failed_us - begun, 5000000);
	for (int i = 0; i < n; i++)
		close(fds[i]);
}
END_TEST

/* Refused ten times, hung once, then served: one call, few connects. */
START_TEST(c044_refusals_and_a_hang)
{
	int hung, fd, dials = 0;
	struct want w;

	ask(&w);
	for (; dials < 10; dials++)
		close(rig_accept(rig, listen_fd));
	hung = rig_accept(rig, listen_fd);
	ck_assert_int_ge(hung, 0);
	ck_assert(!settled(&w));
	fd = rig_agent(rig, listen_fd);
	ck_assert_int_ge(fd, 0);
	ck_assert(rig_until(rig, 2000, settled, &w));
	ck_assert_ptr_nonnull(w.link);
	guest_pool_put(&vm->pool, w.link);
	close(hung);
	close(fd);
}
END_TEST

START_TEST(waits_until_the_vm_runs)
{
	struct want w;
	int fd;

	vm->pool.open = false;
	ask(&w);
	ck_assert(!rig_until(rig, 50, settled, &w));
	guest_pool_open(&vm->pool, true);
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &w));
	ck_assert_ptr_nonnull(w.link);
	guest_pool_put(&vm->pool, w.link);
	close(fd);
}
END_TEST

START_TEST(stale_link_is_not_given_out)
{
	struct want w, again;
	int fd;

	ask(&w);
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &w));
	guest_pool_put(&vm->pool, w.link);
	close(fd); /* and the loop has not seen it yet */
	ask(&again);
	ck_assert_ptr_null(again.link);
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &again));
	guest_pool_put(&vm->pool, again.link);
	close(fd);
}
END_TEST

START_TEST(more_links_than_are_kept)
{
	struct want w[8];
	int fds[8];

	for (int i = 0; i < 8; i++)
		ask(&w[i]);
	for (int i = 0; i < 8; i++)
		fds[i] = rig_agent(rig, listen_fd);
	for (int i = 0; i < 8; i++)
		ck_assert(rig_until(rig, 2000, settled, &w[i]));
	ck_assert_uint_eq(vm->pool.busy.count, 8);
	for (int i = 0; i < 8; i++) {
		struct user user = {.frames = 0};

		guest_link_take(w[i].link, &ops, &user);
		guest_pool_put(&vm->pool, w[i].link);
	}
	ck_assert_uint_eq(vm->pool.busy.count, 0);
	ck_assert_uint_eq(vm->pool.idle.count, POOL_IDLE);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
}
END_TEST

/* The end of the VM reaches those who wait and those who call. */
START_TEST(end_of_the_pool)
{
	struct user user = {.frames = 0};
	struct hutch_error err;
	struct want w, waiting;
	int fd;

	ask(&w);
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &w));
	guest_link_take(w.link, &ops, &user);
	ask(&waiting);
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_VM_DIED, 0, "gone");
	guest_pool_end(&vm->pool, &err);
	ck_assert(user.lost && user.err.kind == HUTCH_E_VM_DIED);
	ck_assert(waiting.failed && waiting.err.kind == HUTCH_E_VM_DIED);
	close(fd);
}
END_TEST

struct bytes {
	const char *what;
	const char *data;
	size_t len;
};

#define BYTES(what, text)                    \
	{                                    \
		what, text, sizeof(text) - 1 \
	}
/* What a hostile agent may send while a call is open. */
static const struct bytes hostile[] = {
	BYTES("unknown type", "\0\0\0\0\x63\0\0\0"),
	BYTES("reserved bits", "\0\0\0\0\x11\0\0\1"),
	BYTES("unknown flag", "\0\0\0\0\x11\2\0\0"),
	BYTES("too long a STDOUT", "\0\1\0\1\x11\0\0\0"),
	BYTES("too long a RESULT", "\xff\xff\xff\xff\3\1\0\0"),
	BYTES("a CALL", "\0\0\0\1\2\1\0\0\x80"),
	BYTES("a HELLO", "\0\0\0\1\1\0\0\0\x80"),
	BYTES("STDIN", "\0\0\0\1\x10\0\0\0x"),
	BYTES("RESULT without END", "\0\0\0\1\3\0\0\0\x80"),
	BYTES("STDOUT with END", "\0\0\0\1\x11\1\0\0x"),
};

START_TEST(hostile_answers)
{
	const struct bytes *b = &hostile[_i];
	struct user user = {.frames = 0};
	struct want w;
	int fd;

	ask(&w);
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &w));
	guest_link_take(w.link, &ops, &user);
	send_ping(w.link);
	peer_raw(fd, b->data, b->len);
	rig_turn(rig);
	ck_assert_msg(user.lost, "%s", b->what);
	ck_assert_int_eq(user.err.kind, HUTCH_E_INTERNAL);
	ck_assert_uint_eq(user.frames, 0);
	ck_assert_uint_eq(vm->pool.busy.count, 0);
	close(fd);
}
END_TEST

/* An answer nobody asked for costs the idle link. */
START_TEST(hostile_while_idle)
{
	struct user user = {.frames = 0};
	struct want w;
	int fd;

	ask(&w);
	fd = rig_agent(rig, listen_fd);
	ck_assert(rig_until(rig, 2000, settled, &w));
	guest_link_take(w.link, &ops, &user);
	send_ping(w.link);
	peer_send(fd, FRAME_RESULT, FRAME_END, "\x80", 1);
	rig_turn(rig);
	guest_pool_put(&vm->pool, w.link);
	ck_assert_uint_eq(vm->pool.idle.count, 1);
	peer_send(fd, FRAME_RESULT, FRAME_END, "\x80", 1);
	rig_turn(rig);
	ck_assert_uint_eq(vm->pool.idle.count, 0);
	close(fd);
}
END_TEST

static const char *const bad_hellos[] = {
	"\0\0\0\1\2\1\0\0\x80",			/* a CALL first */
	"\0\0\0\1\1\0\0\0\x80",			/* without proto */
	"\0\0\0\5\1\0\0\0\xdf\xff\xff\xff\xff", /* a map of 4 billion entries */
	"\0\0\x10\1\1\0\0\0",			/* longer than a HELLO may be */
};
static const size_t bad_hello_len[] = {9, 9, 13, 8};

START_TEST(hostile_hello)
{
	struct want w;
	int fd;

	ask(&w);
	fd = rig_accept(rig, listen_fd);
	peer_raw(fd, "OK 1\n", 5);
	peer_raw(fd, bad_hellos[_i], bad_hello_len[_i]);
	peer_expect(rig, fd, FRAME_HELLO, 0, NULL);
	peer_expect_end(rig, fd);
	ck_assert(!settled(&w));
	close(fd);
	guest_pool_cancel(&w.waiter);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("guest_link");
	TCase *t = tcase_create("links and pool");
	SRunner *r;
	int failed;

	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, c021_line_and_frames_in_one_write);
	tcase_add_test(t, c021_a_byte_at_a_time);
	tcase_add_loop_test(t, c021_other_lines, 0, sizeof(bad_lines) / sizeof(bad_lines[0]));
	tcase_add_test(t, c021_line_without_end);
	tcase_add_test(t, c021_silence);
	tcase_add_test(t, c044_refusals_and_a_hang);
	tcase_add_test(t, waits_until_the_vm_runs);
	tcase_add_test(t, stale_link_is_not_given_out);
	tcase_add_test(t, more_links_than_are_kept);
	tcase_add_test(t, end_of_the_pool);
	tcase_add_loop_test(t, hostile_answers, 0, sizeof(hostile) / sizeof(hostile[0]));
	tcase_add_test(t, hostile_while_idle);
	tcase_add_loop_test(t, hostile_hello, 0, 4);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
