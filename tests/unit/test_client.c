/* SPDX-License-Identifier: Apache-2.0 */
/* libhutch against a peer that behaves well, badly, slowly, or not at all. */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/msg_exec.h"
#include "tests/unit/client_peer.h"
#include "tools/client/hutch.h"

/* ---- A connection, and a thread at its other end ---- */

struct rig {
	struct hutch *h;
	struct peer peer;
	pthread_t thread;
	void (*play)(struct peer *p);
};

static void *play(void *arg)
{
	struct rig *rig = arg;

	rig->play(&rig->peer);
	peer_free(&rig->peer);
	return NULL;
}

static void rig_start(struct rig *rig, void (*script)(struct peer *p), void *arg)
{
	struct hutch_failure why;
	int fds[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	*rig = (struct rig){.play = script, .peer = {.fd = fds[1], .arg = arg}};
	rig->h = hutch_open_fd(fds[0], "test", &why);
	ck_assert_ptr_nonnull(rig->h);
	ck_assert_int_eq(pthread_create(&rig->thread, NULL, play, rig), 0);
}

static void rig_end(struct rig *rig)
{
	hutch_close(rig->h);
	pthread_join(rig->thread, NULL);
}

static const struct hutch_call ping = {.method = "ping"};

static void expect_failure(struct rig *rig, const char *kind)
{
	struct hutch_failure why = {0};

	ck_assert_ptr_null(hutch_request(rig->h, &ping, 10000, &why));
	ck_assert_str_eq(why.kind, kind);
	ck_assert_str_ne(why.message, "");
}

static void expect_answer(struct rig *rig)
{
	struct hutch_failure why = {0};
	struct hutch_doc *doc = hutch_request(rig->h, &ping, 10000, &why);

	ck_assert_msg(doc != NULL, "%s", why.message);
	hutch_doc_free(doc);
}

/* ---- Requests ---- */

static void answer_two(struct peer *p)
{
	struct mp_buf b;

	peer_hello(p);
	peer_call(p);
	ck_assert_str_eq(p->call.method, "vm.info");
	ck_assert_str_eq(p->call.vm, "box");
	ck_assert_uint_eq(p->call_flags, FRAME_END);
	peer_event(p, "whatever");
	mp_buf_init(&b, 1 << 16);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_str(&b, "id", "abc");
	mp_kv_uint(&b, "pid", 5000000000);
	mp_kv_bool(&b, "yes", true);
	mp_key(&b, "none");
	mp_put_nil(&b);
	mp_key(&b, "list");
	mp_array_begin(&b);
	mp_put_bin(&b, "\0\377", 2);
	mp_map_begin(&b);
	mp_kv_uint(&b, "deep", 1);
	mp_map_end(&b);
	mp_array_end(&b);
	mp_map_end(&b);
	peer_finish(p, &b, FRAME_RESULT, FRAME_END);
	peer_call(p);
	peer_empty(p);
}

START_TEST(test_request)
{
	struct hutch_call call = {.method = "vm.info", .vm = "box"};
	struct hutch_failure why = {0};
	const struct hutch_value *root, *list;
	struct hutch_doc *doc;
	struct rig rig;

	rig_start(&rig, answer_two, NULL);
	doc = hutch_request(rig.h, &call, 0, &why);
	ck_assert_msg(doc != NULL, "%s", why.message);
	root = hutch_doc_root(doc);
	ck_assert_str_eq(hutch_get_text(root, "id", ""), "abc");
	ck_assert_uint_eq(hutch_get_uint(root, "pid", 0), 5000000000);
	ck_assert(hutch_get_bool(root, "yes", false));
	ck_assert_ptr_null(hutch_get(root, "none"));
	ck_assert_str_eq(hutch_get_text(root, "pid", "other type"), "other type");
	list = hutch_get(root, "list");
	ck_assert_uint_eq(list->as.array.count, 2);
	ck_assert_uint_eq(list->as.array.items[0].as.text.len, 2);
	ck_assert_mem_eq(list->as.array.items[0].as.text.data, "\0\377", 3);
	ck_assert_uint_eq(hutch_get_uint(&list->as.array.items[1], "deep", 0), 1);
	hutch_doc_free(doc);
	expect_answer(&rig);
	rig_end(&rig);
}
END_TEST

/* A sequenced-packet socket keeps the bounds of writes. */
START_TEST(test_hello_and_call_in_one_write)
{
	struct hutch_failure why;
	uint8_t buf[4096];
	struct frame f;
	struct hutch_error err;
	struct hutch *h;
	int fds[2];
	ssize_t n;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	h = hutch_open_fd(fds[0], NULL, &why);
	ck_assert_int_eq(hutch_start(h, &ping, &why), 0);
	n = recv(fds[1], buf, sizeof(buf), 0);
	ck_assert_int_gt(n, 2 * (int)HUTCH_FRAME_HEADER);
	ck_assert_int_eq(frame_decode(buf, &f, &err), 0);
	ck_assert_int_eq(f.type, FRAME_HELLO);
	ck_assert_int_eq(frame_decode(buf + HUTCH_FRAME_HEADER + f.length, &f, &err), 0);
	ck_assert_int_eq(f.type, FRAME_CALL);
	ck_assert_int_eq(recv(fds[1], buf, sizeof(buf), MSG_DONTWAIT), -1);
	hutch_close(h);
	close(fds[1]);
}
END_TEST

/* Everything it says, byte by byte. */
static void answer_split(struct peer *p)
{
	uint8_t all[4096];
	size_t len = 0;
	ssize_t n;
	int fds[2];
	struct peer rec;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	rec = (struct peer){.fd = fds[0]};
	peer_hello(&rec);
	peer_text(&rec, FRAME_STDOUT, "out");
	peer_data(&rec, FRAME_STDOUT, "", 0);
	peer_text(&rec, FRAME_STDERR, "err");
	peer_exit(&rec, 3);
	peer_free(&rec);
	while ((n = recv(fds[1], all + len, sizeof(all) - len, 0)) > 0)
		len += (size_t)n;
	close(fds[1]);
	peer_call(p);
	for (size_t i = 0; i < len; i++)
		peer_bytes(p, all + i, 1);
}

struct heard {
	char out[64], err[64];
	size_t out_len, err_len;
	unsigned events;
	int answer;
};

static int hear_out(void *arg, const void *data, size_t len)
{
	struct heard *heard = arg;

	ck_assert_uint_le(heard->out_len + len, sizeof(heard->out));
	memcpy(heard->out + heard->out_len, data, len);
	heard->out_len += len;
	return heard->answer;
}

static int hear_err(void *arg, const void *data, size_t len)
{
	struct heard *heard = arg;

	ck_assert_uint_le(heard->err_len + len, sizeof(heard->err));
	memcpy(heard->err + heard->err_len, data, len);
	heard->err_len += len;
	return 0;
}

static const char *const true_argv[] = {"true", NULL};

START_TEST(test_split_frames)
{
	struct hutch_exec_options x = {.argv = true_argv};
	struct heard heard = {0};
	struct hutch_exec_handlers on = {.arg = &heard,
					 .on_stdout = hear_out,
					 .on_stderr = hear_err};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_split, NULL);
	ck_assert_msg(hutch_exec(rig.h, "box", &x, &on, 10000, &r, &why) == 0, "%s", why.message);
	ck_assert_uint_eq(r.exit_code, 3);
	ck_assert_uint_eq(heard.out_len, 3);
	ck_assert_mem_eq(heard.out, "out", 3);
	ck_assert_uint_eq(heard.err_len, 3);
	ck_assert_mem_eq(heard.err, "err", 3);
	rig_end(&rig);
}
END_TEST

