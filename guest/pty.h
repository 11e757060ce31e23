/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-terminals. */
#ifndef HUTCH_GUEST_PTY_H
#define HUTCH_GUEST_PTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A new pair with its size set; the master is non-blocking. owner: uid that the slave's node is given to, or -1.
 * 0, or -1 with errno.
 */
int pty_open(int *master, int *slave, uint32_t rows, uint32_t cols, uid_t owner);
int pty_resize(int master, uint32_t rows, uint32_t cols);
/* The byte that means end of input now; -1: there is none. line_mode: it works at the start of a line only. */
int pty_eof_char(int master, bool *line_mode);
/* Does this byte, typed last, leave the terminal at the start of a line? */
bool pty_ends_line(uint8_t byte);

#endif
