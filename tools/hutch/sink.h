/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a command's output goes: a descriptor of ours, or memory.
 *
 * Writing must not block, since input and signals are served meanwhile; nor may it change the mode
 * of a descriptor that other processes share (O_NONBLOCK belongs to the open file, not to us). So a
 * pipe or terminal is opened a second time through /proc with O_NONBLOCK as soon as more is written
 * than it surely takes; a socket has MSG_DONTWAIT; a regular file does not block.
 */
#ifndef HUTCH_SINK_H
#define HUTCH_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum sink_kind { SINK_FILE, SINK_SOCKET, SINK_STREAM, SINK_MEMORY };

struct sink {
	enum sink_kind kind;
	int fd;	    /* the descriptor given, never closed */
	int own;    /* the second one; -1: none yet */
	bool ready; /* poll said POLLOUT and nothing was written since */
	char *data; /* memory */
	size_t len, cap;
};

void sink_to_fd(struct sink *s, int fd);
void sink_to_memory(struct sink *s);
void sink_free(struct sink *s);
/* Bytes taken, 0: wait for sink_fd to be writable and set s->ready, -1 with errno. */
ssize_t sink_write(struct sink *s, const void *data, size_t len);
int sink_fd(const struct sink *s);

#endif