/* ---- Errors of the broker ---- */

static void answer_error(struct peer *p)
{
	struct hutch_error e = {0};
	struct mp_buf b;

	peer_hello(p);
	peer_call(p);
	hutch_error_set(&e, HUTCH_E_BUSY, EAGAIN, "no room for VM 7");
	strcpy(e.stage, "admit");
	strcpy(e.path, "/some/file");
	mp_buf_init(&b, 1 << 16);
	msg_error_encode(&b, &e);
	peer_bytes(p, b.data, b.len);
	mp_buf_free(&b);
	peer_call(p);
	peer_empty(p);
}

START_TEST(test_error_leaves_the_connection)
{
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_error, NULL);
	ck_assert_ptr_null(hutch_request(rig.h, &ping, 10000, &why));
	ck_assert_str_eq(why.kind, "busy");
	ck_assert_int_eq(why.errnum, EAGAIN);
	ck_assert_str_eq(why.message, "no room for VM 7");
	ck_assert_str_eq(why.stage, "admit");
	ck_assert_str_eq(why.path, "/some/file");
	ck_assert(why.retryable);
	ck_assert(hutch_alive(rig.h));
	expect_answer(&rig);
	rig_end(&rig);
}
END_TEST

static void refuse_at_once(struct peer *p)
{
	peer_error(p, HUTCH_E_BUSY, 0, "too many connections");
}

