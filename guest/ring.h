/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kept part of an output stream, addressed by byte offset from the stream's start.
 *
 * It holds [start, end). Putting bytes moves end and, when there is no room left to grow, start: the oldest are
 * dropped. A floor says which bytes must stay: ring_room tells how much may be put without dropping any at
 * or behind it. Memory is taken as it is needed, and all rings together stay within RING_TOTAL.
 */
#ifndef HUTCH_GUEST_RING_H
#define HUTCH_GUEST_RING_H

#include <stddef.h>
#include <stdint.h>

struct ring {
	uint8_t *buf;
	uint32_t cap; /* a power of two, or 0 */
	uint64_t start, end;
};

struct ring_span {
	const uint8_t *p;
	size_t len;
};

/* Bytes that ring_put takes now; floor beyond end counts as end. */
size_t ring_room(const struct ring *r, uint64_t floor);
/*
 * Append n bytes, n <= ring_room(r, floor). Up to history bytes in all are kept while memory allows, more
 * only for the floor's sake. 0, or -1 when memory ran out: nothing was put.
 */
int ring_put(struct ring *r, const void *p, size_t n, uint64_t floor, size_t history);
/* At most max bytes from offset at (start <= at <= end), in one or two pieces. Returns their count. */
size_t ring_peek(const struct ring *r, uint64_t at, size_t max, struct ring_span out[2]);
/* Drop what it holds and the memory; offsets stay. */
void ring_drop(struct ring *r);
/* Memory of all rings, bytes. */
size_t ring_total(void);
/* Called with the bytes that are to go when RING_PRESSURE is passed; frees what it can. */
void ring_on_pressure(void (*fn)(size_t missing));

#endif
