/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A QMP client on the event loop.
 *
 * The head of the queue is the command that was sent. Its id is repeated in its answer; nothing
 * else may be answered. Callbacks may free the connection: while they run, busy is not 0, qmp_free
 * then only marks it, and the outermost handler frees it.
 */
#include "host/hutchd/qmp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <time.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/linebuf.h"
#include "host/hutchd/qmp_parse.h"

/* A second; QEMU limits the rate of its own events far below. */
#define FLOOD_BYTES    (1u << 20)
#define FLOOD_MESSAGES 500u

struct command {
	STAILQ_ENTRY(command) next;
	uint64_t id;
	char *text;
	size_t len, sent;
	int fd; /* to go with the first byte; -1: none */
	uint32_t timeout_ms;
	qmp_done_fn *done;
	void *arg;
};

struct qmp {
	int fd; /* -1: lost */
	struct event *readable, *writable, *timer;
	struct linebuf in;
	STAILQ_HEAD(, command) queue;
	unsigned queued;
	bool head_sent;
	uint64_t next_id;
	time_t second; /* of CLOCK_MONOTONIC, for the next two */
	size_t bytes, messages;
	const struct qmp_callbacks *cb;
	void *arg;
	unsigned busy;
	bool freed;
};

static void free_command(struct command *c)
{
	fd_close(&c->fd);
	free(c->text);
	free(c);
}

static void destroy(struct qmp *q)
{
	struct command *c;

	while ((c = STAILQ_FIRST(&q->queue)) != NULL) {
		STAILQ_REMOVE_HEAD(&q->queue, next);
		free_command(c);
	}
	if (q->readable)
		event_free(q->readable);
	if (q->writable)
		event_free(q->writable);
	if (q->timer)
		event_free(q->timer);
	fd_close(&q->fd);
	linebuf_free(&q->in);
	free(q);
}

/* Handlers run between these two; leave may free q. */
static void enter(struct qmp *q)
{
	q->busy++;
}

static void leave(struct qmp *q)
{
	if (--q->busy == 0 && q->freed)
		destroy(q);
}

static struct command *take_head(struct qmp *q)
{
	struct command *c = STAILQ_FIRST(&q->queue);

	STAILQ_REMOVE_HEAD(&q->queue, next);
	q->queued--;
	q->head_sent = false;
	event_del(q->timer);
	return c;
}

static void finish_head(struct qmp *q, const json_t *value, const char *error)
{
	struct command *c = take_head(q);

	if (c->done)
		c->done(c->arg, value, error);
	free_command(c);
}

static void lose(struct qmp *q, const char *why, bool broken)
{
	if (q->fd < 0 || q->freed)
		return;
	event_del(q->readable);
	event_del(q->writable);
	fd_close(&q->fd);
	q->cb->lost(q->arg, why, broken);
	while (!q->freed && !STAILQ_EMPTY(&q->queue))
		finish_head(q, NULL, why);
}

/* As send(2); a descriptor goes with the first bytes that are taken. */
static ssize_t send_some(int sock, struct command *c)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = {.buf = {0}};
	struct iovec iov = {c->text + c->sent, c->len - c->sent};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (c->fd >= 0) {
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
							.cmsg_level = SOL_SOCKET,
							.cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &c->fd, sizeof(int));
	}
	n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0)
		fd_close(&c->fd);
	return n;
}

static void send_head(struct qmp *q)
{
	struct command *c = STAILQ_FIRST(&q->queue);

	while (c->sent < c->len) {
		ssize_t n = send_some(q->fd, c);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			event_add(q->writable, NULL);
		/* A dead socket is told by its readable side, after the server's last words. */
		if (n < 0)
			return;
		c->sent += (size_t)n;
	}
}

/* Send the next command if none is on its way. */
static void advance(struct qmp *q)
{
	struct command *c = STAILQ_FIRST(&q->queue);
	struct timeval tv;

	if (!c || q->head_sent || q->fd < 0)
		return;
	q->head_sent = true;
	tv.tv_sec = (time_t)(c->timeout_ms / 1000);
	tv.tv_usec = (suseconds_t)(c->timeout_ms % 1000) * 1000;
	event_add(q->timer, &tv);
	send_head(q);
}

static void handle_message(struct qmp *q, struct qmp_message *m)
{
	const struct command *head = STAILQ_FIRST(&q->queue);

	switch (m->kind) {
	case QMP_GREETING:
		q->cb->greeting(q->arg, m->version);
		return;
	case QMP_EVENT:
		q->cb->event(q->arg, m->event, m->body);
		return;
	case QMP_RETURN:
	case QMP_ERROR:
		if (!head || !q->head_sent || m->id != head->id) {
			lose(q, "it answered what was not asked", true);
			return;
		}
		finish_head(q, m->kind == QMP_RETURN ? m->body : NULL, m->error);
		return;
	}
}