START_TEST(test_error_instead_of_hello)
{
	struct rig rig;

	rig_start(&rig, refuse_at_once, NULL);
	expect_failure(&rig, "busy");
	ck_assert(!hutch_alive(rig.h));
	expect_failure(&rig, "not_dispatched");
	rig_end(&rig);
}
END_TEST

/* ---- Connections that end ---- */

static void close_after_call(struct peer *p)
{
	peer_hello(p);
	peer_call(p);
}

START_TEST(test_lost_after_the_call)
{
	struct rig rig;

	rig_start(&rig, close_after_call, NULL);
	expect_failure(&rig, "outcome_unknown");
	ck_assert(!hutch_alive(rig.h));
	rig_end(&rig);
}
END_TEST

static void close_in_a_frame(struct peer *p)
{
	peer_hello(p);
	peer_call(p);
	peer_bytes(p, "\0\0\1", 3);
}

static void close_in_output(struct peer *p)
{
	peer_hello(p);
	peer_call(p);
	peer_bytes(p, "\0\0\0\11\21\0\0\0half", 12);
}

START_TEST(test_lost_in_a_frame)
{
	struct rig rig;

	rig_start(&rig, close_in_a_frame, NULL);
	expect_failure(&rig, "outcome_unknown");
	rig_end(&rig);
	rig_start(&rig, close_in_output, NULL);
	expect_failure(&rig, "outcome_unknown");
	rig_end(&rig);
}
END_TEST

static void close_between_calls(struct peer *p)
{
	peer_hello(p);
	peer_call(p);
	peer_empty(p);
}

START_TEST(test_lost_before_the_call)
{
	struct rig rig;

	rig_start(&rig, close_between_calls, NULL);
	expect_answer(&rig);
	pthread_join(rig.thread, NULL);
	expect_failure(&rig, "not_dispatched");
	hutch_close(rig.h);
}
END_TEST

/* A call that is larger than the socket's buffers, of which only a part was taken. */
static void close_without_reading(struct peer *p)
{
	(void)p;
}

START_TEST(test_lost_in_the_call)
{
	static char text[900000];
	const struct hutch_pair param = {"text",
					 {.type = HUTCH_TEXT, .as.text = {text, sizeof(text)}}};
	struct hutch_call call = {.method = "ping", .params = &param, .param_count = 1};
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, close_without_reading, NULL);
	ck_assert_ptr_null(hutch_request(rig.h, &call, 10000, &why));
	ck_assert_str_eq(why.kind, "not_dispatched");
	rig_end(&rig);
}
END_TEST

static void say_nothing(struct peer *p)
{
	struct frame f;

	while (peer_frame(p, &f))
		;
}

START_TEST(test_timeout)
{
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, say_nothing, NULL);
	ck_assert_ptr_null(hutch_request(rig.h, &ping, 50, &why));
	ck_assert_str_eq(why.kind, "timeout");
	ck_assert(!hutch_alive(rig.h));
	rig_end(&rig);
}
END_TEST

/* ---- Peers that break the protocol ---- */

struct offence {
	const char *bytes;
	size_t len;
	bool hello; /* said before */
	const char *kind;
};

