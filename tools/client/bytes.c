/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of bytes that grows; its users bound it. */
#include <stdlib.h>
#include <string.h>

#include "tools/client/client.h"

uint8_t *bytes_room(struct bytes *b, size_t n)
{
	size_t want = b->len + n, cap = 2 * b->cap;
	uint8_t *p;

	if (want > b->cap) {
		if (cap < want)
			cap = want;
		p = malloc(cap);
		if (p == NULL)
			return NULL;
		if (b->len > 0)
			memcpy(p, b->data + b->start, b->len);
		free(b->data);
		b->data = p;
		b->cap = cap;
		b->start = 0;
	} else if (b->start + want > b->cap) {
		memmove(b->data, b->data + b->start, b->len);
		b->start = 0;
	}
	return b->data + b->start + b->len;
}

int bytes_append(struct bytes *b, const void *p, size_t n)
{
	uint8_t *to = bytes_room(b, n);

	if (to == NULL)
		return -1;
	if (n > 0)
		memcpy(to, p, n);
	b->len += n;
	return 0;
}

void bytes_consume(struct bytes *b, size_t n)
{
	b->start += n;
	b->len -= n;
	if (b->len == 0)
		b->start = 0;
}

void bytes_free(struct bytes *b)
{
	free(b->data);
	*b = (struct bytes){0};
}
