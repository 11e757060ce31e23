/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals of commands that wait for something. From signals_hold on, INT, TERM, HUP arrive only
 * inside signals_poll and are counted; one that was ignored before (nohup, a shell's background
 * job) stays ignored. SIGPIPE becomes EPIPE.
 */
#ifndef HUTCH_SIGNALS_H
#define HUTCH_SIGNALS_H

#include <poll.h>
#include <stdbool.h>

void signals_hold(void);
/* Beside those, QUIT, and what a terminal needs: WINCH, TSTP, CONT. After signals_hold. */
void signals_hold_tty(void);
/* poll(2), as long as it takes (wait_ms < 0) or not; a signal ends it. */
int signals_poll(struct pollfd *fds, nfds_t count, int wait_ms);
/* SIGINTs so far. */
unsigned signals_interrupts(void);
/* SIGTERM, SIGHUP or SIGQUIT when one came, else 0. */
int signals_ending(void);
/* Each is told once: the terminal's size changed; stopping is asked for; we go on after a stop. */
bool signals_resized(void);
bool signals_stop_asked(void);
bool signals_continued(void);
/* Stop as SIGTSTP would have; returns when continued. */
void signals_stop(void);

#endif