#define BYTES(s) s, sizeof(s) - 1
static const struct offence offences[] = {
	{BYTES("GET / HTTP/1.1\r\n\r\n"), false, "protocol"},
	{BYTES("\0\0\0\1\3\1\0\0\x80"), false, "protocol"},    /* a RESULT before HELLO */
	{BYTES("\0\0\0\1\21\0\0\0x"), false, "protocol"},      /* output before HELLO */
	{BYTES("\0\0\0\1\3\0\0\0\x80"), true, "protocol"},     /* a RESULT without END */
	{BYTES("\0\0\0\1\5\1\0\0\x80"), true, "protocol"},     /* an EVENT with END */
	{BYTES("\0\0\0\1\21\1\0\0x"), true, "protocol"},       /* output with END */
	{BYTES("\0\0\0\1\20\0\0\0x"), true, "protocol"},       /* STDIN */
	{BYTES("\0\0\0\1\2\1\0\0\x80"), true, "protocol"},     /* a CALL */
	{BYTES("\0\0\0\1\1\0\0\0\x80"), true, "protocol"},     /* a second HELLO */
	{BYTES("\0\0\0\1\3\1\0\1\x80"), true, "protocol"},     /* reserved bits */
	{BYTES("\0\0\0\1\3\2\0\0\x80"), true, "protocol"},     /* an unknown flag */
	{BYTES("\0\0\0\1\77\0\0\0\x80"), true, "protocol"},    /* an unknown type */
	{BYTES("\377\377\377\377\3\1\0\0"), true, "protocol"}, /* too long */
	{BYTES("\0\0\0\1\3\1\0\0\x90"), true, "protocol"},     /* no map */
	{BYTES("\0\0\0\5\3\1\0\0\xdf\377\377\377\377"), true, "protocol"}, /* a map bomb */
	{BYTES("\0\0\0\2\3\1\0\0\x80\x80"), true, "protocol"},		   /* trailing bytes */
	{BYTES("\0\0\0\x14\1\0\0\0\x82\xa5proto\x02\xa4role\xa6"
	       "broker"),
	 false, "unsupported"}, /* HELLO of version 2 */
};

static void offend(struct peer *p)
{
	const struct offence *o = p->arg;
	struct frame f;

	if (o->hello)
		peer_hello(p);
	peer_call(p);
	peer_bytes(p, o->bytes, o->len);
	while (peer_frame(p, &f))
		;
}

START_TEST(test_offence)
{
	struct offence o = offences[_i];
	struct rig rig;

	rig_start(&rig, offend, &o);
	expect_failure(&rig, o.kind);
	ck_assert(!hutch_alive(rig.h));
	rig_end(&rig);
}
END_TEST

/* ---- What the caller gets wrong ---- */

START_TEST(test_one_call_at_a_time)
{
	struct hutch_failure why = {0};
	struct hutch_item item;
	struct rig rig;

	rig_start(&rig, say_nothing, NULL);
	ck_assert_int_eq(hutch_next(rig.h, &item, &why), HUTCH_FAILED);
	ck_assert_str_eq(why.kind, "state");
	ck_assert_int_eq(hutch_start(rig.h, &ping, &why), 0);
	ck_assert_int_eq(hutch_start(rig.h, &ping, &why), -1);
	ck_assert_str_eq(why.kind, "state");
	ck_assert_uint_eq(hutch_send(rig.h, "x", 1), 0);
	ck_assert(hutch_alive(rig.h));
	rig_end(&rig);
}
END_TEST

START_TEST(test_calls_that_do_not_fit)
{
	static char text[2 << 20];
	struct hutch_value deep[12] = {[0] = {.type = HUTCH_BOOL}};
	struct hutch_pair param = {"text", {.type = HUTCH_TEXT, .as.text = {text, sizeof(text)}}};
	struct hutch_call call = {.method = "ping", .params = &param, .param_count = 1};
	struct hutch_exec_options both = {.argv = true_argv, .shell = "true"};
	struct hutch_failure why = {0};
	struct rig rig;

	memset(text, 'a', sizeof(text) - 1);
	rig_start(&rig, answer_two, NULL);
	ck_assert_ptr_null(hutch_request(rig.h, &call, 1000, &why));
	ck_assert_str_eq(why.kind, "too_large");
	for (size_t i = 1; i < 12; i++)
		deep[i] = hutch_array(&deep[i - 1], 1);
	param.value = deep[11];
	ck_assert_ptr_null(hutch_request(rig.h, &call, 1000, &why));
	ck_assert_str_eq(why.kind, "invalid");
	call = (struct hutch_call){.method = "vm.info", .vm = text};
	ck_assert_ptr_null(hutch_request(rig.h, &call, 1000, &why));
	ck_assert_str_eq(why.kind, "invalid");
	ck_assert_int_eq(hutch_start_exec(rig.h, "box", &both, &why), -1);
	ck_assert_str_eq(why.kind, "invalid");
	/* Nothing of these was sent. */
	call = (struct hutch_call){.method = "vm.info", .vm = "box"};
	hutch_doc_free(hutch_request(rig.h, &call, 10000, &why));
	expect_answer(&rig);
	rig_end(&rig);
}
END_TEST

/* ---- Exec ---- */

#define BULK (8u << 20)

