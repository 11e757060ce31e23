/* SPDX-License-Identifier: Apache-2.0 */
/* Lines from a descriptor: bounded, and without memory while nothing is held. */
#include "host/hutchd/linebuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_AT_ONCE 16384u

/* Room for want more bytes behind the data. */
static int make_room(struct linebuf *b, size_t want)
{
	size_t cap = b->cap ? b->cap : 1024;
	char *data;

	if (b->start > 0) {
		memmove(b->data, b->data + b->start, b->len);
		b->start = 0;
	}
	while (cap - b->len < want)
		cap *= 2;
	if (cap == b->cap)
		return 0;
	data = realloc(b->data, cap);
	if (!data)
		return -1;
	b->data = data;
	b->cap = cap;
	return 0;
}

int linebuf_add(struct linebuf *b, const void *data, size_t len)
{
	if (b->len + len > b->max && !memchr(data, '\n', len)) {
		errno = EMSGSIZE;
		return -1;
	}
	if (make_room(b, len) < 0)
		return -1;
	memcpy(b->data + b->len, data, len);
	b->len += len;
	return 0;
}

ssize_t linebuf_fill(struct linebuf *b, int fd)
{
	char chunk[READ_AT_ONCE];
	ssize_t n = read(fd, chunk, sizeof(chunk));

	if (n > 0 && linebuf_add(b, chunk, (size_t)n) < 0)
		return -1;
	return n;
}

bool linebuf_next(struct linebuf *b, char **line, size_t *len)
{
	char *at, *end;
	size_t n;

	if (b->len == 0) {
		linebuf_free(b);
		return false;
	}
	at = b->data + b->start;
	end = memchr(at, '\n', b->len);
	if (!end)
		return false;
	n = (size_t)(end - at);
	b->start += n + 1;
	b->len -= n + 1;
	if (n > 0 && at[n - 1] == '\r')
		n--;
	at[n] = '\0';
	*line = at;
	*len = n;
	return true;
}

void linebuf_free(struct linebuf *b)
{
	free(b->data);
	b->data = NULL;
	b->start = b->len = b->cap = 0;
}