/* Count what came; true when it is too much for one second. */
static bool floods(struct qmp *q, size_t bytes, size_t messages)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec != q->second) {
		q->second = now.tv_sec;
		q->bytes = q->messages = 0;
	}
	q->bytes += bytes;
	q->messages += messages;
	return q->bytes > FLOOD_BYTES || q->messages > FLOOD_MESSAGES;
}

static void handle_lines(struct qmp *q)
{
	struct qmp_message m;
	char *line;
	size_t len;

	while (!q->freed && q->fd >= 0 && linebuf_next(&q->in, &line, &len)) {
		if (floods(q, len, 1)) {
			lose(q, "it sends more than a QMP server would", true);
			return;
		}
		if (qmp_parse(&m, line, len) < 0) {
			lose(q, "it sent something that is not QMP", true);
			return;
		}
		handle_message(q, &m);
		qmp_message_clear(&m);
		if (!q->freed)
			advance(q);
	}
}

/* One read. False when there is nothing more to read. */
static bool read_once(struct qmp *q)
{
	ssize_t n = linebuf_fill(&q->in, q->fd);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n < 0 && errno == EMSGSIZE)
		lose(q, "it sent a line of more than 64 KiB", true);
	else if (n <= 0)
		lose(q, "it closed its QMP socket", false);
	else
		handle_lines(q);
	return q->fd >= 0 && !q->freed;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct qmp *q = arg;

	(void)fd;
	(void)what;
	enter(q);
	read_once(q);
	leave(q);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct qmp *q = arg;

	(void)fd;
	(void)what;
	if (q->head_sent)
		send_head(q);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct qmp *q = arg;

	(void)fd;
	(void)what;
	enter(q);
	/* Its answer may still come, and would be taken for the next command's. */
	lose(q, "it did not answer a command in time", false);
	leave(q);
}

struct qmp *qmp_connect(struct event_base *base, int dirfd, const char *name,
			const struct qmp_callbacks *cb, void *arg)
{
	struct qmp *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	STAILQ_INIT(&q->queue);
	q->in.max = QMP_MAX_LINE;
	q->cb = cb;
	q->arg = arg;
	q->fd = unix_connect(dirfd, name, SOCK_STREAM);
	if (q->fd < 0) {
		destroy(q);
		return NULL;
	}
	q->readable = event_new(base, q->fd, EV_READ | EV_PERSIST, on_readable, q);
	q->writable = event_new(base, q->fd, EV_WRITE, on_writable, q);
	q->timer = event_new(base, -1, 0, on_timeout, q);
	if (!q->readable || !q->writable || !q->timer || event_add(q->readable, NULL) < 0) {
		destroy(q);
		errno = ENOMEM;
		return NULL;
	}
	return q;
}

/* {"execute": name, "arguments": args, "id": id} and a newline, malloc'ed. */
static char *format_command(const char *name, json_t *args, uint64_t id, size_t *len)
{
	json_t *root = json_pack("{s:s,s:o*,s:I}", "execute", name, "arguments", args, "id",
				 (json_int_t)id);
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;

	json_decref(root);
	if (!text) {
		errno = ENOMEM;
		return NULL;
	}
	*len = strlen(text) + 1;
	if (*len > QMP_MAX_COMMAND) {
		free(text);
		errno = EMSGSIZE;
		return NULL;
	}
	text[*len - 1] = '\n'; /* in the place of its NUL: it goes by length from here on */
	return text;
}

int qmp_command(struct qmp *q, const char *name, json_t *args, uint32_t timeout_ms,
		qmp_done_fn *done, void *arg)
{
	return qmp_command_fd(q, name, args, -1, timeout_ms, done, arg);
}

int qmp_command_fd(struct qmp *q, const char *name, json_t *args, int fd, uint32_t timeout_ms,
		   qmp_done_fn *done, void *arg)
{
	struct command *c;

	if (q->fd < 0 || q->queued == QMP_MAX_QUEUE) {
		json_decref(args);
		errno = q->fd < 0 ? ENOTCONN : EBUSY;
		return -1;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		json_decref(args);
		return -1;
	}
	c->id = ++q->next_id;
	c->text = format_command(name, args, c->id, &c->len);
	c->fd = c->text && fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (!c->text || (fd >= 0 && c->fd < 0)) {
		free_command(c);
		return -1;
	}
	c->timeout_ms = timeout_ms;
	c->done = done;
	c->arg = arg;
	STAILQ_INSERT_TAIL(&q->queue, c, next);
	q->queued++;
	advance(q);
	return 0;
}

void qmp_drain(struct qmp *q)
{
	enter(q);
	while (q->fd >= 0 && read_once(q))
		;
	leave(q);
}

void qmp_free(struct qmp *q)
{
	if (!q)
		return;
	q->freed = true;
	if (!q->busy)
		destroy(q);
}
