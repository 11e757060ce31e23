/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals of exec and run. From signals_hold on, INT, TERM, HUP arrive only inside signals_poll and
 * are counted; one that was ignored before (nohup, a shell's background job) stays ignored. SIGPIPE
 * becomes EPIPE.
 */
#ifndef HUTCH_SIGNALS_H
#define HUTCH_SIGNALS_H

#include <poll.h>

void signals_hold(void);
/* poll(2), as long as it takes (wait_ms < 0) or not; a signal ends it. */
int signals_poll(struct pollfd *fds, nfds_t count, int wait_ms);
/* SIGINTs so far. */
unsigned signals_interrupts(void);
/* SIGTERM or SIGHUP when one came, else 0. */
int signals_ending(void);

#endif
