/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HELLO, CALL, ERROR; the first byte selects. What decodes must encode, and the encoded frame
 * decode to the same struct.
 */
#include <stdlib.h>
#include <string.h>

#include "protocol/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int good)
{
	if (!good)
		abort();
}

static void refused(const struct hutch_error *err)
{
	require(err->kind > HUTCH_OK && err->kind < HUTCH_E_COUNT && err->message[0]);
}

/* The payload of the frame in b. */
static const uint8_t *payload(const struct mp_buf *b, size_t *len)
{
	struct hutch_error err;
	struct frame f;

	require(frame_decode(b->data, &f, &err) == 0);
	require(f.length + HUTCH_FRAME_HEADER == b->len);
	*len = f.length;
	return b->data + HUTCH_FRAME_HEADER;
}

static void hello(const uint8_t *data, size_t size, struct mp_buf *b)
{
	struct msg_hello m, again;
	struct hutch_error err;
	const uint8_t *p;
	size_t len;

	if (msg_hello_decode(&m, data, size, &err) < 0) {
		refused(&err);
		return;
	}
	if (m.role != ROLE_AGENT) { /* not sent by the others */
		m.generation = 0;
		m.pid1 = false;
	}
	require(msg_hello_encode(b, &m) == 0);
	p = payload(b, &len);
	require(msg_hello_decode(&again, p, len, &err) == 0);
	require(memcmp(&m, &again, sizeof(m)) == 0);
}

static void call(const uint8_t *data, size_t size, struct mp_buf *b)
{
	struct msg_call m, again;
	struct hutch_error err;
	const uint8_t *p;
	size_t len;

	if (msg_call_decode(&m, data, size, &err) < 0) {
		refused(&err);
		return;
	}
	require(!m.params || codec_check(m.params, m.params_len, &err) == 0);
	require(msg_call_encode(b, &m, 0) == 0);
	p = payload(b, &len);
	require(msg_call_decode(&again, p, len, &err) == 0);
	require(strcmp(m.method, again.method) == 0 && strcmp(m.vm, again.vm) == 0 &&
		strcmp(m.id, again.id) == 0 && strcmp(m.key, again.key) == 0);
	require(m.params_len == again.params_len);
	require(!m.params || memcmp(m.params, again.params, m.params_len) == 0);
}

static void error(const uint8_t *data, size_t size, struct mp_buf *b)
{
	struct hutch_error e, again, err;
	const uint8_t *p;
	size_t len;

	if (msg_error_decode(&e, data, size, &err) < 0) {
		refused(&err);
		return;
	}
	require(e.kind > HUTCH_OK && e.kind < HUTCH_E_COUNT);
	require(msg_error_encode(b, &e) == 0);
	p = payload(b, &len);
	require(msg_error_decode(&again, p, len, &err) == 0);
	require(e.kind == again.kind && e.errnum == again.errnum && e.retryable == again.retryable);
	require(strcmp(e.message, again.message) == 0 && strcmp(e.path, again.path) == 0 &&
		strcmp(e.stage, again.stage) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mp_buf b = {0};

	if (size == 0)
		return 0;
	if (data[0] % 3 == 0)
		hello(data + 1, size - 1, &b);
	else if (data[0] % 3 == 1)
		call(data + 1, size - 1, &b);
	else
		error(data + 1, size - 1, &b);
	mp_buf_free(&b);
	return 0;
}