static void answer_bulk(struct peer *p)
{
	static char chunk[HUTCH_MAX_DATA];
	struct exec_start m;
	struct hutch_error err = {0};

	peer_hello(p);
	peer_call(p);
	ck_assert_int_eq(exec_start_decode(&m, p->call.params, p->call.params_len, &err), 0);
	ck_assert_uint_eq(m.argc, 2);
	ck_assert_str_eq(m.argv[1], "");
	ck_assert_uint_eq(m.env_pairs, 2);
	ck_assert_str_eq(m.env[1], "x=y");
	ck_assert_ptr_null(m.env[3]);
	ck_assert_str_eq(m.cwd, "/tmp");
	ck_assert_uint_eq(m.timeout_ms, 1500);
	ck_assert(!m.pty && !m.shell && m.drain_ms == HUTCH_DEFAULT_DRAIN_MS);
	exec_start_free(&m);
	for (size_t i = 0; i < sizeof(chunk); i++)
		chunk[i] = (char)(i * 31);
	for (size_t at = 0; at < BULK; at += sizeof(chunk))
		peer_data(p, FRAME_STDOUT, chunk, sizeof(chunk));
	peer_exit(p, 0);
}

static int count_bulk(void *arg, const void *data, size_t len)
{
	size_t *at = arg;
	const char *p = data;

	for (size_t i = 0; i < len; i++)
		if (p[i] != (char)((*at + i) % HUTCH_MAX_DATA * 31))
			return 1;
	*at += len;
	return 0;
}

START_TEST(test_exec_bulk_output)
{
	const char *const argv[] = {"cat", "", NULL};
	const char *const env[] = {"A", "x=y", "GONE", NULL, NULL};
	struct hutch_exec_options x = {.argv = argv, .env = env, .cwd = "/tmp", .timeout_ms = 1500};
	size_t at = 0;
	struct hutch_exec_handlers on = {.arg = &at, .on_stdout = count_bulk};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_bulk, NULL);
	ck_assert_msg(hutch_exec(rig.h, "box", &x, &on, 0, &r, &why) == 0, "%s", why.message);
	ck_assert_uint_eq(at, BULK);
	ck_assert(r.started && r.exit_code == 0 && r.pid == 7);
	rig_end(&rig);
}
END_TEST

/* cat: gives back what it gets, at once. */
static void answer_cat(struct peer *p)
{
	struct frame f = {0};

	peer_hello(p);
	while (peer_call(p)) {
		ck_assert_uint_eq(p->call_flags, 0);
		do {
			ck_assert(peer_frame(p, &f));
			ck_assert_int_eq(f.type, FRAME_STDIN);
			peer_data(p, FRAME_STDOUT, p->payload, f.length);
		} while (!(f.flags & FRAME_END));
		peer_exit(p, 0);
	}
}

struct echo {
	size_t sent, got;
};

static int echo_in(void *arg, void *buf, size_t size, size_t *len)
{
	struct echo *e = arg;
	size_t left = BULK - e->sent;

	*len = left < size ? left : size;
	for (size_t i = 0; i < *len; i++)
		((char *)buf)[i] = (char)((e->sent + i) % 251);
	e->sent += *len;
	return 0;
}

static int echo_out(void *arg, const void *data, size_t len)
{
	struct echo *e = arg;

	for (size_t i = 0; i < len; i++)
		if (((const char *)data)[i] != (char)((e->got + i) % 251))
			return 1;
	e->got += len;
	return 0;
}

START_TEST(test_exec_input_and_output)
{
	struct hutch_exec_options x = {.shell = "cat", .input = true};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_cat, NULL);
	for (int i = 0; i < 2; i++) {
		struct echo e = {0};
		struct hutch_exec_handlers on = {.arg = &e,
						 .on_stdout = echo_out,
						 .on_input = echo_in};

		ck_assert_msg(hutch_exec(rig.h, "box", &x, &on, 60000, &r, &why) == 0, "%s",
			      why.message);
		ck_assert_uint_eq(e.got, BULK);
	}
	rig_end(&rig);
}
END_TEST

/* Ends without having read the input; the client's END must come before its next CALL. */
static void answer_early(struct peer *p)
{
	struct frame f;

	peer_hello(p);
	peer_call(p);
	peer_event(p, "stdin_closed");
	peer_exit(p, 4);
	do
		ck_assert(peer_frame(p, &f));
	while (f.type == FRAME_STDIN && !(f.flags & FRAME_END));
	ck_assert_int_eq(f.type, FRAME_STDIN);
	ck_assert(peer_frame(p, &f));
	ck_assert_int_eq(f.type, FRAME_CALL);
	peer_empty(p);
}

