/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-terminals; see pty.h, pty(7), ioctl_tty(2). */
#include "guest/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

int pty_resize(int master, uint32_t rows, uint32_t cols)
{
	struct winsize ws = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

	return ioctl(master, TIOCSWINSZ, &ws);
}

/* The kernel's defaults, and erasing whole UTF-8 characters. */
static void set_modes(int slave)
{
	struct termios t;

	if (tcgetattr(slave, &t) == 0) {
		t.c_iflag |= IUTF8;
		tcsetattr(slave, TCSANOW, &t);
	}
}

static int open_master(void)
{
	const int flags = O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
	int fd = open("/dev/ptmx", flags);

	return fd < 0 ? open("/dev/pts/ptmx", flags) : fd;
}

int pty_open(int *master, int *slave, uint32_t rows, uint32_t cols, uid_t owner)
{
	int m = open_master(), s = -1, unlock = 0, saved;

	if (m < 0)
		return -1;
	if (ioctl(m, TIOCSPTLCK, &unlock) < 0 || pty_resize(m, rows, cols) < 0)
		goto fail;
	s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (s < 0)
		goto fail;
	if (owner != (uid_t)-1 && fchown(s, owner, (gid_t)-1) < 0)
		goto fail;
	set_modes(s);
	*master = m;
	*slave = s;
	return 0;
fail:
	saved = errno;
	if (s >= 0)
		close(s);
	close(m);
	errno = saved;
	return -1;
}

int pty_eof_char(int master, bool *line_mode)
{
	struct termios t;

	if (tcgetattr(master, &t) < 0)
		return -1;
	*line_mode = t.c_lflag & ICANON;
	return t.c_cc[VEOF] == _POSIX_VDISABLE ? -1 : t.c_cc[VEOF];
}

bool pty_ends_line(uint8_t byte)
{
	/* newline, carriage return (read as newline), ^D, and the keys that throw the line away: ^C ^\ ^Z */
	return byte == '\n' || byte == '\r' || byte == 4 || byte == 3 || byte == 28 || byte == 26;
}
