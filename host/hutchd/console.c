/* SPDX-License-Identifier: Apache-2.0 */
/* Tails of the logs in a VM's run directory. */
#include "host/hutchd/console.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "protocol/error.h"

/* The last size bytes of the file. */
static size_t read_end(int rundir_fd, const char *name, char *out, size_t size)
{
	int fd = openat(rundir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t len = 0;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		off_t at = st.st_size > (off_t)size ? st.st_size - (off_t)size : 0;

		while (len < size) {
			ssize_t n = pread(fd, out + len, size - len, at + (off_t)len);

			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				break;
			len += (size_t)n;
		}
	}
	fd_close(&fd);
	return len;
}

/* Clean the bytes in place; cleaning never makes them longer. */
static size_t clean(char *text, size_t len)
{
	size_t out = 0;

	for (size_t at = 0; at < len;) {
		unsigned char c = (unsigned char)text[at];
		size_t n = hutch_utf8_char(text + at, len - at);

		if (c == '\r' || c == '\0') {
			at++;
			continue;
		}
		if (c == '\n' || (n == 1 && c >= 0x20 && c != 0x7f) || n > 2 ||
		    (n == 2 && (c != 0xc2 || (unsigned char)text[at + 1] >= 0xa0))) {
			memmove(text + out, text + at, n);
			out += n;
			at += n;
		} else {
			text[out++] = c == '\t' ? ' ' : '?';
			at += n ? n : 1;
		}
	}
	while (out > 0 && text[out - 1] == '\n')
		out--;
	return out;
}

size_t log_tail(int rundir_fd, const char *name, char *out, size_t size)
{
	size_t len = read_end(rundir_fd, name, out, size - 1);
	const char *line;

	/*
	 * A full buffer begins somewhere in a line: that piece is left out if a whole line follows.
	 */
	line = len == size - 1 ? memchr(out, '\n', len) : NULL;
	if (line && line < out + len - 1) {
		len -= (size_t)(line + 1 - out);
		memmove(out, line + 1, len);
	}
	len = clean(out, len);
	out[len] = '\0';
	return len;
}

size_t log_last_line(int rundir_fd, const char *name, char *out, size_t size)
{
	size_t len = log_tail(rundir_fd, name, out, size);
	const char *line = strrchr(out, '\n');

	if (!line)
		return len;
	len = strlen(line + 1);
	memmove(out, line + 1, len + 1);
	return len;
}
