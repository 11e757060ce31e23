/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes from the guest that the host's socket did not take yet: a ring of fixed capacity, allocated
 * when first used.
 */
#ifndef HUTCH_VSOCK_BACKLOG_H
#define HUTCH_VSOCK_BACKLOG_H

#include <stdint.h>
#include <sys/uio.h>

struct backlog {
	uint8_t *buf;
	uint32_t cap;
	uint32_t head;
	uint32_t len;
};

/*
 * Appends the pieces of iov from byte offset skip on. cap is the capacity and is the same in every
 * call. Returns 0, -ENOMEM, or -ENOSPC when they do not fit (nothing is appended then).
 */
int backlog_append(struct backlog *b, uint32_t cap, const struct iovec *iov, unsigned n,
		   uint64_t skip);

/* Describes what is held as 0, 1 or 2 pieces; returns how many. */
unsigned backlog_peek(const struct backlog *b, struct iovec iov[2]);

/* Drops the first n <= len bytes; an empty backlog holds no memory. */
void backlog_consume(struct backlog *b, uint32_t n);

void backlog_free(struct backlog *b);

#endif
