/* SPDX-License-Identifier: Apache-2.0 */
/* The wire with plain blocking reads and writes; see bench.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"

void die(const char *what)
{
	fprintf(stderr, "hutch-bench: %s: %s\n", what, errno ? strerror(errno) : "failed");
	exit(1);
}

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void send_all(struct conn *c, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			die("send");
		p += n;
		len -= (size_t)n;
	}
}

struct frame peek(struct conn *c)
{
	struct frame f = {0};
	struct hutch_error err = {0};

	for (;;) {
		ssize_t n;

		if (c->have >= HUTCH_FRAME_HEADER) {
			if (frame_decode(c->buf + c->at, &f, &err) < 0) {
				fprintf(stderr, "hutch-bench: %s\n", err.message);
				exit(1);
			}
			if (c->have >= HUTCH_FRAME_HEADER + f.length)
				return f;
		}
		if (c->at > 0)
			memmove(c->buf, c->buf + c->at, c->have);
		c->at = 0;
		n = recv(c->fd, c->buf + c->have, sizeof(c->buf) - c->have, 0);
		if (n <= 0)
			die("the connection ended");
		c->have += (size_t)n;
	}
}

const uint8_t *payload(const struct conn *c)
{
	return c->buf + c->at + HUTCH_FRAME_HEADER;
}

void next(struct conn *c, const struct frame *f)
{
	size_t size = HUTCH_FRAME_HEADER + f->length;

	c->at += size;
	c->have -= size;
}

struct conn *dial_plain(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct conn *c = calloc(1, sizeof(*c));

	if (c == NULL || strlen(path) >= sizeof(addr.sun_path))
		die(path);
	memcpy(addr.sun_path, path, strlen(path));
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		die(path);
	return c;
}

struct conn *dial(const char *path)
{
	struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION, .role = ROLE_CLIENT};
	struct conn *c = dial_plain(path);
	struct mp_buf out;
	struct frame f;

	strcpy(hello.name, "hutch-bench");
	mp_buf_init(&out, HUTCH_MAX_CALL);
	msg_hello_encode(&out, &hello);
	send_all(c, out.data, out.len);
	mp_buf_free(&out);
	f = peek(c);
	if (f.type != FRAME_HELLO)
		die("no HELLO");
	next(c, &f);
	return c;
}

void encode_params(struct mp_buf *out, const char *method, const char *vm,
		   const struct mp_buf *params, unsigned flags)
{
	struct msg_call call = {0};

	snprintf(call.method, sizeof(call.method), "%s", method);
	snprintf(call.vm, sizeof(call.vm), "%s", vm);
	if (params != NULL) {
		call.params = params->data;
		call.params_len = params->len;
	}
	if (msg_call_encode(out, &call, flags) < 0)
		die("encode");
}

void encode_call(struct mp_buf *out, const char *method, const char *vm,
		 const struct exec_start *start, unsigned flags)
{
	struct mp_buf params;

	mp_buf_init(&params, HUTCH_MAX_CALL);
	if (start != NULL)
		exec_start_encode_params(&params, start);
	encode_params(out, method, vm, start != NULL ? &params : NULL, flags);
	mp_buf_free(&params);
}

void finish(struct conn *c, bool exec)
{
	struct hutch_error err = {0}, bad = {0};
	struct exec_result result;

	for (;;) {
		struct frame f = peek(c);
		const uint8_t *bytes = payload(c);

		if (f.type == FRAME_ERROR) {
			msg_error_decode(&err, bytes, f.length, &bad);
			fprintf(stderr, "hutch-bench: %s\n", err.message);
			exit(1);
		}
		if (f.type == FRAME_RESULT && exec &&
		    (exec_result_decode(&result, bytes, f.length, &bad) < 0 ||
		     result.exit_code != 0)) {
			fprintf(stderr, "hutch-bench: exit code %u\n", result.exit_code);
			exit(1);
		}
		next(c, &f);
		if (f.type == FRAME_RESULT)
			return;
	}
}
