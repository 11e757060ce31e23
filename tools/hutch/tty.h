/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process's terminal: its size, and raw mode that does not outlive us.
 *
 * Raw mode is undone by tty_restore, at exit, and by a handler when the program crashes. Signals
 * that end or stop the program are held (signals.h), so that whoever serves them restores first;
 * SIGKILL alone leaves the terminal raw.
 */
#ifndef HUTCH_TTY_H
#define HUTCH_TTY_H

#include <stdbool.h>
#include <stdint.h>

/* Size of the terminal that standard input, output or error is. False: none is, or it has none. */
bool tty_size(uint32_t *rows, uint32_t *cols);
/* The terminal's type for the guest: TERM of the environment; NULL: none that can be passed on. */
const char *tty_term(void);
/*
 * Put the terminal on standard input into raw mode: all keys are bytes. False: standard input is no
 * terminal, or it refuses.
 */
bool tty_raw(void);
bool tty_is_raw(void);
/* As it was before tty_raw; harmless at any time, also in a signal handler. */
void tty_restore(void);

#endif
