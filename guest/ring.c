/* SPDX-License-Identifier: Apache-2.0 */
/* The kept part of an output stream; see ring.h. */
#include "guest/ring.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "guest/limits.h"

static size_t total;
static void (*pressure)(size_t missing);

size_t ring_total(void)
{
	return total;
}

void ring_on_pressure(void (*fn)(size_t missing))
{
	pressure = fn;
}

static uint32_t round_up(size_t n)
{
	uint32_t cap = RING_MIN;

	while (cap < n)
		cap *= 2;
	return cap;
}

/* The largest capacity that r may have now. */
static size_t max_cap(const struct ring *r)
{
	size_t cap = RING_MAX;

	if (r->cap >= RING_MAX)
		return r->cap;
	while (cap > RING_FLOOR && cap > r->cap && total - r->cap + cap > RING_TOTAL)
		cap /= 2;
	return cap > r->cap ? cap : r->cap;
}

static size_t held(const struct ring *r, uint64_t floor)
{
	if (floor < r->start)
		floor = r->start;
	return floor < r->end ? (size_t)(r->end - floor) : 0;
}

size_t ring_room(const struct ring *r, uint64_t floor)
{
	size_t cap = max_cap(r);
	size_t keep = held(r, floor);

	return keep < cap ? cap - keep : 0;
}

/* Copy n bytes to offset at, wrapping. */
static void copy_in(struct ring *r, uint64_t at, const uint8_t *p, size_t n)
{
	size_t pos = (size_t)(at & (r->cap - 1));
	size_t first = n < r->cap - pos ? n : r->cap - pos;

	if (!n)
		return;
	memcpy(r->buf + pos, p, first);
	memcpy(r->buf, p + first, n - first);
}

static int grow(struct ring *r, uint32_t cap)
{
	struct ring bigger = {.cap = cap, .start = r->start, .end = r->end};
	struct ring_span s[2];

	bigger.buf = malloc(cap);
	if (!bigger.buf)
		return -1;
	if (r->buf) {
		ring_peek(r, r->start, r->cap, s);
		copy_in(&bigger, r->start, s[0].p, s[0].len);
		copy_in(&bigger, r->start + s[0].len, s[1].p, s[1].len);
	}
	free(r->buf);
	total += cap - r->cap;
	*r = bigger;
	return 0;
}

/* Enough room for need bytes, and if it can be had for want. */
static int make_room(struct ring *r, size_t need, size_t want)
{
	uint32_t cap = round_up(want > need ? want : need);
	size_t most;

	if (cap <= r->cap)
		return 0;
	if (pressure && total - r->cap + cap > RING_PRESSURE)
		pressure(total - r->cap + cap - RING_PRESSURE);
	most = max_cap(r);
	if (cap > most)
		cap = (uint32_t)most;
	if (cap > r->cap && grow(r, cap) == 0)
		return 0;
	if (round_up(need) <= r->cap)
		return 0;
	return grow(r, round_up(need));
}

int ring_put(struct ring *r, const void *p, size_t n, uint64_t floor, size_t history)
{
	size_t need = held(r, floor) + n;
	size_t all = (size_t)(r->end - r->start) + n;

	if (make_room(r, need, all < history ? all : history) < 0)
		return -1;
	if (all > r->cap)
		r->start = r->end + n - r->cap;
	if (n)
		copy_in(r, r->end, p, n);
	r->end += n;
	return 0;
}

size_t ring_peek(const struct ring *r, uint64_t at, size_t max, struct ring_span out[2])
{
	size_t n = (size_t)(r->end - at), pos, first;

	out[0] = out[1] = (struct ring_span){r->buf ? r->buf : (const uint8_t *)"", 0};
	if (n > max)
		n = max;
	if (!n)
		return 0;
	pos = (size_t)(at & (r->cap - 1));
	first = n < r->cap - pos ? n : r->cap - pos;
	out[0] = (struct ring_span){r->buf + pos, first};
	out[1] = (struct ring_span){r->buf, n - first};
	return n;
}

void ring_drop(struct ring *r)
{
	total -= r->cap;
	free(r->buf);
	r->buf = NULL;
	r->cap = 0;
	r->start = r->end;
}