static int endless_in(void *arg, void *buf, size_t size, size_t *len)
{
	(void)arg;
	memset(buf, 'y', size);
	*len = size;
	return 0;
}

START_TEST(test_exec_that_ends_before_its_input)
{
	struct hutch_exec_options x = {.shell = "true", .input = true};
	struct hutch_exec_handlers on = {.on_input = endless_in};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_early, NULL);
	ck_assert_msg(hutch_exec(rig.h, "box", &x, &on, 10000, &r, &why) == 0, "%s", why.message);
	ck_assert_uint_eq(r.exit_code, 4);
	expect_answer(&rig);
	rig_end(&rig);
}
END_TEST

static void answer_endless(struct peer *p)
{
	struct frame f;

	peer_hello(p);
	peer_call(p);
	peer_text(p, FRAME_STDOUT, "some");
	/* Abandoned: the end of the stream, and no more frames. */
	ck_assert(!peer_frame(p, &f));
}

START_TEST(test_exec_abandoned_by_a_handler)
{
	struct hutch_exec_options x = {.argv = true_argv};
	struct heard heard = {.answer = 1};
	struct hutch_exec_handlers on = {.arg = &heard, .on_stdout = hear_out};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_endless, NULL);
	ck_assert_int_eq(hutch_exec(rig.h, "box", &x, &on, 10000, &r, &why), -1);
	ck_assert_str_eq(why.kind, "canceled");
	ck_assert(!hutch_alive(rig.h));
	rig_end(&rig);
}
END_TEST

static void answer_unstarted(struct peer *p)
{
	struct exec_result r = {.exit_code = 127};
	struct mp_buf b;

	peer_hello(p);
	peer_call(p);
	strcpy(r.id, "x");
	strcpy(r.start_error.kind, "not_found");
	r.start_error.errnum = ENOENT;
	strcpy(r.start_error.stage, "execve");
	strcpy(r.start_error.path, "nosuch");
	strcpy(r.start_error.message, "nosuch: not found");
	mp_buf_init(&b, 1 << 16);
	exec_result_encode(&b, &r);
	peer_bytes(p, b.data, b.len);
	mp_buf_free(&b);
}

START_TEST(test_exec_that_did_not_start)
{
	struct hutch_exec_options x = {.argv = true_argv};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_unstarted, NULL);
	ck_assert_msg(hutch_exec(rig.h, "box", &x, NULL, 10000, &r, &why) == 0, "%s", why.message);
	ck_assert(!r.started && r.pid == 0 && r.exit_code == 127);
	ck_assert_str_eq(r.start_error.kind, "not_found");
	ck_assert_int_eq(r.start_error.errnum, ENOENT);
	ck_assert_str_eq(r.start_error.stage, "execve");
	ck_assert_str_eq(r.start_error.message, "nosuch: not found");
	rig_end(&rig);
}
END_TEST

/* An answer that is not one of exec.start. */
static void answer_empty(struct peer *p)
{
	peer_hello(p);
	peer_call(p);
	peer_empty(p);
}

START_TEST(test_exec_result_without_its_fields)
{
	struct hutch_exec_options x = {.argv = true_argv};
	struct hutch_exec_result r;
	struct hutch_failure why = {0};
	struct rig rig;

	rig_start(&rig, answer_empty, NULL);
	ck_assert_int_eq(hutch_exec(rig.h, "box", &x, NULL, 10000, &r, &why), -1);
	ck_assert_str_eq(why.kind, "protocol");
	rig_end(&rig);
}
END_TEST

/* ---- Finding the socket ---- */

static char root[] = "/tmp/hutch-client-XXXXXX";

/* A directory, and in it a socket with a backlog. The descriptor. */
static int listen_at(const char *dir, const char *name)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), at;
	char cwd[4096];

	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	at = mkdir(dir, 0700);
	ck_assert(at == 0 || errno == EEXIST);
	ck_assert_int_eq(chdir(dir), 0);
	strcpy(addr.sun_path, name);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	ck_assert_int_eq(chdir(cwd), 0);
	return fd;
}

