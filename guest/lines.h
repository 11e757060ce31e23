/* SPDX-License-Identifier: Apache-2.0 */
/* Small text files: lines through a fixed buffer, and numbers. No stdio, no allocation. */
#ifndef HUTCH_GUEST_LINES_H
#define HUTCH_GUEST_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/limits.h"

struct lines {
	int fd;
	char buf[4096];
	size_t at, len;
	char line[AGENT_LINE];
};

/*
 * Start to read dir/name (dir AT_FDCWD and an absolute name, or a descriptor). False with errno when it
 * cannot be opened or is no regular file (a FIFO must not block the agent): then there are no lines.
 */
bool lines_open(struct lines *l, int dir, const char *name);
/* The next line, as text without its newline; empty ones, too long ones and ones with a NUL are skipped. */
bool lines_next(struct lines *l);
void lines_close(struct lines *l);

/* The whole of a small file as text: at most size - 1 bytes. Returns their count, or -1 with errno. */
long read_text(int dir, const char *name, char *buf, size_t size);
/* The next unsigned decimal number at or after *p, which is moved behind it; false when there is none. */
bool next_number(const char **p, uint64_t *v);

#endif
