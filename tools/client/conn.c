/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: opening, sending and receiving bytes, breaking. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "protocol/msg.h"
#include "tools/client/client.h"

/* Several frames at once, where they are there. */
#define READ_SIZE (4 * (HUTCH_FRAME_HEADER + HUTCH_MAX_DATA))

static int queue_hello(struct hutch *h, const char *name, struct hutch_failure *why)
{
	struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION, .role = ROLE_CLIENT};
	struct mp_buf b;
	int r;

	snprintf(hello.name, sizeof(hello.name), "%s", name ? name : "libhutch " HUTCH_VERSION);
	mp_buf_init(&b, HUTCH_FRAME_HEADER + HUTCH_MAX_HELLO);
	r = msg_hello_encode(&b, &hello);
	if (r == 0)
		r = bytes_append(&h->out, b.data, b.len);
	mp_buf_free(&b);
	if (r < 0)
		return fail_set(why, HUTCH_E_IO, ENOMEM, "no memory for a connection");
	return 0;
}

struct hutch *hutch_open_fd(int fd, const char *client_name, struct hutch_failure *why)
{
	struct hutch *h = calloc(1, sizeof(*h));

	if (h == NULL) {
		fail_set(why, HUTCH_E_IO, ENOMEM, "no memory for a connection");
		close(fd);
		return NULL;
	}
	h->fd = fd;
	if (queue_hello(h, client_name, why) < 0) {
		hutch_close(h);
		return NULL;
	}
	return h;
}

struct hutch *hutch_open(const char *socket_path, const char *client_name,
			 struct hutch_failure *why)
{
	char *path = NULL;
	int fd = connect_broker(socket_path, &path, why);
	struct hutch *h;

	if (fd < 0)
		return NULL;
	h = hutch_open_fd(fd, client_name, why);
	if (h == NULL)
		free(path);
	else
		h->socket_path = path;
	return h;
}

/* What was received stays: the last item may point into it. */
static void drop(struct hutch *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	bytes_free(&h->out);
	h->open = false;
	h->input = false;
}

void hutch_close(struct hutch *h)
{
	if (h == NULL)
		return;
	drop(h);
	bytes_free(&h->in);
	free(h->socket_path);
	free(h);
}

bool hutch_alive(const struct hutch *h)
{
	return h->fd >= 0;
}

const char *hutch_socket(const struct hutch *h)
{
	return h->socket_path ? h->socket_path : "";
}

int hutch_fd(const struct hutch *h)
{
	return h->fd;
}

short hutch_poll_events(const struct hutch *h)
{
	return h->out.len > 0 ? POLLIN | POLLOUT : POLLIN;
}

int conn_break(struct hutch *h, enum hutch_error_kind kind, int errnum, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	drop(h);
	return fail_set(&h->broken, kind, errnum, "%s", text);
}

/*
 * The connection ended under an open call. Whether the call may have been done depends on what was
 * sent of it.
 */
static int lost(struct hutch *h, int errnum)
{
	const char *sep = errnum ? ": " : "", *reason = errnum ? strerror(errnum) : "";

	if (h->call_unsent > 0)
		return conn_break(h, HUTCH_E_NOT_DISPATCHED, errnum,
				  "the broker closed the connection before %s was sent%s%s",
				  h->method, sep, reason);
	return conn_break(h, HUTCH_E_OUTCOME_UNKNOWN, errnum,
			  "the connection to the broker was lost before %s was answered%s%s; "
			  "it may or may not have been done",
			  h->method, sep, reason);
}

int conn_flush(struct hutch *h)
{
	while (h->out.len > 0 && !h->deaf) {
		ssize_t n = send(h->fd, h->out.data + h->out.start, h->out.len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno != EPIPE && errno != ECONNRESET)
			return lost(h, errno);
		h->deaf = n < 0;
		if (n < 0)
			break;
		bytes_consume(&h->out, (size_t)n);
		h->call_unsent -= h->call_unsent < (size_t)n ? h->call_unsent : (size_t)n;
	}
	/* A peer that closed may have said why: that is read, and then its end. */
	if (h->deaf)
		bytes_consume(&h->out, h->out.len);
	return 0;
}

int conn_fill(struct hutch *h)
{
	uint8_t *to = bytes_room(&h->in, READ_SIZE);
	ssize_t n;

	if (to == NULL)
		return conn_break(h, HUTCH_E_IO, ENOMEM, "no memory to receive the answer to %s",
				  h->method);
	do
		n = recv(h->fd, to, h->in.cap - h->in.start - h->in.len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0)
		return lost(h, n < 0 ? errno : 0);
	h->in.len += (size_t)n;
	return 1;
}

uint64_t conn_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int conn_wait(struct hutch *h, uint64_t deadline_ms)
{
	struct pollfd p = {.fd = h->fd, .events = hutch_poll_events(h)};
	int timeout = -1;

	if (deadline_ms > 0) {
		uint64_t now = conn_now_ms();

		if (now >= deadline_ms)
			return conn_break(h, HUTCH_E_TIMEOUT, 0,
					  "the broker did not answer %s in time", h->method);
		timeout = deadline_ms - now > 1000000 ? 1000000 : (int)(deadline_ms - now);
	}
	if (poll(&p, 1, timeout) < 0 && errno != EINTR)
		return conn_break(h, HUTCH_E_IO, errno, "cannot wait for the broker: %s",
				  strerror(errno));
	return 0;
}