static void expect_reached(const char *explicit_path, int listener, const char *path)
{
	struct hutch_failure why = {0};
	struct hutch *h = hutch_open(explicit_path, "test", &why);
	int fd;

	ck_assert_msg(h != NULL, "%s", why.message);
	ck_assert_str_eq(hutch_socket(h), path);
	fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	close(fd);
	hutch_close(h);
}

static void setup_root(void)
{
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_root(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(test_socket_places)
{
	char dir[128], given[160], own[160], var[160];
	int a, b, c;

	snprintf(dir, sizeof(dir), "%s/hutch", root);
	snprintf(given, sizeof(given), "%s/given", root);
	snprintf(var, sizeof(var), "%s/var", root);
	snprintf(own, sizeof(own), "%s/hutch/hutchd.sock", root);
	a = listen_at(root, "given");
	b = listen_at(root, "var");
	c = listen_at(dir, "hutchd.sock");
	setenv("XDG_RUNTIME_DIR", root, 1);
	setenv("HUTCH_SOCKET", "", 1);
	expect_reached(NULL, c, own);
	setenv("HUTCH_SOCKET", var, 1);
	expect_reached(NULL, b, var);
	expect_reached(given, a, given);
	close(a);
	close(b);
	close(c);
}
END_TEST

START_TEST(test_socket_with_a_long_path)
{
	char dir[400], path[800];
	int fd;

	snprintf(dir, sizeof(dir), "%s/%0200d", root, 7);
	snprintf(path, sizeof(path), "%s/hutchd.sock", dir);
	fd = listen_at(dir, "hutchd.sock");
	ck_assert_uint_gt(strlen(path), sizeof(((struct sockaddr_un *)0)->sun_path));
	expect_reached(path, fd, path);
	close(fd);
}
END_TEST

START_TEST(test_nobody_there)
{
	struct hutch_failure why = {0};
	char path[400];

	snprintf(path, sizeof(path), "%s/nosuch", root);
	ck_assert_ptr_null(hutch_open(path, "test", &why));
	ck_assert_str_eq(why.kind, "not_dispatched");
	ck_assert_int_eq(why.errnum, ENOENT);
	ck_assert_ptr_nonnull(strstr(why.message, path));
	close(listen_at(root, "dead"));
	snprintf(path, sizeof(path), "%s/dead", root);
	ck_assert_ptr_null(hutch_open(path, "test", &why));
	ck_assert_str_eq(why.kind, "not_dispatched");
	ck_assert_int_eq(why.errnum, ECONNREFUSED);
	ck_assert(why.retryable);
}
END_TEST

/* ---- The suite ---- */

static Suite *client_suite(void)
{
	Suite *s = suite_create("client");
	TCase *calls = tcase_create("calls"), *exec = tcase_create("exec"),
	      *places = tcase_create("places");

	tcase_set_timeout(calls, 30);
	tcase_add_test(calls, test_request);
	tcase_add_test(calls, test_hello_and_call_in_one_write);
	tcase_add_test(calls, test_split_frames);
	tcase_add_test(calls, test_error_leaves_the_connection);
	tcase_add_test(calls, test_error_instead_of_hello);
	tcase_add_test(calls, test_lost_after_the_call);
	tcase_add_test(calls, test_lost_in_a_frame);
	tcase_add_test(calls, test_lost_before_the_call);
	tcase_add_test(calls, test_lost_in_the_call);
	tcase_add_test(calls, test_timeout);
	tcase_add_loop_test(calls, test_offence, 0, sizeof(offences) / sizeof(offences[0]));
	tcase_add_test(calls, test_one_call_at_a_time);
	tcase_add_test(calls, test_calls_that_do_not_fit);
	suite_add_tcase(s, calls);
	tcase_set_timeout(exec, 60);
	tcase_add_test(exec, test_exec_bulk_output);
	tcase_add_test(exec, test_exec_input_and_output);
	tcase_add_test(exec, test_exec_that_ends_before_its_input);
	tcase_add_test(exec, test_exec_abandoned_by_a_handler);
	tcase_add_test(exec, test_exec_that_did_not_start);
	tcase_add_test(exec, test_exec_result_without_its_fields);
	suite_add_tcase(s, exec);
	tcase_add_checked_fixture(places, setup_root, remove_root);
	tcase_add_test(places, test_socket_places);
	tcase_add_test(places, test_socket_with_a_long_path);
	tcase_add_test(places, test_nobody_there);
	suite_add_tcase(s, places);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(client_suite());
	int failed;

	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
