/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of commands that wait for something; see signals.h. */
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "tools/hutch/signals.h"

static volatile sig_atomic_t interrupts, ending, resized, stop_asked, continued;

static void on_signal(int sig)
{
	switch (sig) {
	case SIGINT:
		interrupts = interrupts + 1;
		break;
	case SIGWINCH:
		resized = 1;
		break;
	case SIGTSTP:
		stop_asked = 1;
		break;
	case SIGCONT:
		continued = 1;
		break;
	default:
		ending = sig;
	}
}

static void hold(const int *caught, size_t count)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < count; i++)
		sigaddset(&set, caught[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (size_t i = 0; i < count; i++) {
		sigaction(caught[i], &sa, &old);
		if (old.sa_handler == SIG_IGN)
			sigaction(caught[i], &old, NULL);
	}
}

void signals_hold(void)
{
	static const int caught[] = {SIGINT, SIGTERM, SIGHUP};

	hold(caught, sizeof(caught) / sizeof(caught[0]));
	signal(SIGPIPE, SIG_IGN);
}

void signals_hold_tty(void)
{
	static const int caught[] = {SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};

	hold(caught, sizeof(caught) / sizeof(caught[0]));
}

int signals_poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
	struct timespec t = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L};
	sigset_t none;

	sigemptyset(&none);
	return ppoll(fds, count, wait_ms < 0 ? NULL : &t, &none);
}

unsigned signals_interrupts(void)
{
	return (unsigned)interrupts;
}

int signals_ending(void)
{
	return ending;
}

static bool told(volatile sig_atomic_t *flag)
{
	bool r = *flag;

	*flag = 0;
	return r;
}

bool signals_resized(void)
{
	return told(&resized);
}

bool signals_stop_asked(void)
{
	return told(&stop_asked);
}

bool signals_continued(void)
{
	return told(&continued);
}

void signals_stop(void)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL}, ours;
	sigset_t set, held;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	sigaction(SIGTSTP, &dfl, &ours);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &set, &held); /* here it stops */
	sigprocmask(SIG_SETMASK, &held, NULL);
	sigaction(SIGTSTP, &ours, NULL);
}
