/* SPDX-License-Identifier: Apache-2.0 */
/* Where a command's output goes; see sink.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/hutch/sink.h"

/* What a pipe that poll calls writable takes without blocking: a free page. */
#define SURE_SIZE 4096

void sink_to_fd(struct sink *s, int fd)
{
	struct stat st;

	*s = (struct sink){.kind = SINK_FILE, .fd = fd, .own = -1};
	if (fstat(fd, &st) < 0)
		return;
	if (S_ISSOCK(st.st_mode))
		s->kind = SINK_SOCKET;
	else if (S_ISFIFO(st.st_mode) || (S_ISCHR(st.st_mode) && isatty(fd)))
		s->kind = SINK_STREAM;
}

void sink_to_memory(struct sink *s)
{
	*s = (struct sink){.kind = SINK_MEMORY, .fd = -1, .own = -1};
}

void sink_free(struct sink *s)
{
	if (s->own >= 0)
		close(s->own);
	free(s->data);
	s->own = -1;
	s->data = NULL;
}

int sink_fd(const struct sink *s)
{
	return s->own >= 0 ? s->own : s->fd;
}

static ssize_t keep(struct sink *s, const void *data, size_t len)
{
	if (s->len + len > s->cap) {
		size_t cap = 2 * (s->len + len);
		char *p = realloc(s->data, cap);

		if (p == NULL)
			return -1;
		s->data = p;
		s->cap = cap;
	}
	memcpy(s->data + s->len, data, len);
	s->len += len;
	return (ssize_t)len;
}

/* Where /proc does not help (another's terminal, no /proc), small writes after poll have to do. */
static void open_own(struct sink *s)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
	s->own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static ssize_t write_stream(struct sink *s, const void *data, size_t len)
{
	if (s->own < 0 && len > SURE_SIZE)
		open_own(s);
	if (s->own >= 0)
		return write(s->own, data, len);
	if (!s->ready) {
		errno = EAGAIN;
		return -1;
	}
	s->ready = false;
	return write(s->fd, data, len < SURE_SIZE ? len : SURE_SIZE);
}

ssize_t sink_write(struct sink *s, const void *data, size_t len)
{
	ssize_t n = -1;

	switch (s->kind) {
	case SINK_MEMORY:
		return keep(s, data, len);
	case SINK_SOCKET:
		n = send(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case SINK_STREAM:
		n = write_stream(s, data, len);
		break;
	case SINK_FILE:
		n = write(s->fd, data, len);
		break;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	return n;
}
