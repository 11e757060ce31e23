/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of bytes that wait for the host's socket. */
#include "host/vsock/backlog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void put(struct backlog *b, const uint8_t *p, uint32_t n)
{
	uint32_t tail = (b->head + b->len) % b->cap;
	uint32_t first = b->cap - tail < n ? b->cap - tail : n;

	memcpy(b->buf + tail, p, first);
	memcpy(b->buf, p + first, n - first);
	b->len += n;
}

int backlog_append(struct backlog *b, uint32_t cap, const struct iovec *iov, unsigned n,
		   uint64_t skip)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < n; i++)
		total += iov[i].iov_len;
	if (total - skip > cap - b->len)
		return -ENOSPC;
	if (!b->buf) {
		b->buf = malloc(cap);
		if (!b->buf)
			return -ENOMEM;
		b->cap = cap;
		b->head = 0;
	}
	for (unsigned i = 0; i < n; i++) {
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		put(b, (const uint8_t *)iov[i].iov_base + skip, (uint32_t)(iov[i].iov_len - skip));
		skip = 0;
	}
	return 0;
}

unsigned backlog_peek(const struct backlog *b, struct iovec iov[2])
{
	uint32_t first;

	if (b->len == 0)
		return 0;
	first = b->cap - b->head < b->len ? b->cap - b->head : b->len;
	iov[0] = (struct iovec){b->buf + b->head, first};
	if (first == b->len)
		return 1;
	iov[1] = (struct iovec){b->buf, b->len - first};
	return 2;
}

void backlog_consume(struct backlog *b, uint32_t n)
{
	b->head = (b->head + n) % b->cap;
	b->len -= n;
	if (b->len == 0)
		backlog_free(b);
}

void backlog_free(struct backlog *b)
{
	free(b->buf);
	*b = (struct backlog){0};
}
