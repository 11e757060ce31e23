/* SPDX-License-Identifier: Apache-2.0 */
/* This process's terminal; see tty.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/hutch/tty.h"

#define MAX_TERM 64 /* wire.md, exec.start */

static struct termios before;
static volatile sig_atomic_t raw;
static bool prepared;

bool tty_size(uint32_t *rows, uint32_t *cols)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		struct winsize w;

		if (ioctl(fd, TIOCGWINSZ, &w) < 0 || w.ws_row == 0 || w.ws_col == 0)
			continue;
		*rows = w.ws_row;
		*cols = w.ws_col;
		return true;
	}
	return false;
}

const char *tty_term(void)
{
	const char *term = getenv("TERM");

	return term != NULL && *term != '\0' && strlen(term) <= MAX_TERM ? term : NULL;
}

static void on_crash(int sig)
{
	tty_restore();
	raise(sig); /* SA_RESETHAND: with its default action, once this handler is left */
}

static void prepare(void)
{
	static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};
	struct sigaction sa = {.sa_handler = on_crash, .sa_flags = (int)SA_RESETHAND};

	prepared = true;
	atexit(tty_restore);
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++)
		sigaction(crashes[i], &sa, NULL);
}

bool tty_raw(void)
{
	struct termios t;

	if (raw)
		return true;
	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return false;
	if (!prepared)
		prepare();
	t = before;
	cfmakeraw(&t);
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	raw = 1; /* first: a crash in between restores what is so already */
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &t) < 0)
		raw = 0;
	return raw;
}

bool tty_is_raw(void)
{
	return raw;
}

void tty_restore(void)
{
	int saved = errno;
	sigset_t set, held;

	if (!raw)
		return;
	/* In the background too, and without waiting for output that a stopped terminal keeps. */
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, &held);
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
	raw = 0;
	sigprocmask(SIG_SETMASK, &held, NULL);
	errno = saved;
}
