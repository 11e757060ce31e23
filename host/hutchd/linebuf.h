/* SPDX-License-Identifier: Apache-2.0 */
/* Lines from a descriptor: bounded, and without memory while nothing is held. */
#ifndef HUTCH_HOST_LINEBUF_H
#define HUTCH_HOST_LINEBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct linebuf {
	size_t max; /* bytes held without a newline among them; set by the owner */
	char *data;
	size_t start, len, cap;
};

/*
 * One read(2) of at most 16 KiB. As read(2); EMSGSIZE when max bytes hold no newline. Call it when
 * linebuf_next has nothing.
 */
ssize_t linebuf_fill(struct linebuf *b, int fd);
/* Append bytes as linebuf_fill does. 0, or -1 with EMSGSIZE or ENOMEM. */
int linebuf_add(struct linebuf *b, const void *data, size_t len);
/* The next whole line, without its "\n" or "\r\n", NUL-terminated; valid until the next call. */
bool linebuf_next(struct linebuf *b, char **line, size_t *len);
void linebuf_free(struct linebuf *b);

#endif
