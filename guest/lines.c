/* SPDX-License-Identifier: Apache-2.0 */
/* Small text files; see lines.h. */
#include "guest/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

bool lines_open(struct lines *l, int dir, const char *name)
{
	struct stat st;

	l->at = l->len = 0;
	l->fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (l->fd < 0)
		return false;
	if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
		return true;
	lines_close(l);
	errno = EINVAL;
	return false;
}

void lines_close(struct lines *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

static int next_byte(struct lines *l)
{
	if (l->at == l->len) {
		ssize_t n = l->fd < 0 ? 0 : read(l->fd, l->buf, sizeof(l->buf));

		if (n <= 0)
			return -1;
		l->at = 0;
		l->len = (size_t)n;
	}
	return (unsigned char)l->buf[l->at++];
}

bool lines_next(struct lines *l)
{
	size_t n = 0;
	bool good = true;

	for (;;) {
		int b = next_byte(l);

		if (b == '\n' || b < 0) {
			if (good && n) {
				l->line[n] = '\0';
				return true;
			}
			if (b < 0)
				return false;
			n = 0;
			good = true;
		} else if (b == '\0' || n == sizeof(l->line) - 1) {
			good = false;
		} else {
			l->line[n++] = (char)b;
		}
	}
}

long read_text(int dir, const char *name, char *buf, size_t size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC), saved;
	ssize_t n;

	buf[0] = '\0';
	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	saved = errno;
	close(fd);
	errno = saved;
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

bool next_number(const char **p, uint64_t *v)
{
	const char *s = *p;

	while (*s && (*s < '0' || *s > '9'))
		s++;
	if (!*s)
		return false;
	for (*v = 0; *s >= '0' && *s <= '9'; s++)
		*v = *v * 10 + (uint64_t)(*s - '0');
	*p = s;
	return true;
}
