/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of a client's connection, played by a thread of the test. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/msg_exec.h"
#include "tests/unit/client_peer.h"

void peer_free(struct peer *p)
{
	free(p->payload);
	free(p->call_payload);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

static bool read_all(int fd, void *to, size_t len)
{
	uint8_t *p = to;

	while (len > 0) {
		ssize_t n = recv(fd, p, len, 0);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

bool peer_frame(struct peer *p, struct frame *f)
{
	uint8_t header[HUTCH_FRAME_HEADER];
	struct hutch_error err = {0};

	if (!read_all(p->fd, header, sizeof(header)) || frame_decode(header, f, &err) < 0)
		return false;
	free(p->payload);
	p->payload = malloc(f->length + 1);
	p->payload[f->length] = '\0';
	return read_all(p->fd, p->payload, f->length);
}

bool peer_call(struct peer *p)
{
	struct hutch_error err = {0};
	struct frame f;

	do
		if (!peer_frame(p, &f))
			return false;
	while (f.type != FRAME_CALL);
	free(p->call_payload);
	p->call_payload = p->payload;
	p->payload = NULL;
	p->call_flags = f.flags;
	return msg_call_decode(&p->call, p->call_payload, f.length, &err) == 0;
}

void peer_bytes(struct peer *p, const void *data, size_t len)
{
	const uint8_t *from = data;

	while (len > 0) {
		ssize_t n = send(p->fd, from, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		from += n;
		len -= (size_t)n;
	}
}

static void flush(struct peer *p, struct mp_buf *b)
{
	peer_bytes(p, b->data, b->len);
	mp_buf_free(b);
}

void peer_hello(struct peer *p)
{
	struct msg_hello m = {.proto = HUTCH_PROTO_VERSION, .role = ROLE_BROKER, .name = "played"};
	struct mp_buf b;

	mp_buf_init(&b, 1 << 16);
	msg_hello_encode(&b, &m);
	flush(p, &b);
}

void peer_data(struct peer *p, enum frame_type type, const void *data, size_t len)
{
	struct frame f = {.type = type, .length = (uint32_t)len};
	uint8_t header[HUTCH_FRAME_HEADER];

	frame_encode(header, &f);
	peer_bytes(p, header, sizeof(header));
	peer_bytes(p, data, len);
}

void peer_text(struct peer *p, enum frame_type type, const char *text)
{
	peer_data(p, type, text, strlen(text));
}

void peer_finish(struct peer *p, struct mp_buf *b, enum frame_type type, unsigned flags)
{
	mp_frame_finish(b, 0, type, flags);
	flush(p, b);
}

void peer_event(struct peer *p, const char *name)
{
	struct mp_buf b;

	mp_buf_init(&b, 1 << 16);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_str(&b, "event", name);
	mp_map_end(&b);
	peer_finish(p, &b, FRAME_EVENT, 0);
}

void peer_error(struct peer *p, enum hutch_error_kind kind, int errnum, const char *message)
{
	struct hutch_error e = {0};
	struct mp_buf b;

	hutch_error_set(&e, kind, errnum, "%s", message);
	mp_buf_init(&b, 1 << 16);
	msg_error_encode(&b, &e);
	flush(p, &b);
}

void peer_exit(struct peer *p, unsigned exit_code)
{
	struct exec_result r = {.started = true, .pid = 7, .exit_code = exit_code};
	struct mp_buf b;

	strcpy(r.id, "x");
	mp_buf_init(&b, 1 << 16);
	exec_result_encode(&b, &r);
	flush(p, &b);
}

void peer_empty(struct peer *p)
{
	struct mp_buf b;

	mp_buf_init(&b, 64);
	msg_empty_result_encode(&b);
	flush(p, &b);
}
