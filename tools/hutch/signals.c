/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of exec and run; see signals.h. */
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "tools/hutch/signals.h"

static volatile sig_atomic_t interrupts, ending;

static void on_signal(int sig)
{
	if (sig == SIGINT)
		interrupts = interrupts + 1;
	else
		ending = sig;
}

void signals_hold(void)
{
	static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction sa = {.sa_handler = on_signal}, old;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
		sigaddset(&set, caught[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++) {
		sigaction(caught[i], &sa, &old);
		if (old.sa_handler == SIG_IGN)
			sigaction(caught[i], &old, NULL);
	}
	signal(SIGPIPE, SIG_IGN);
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
