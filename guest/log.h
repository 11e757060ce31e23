/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: to the console as PID 1, to stderr otherwise. errno is preserved, memory is not needed. */
#ifndef HUTCH_GUEST_LOG_H
#define HUTCH_GUEST_LOG_H

#include <stdbool.h>

/* Where lines go (2 at first), and whether log_debug says anything. */
void log_setup(int fd, bool verbose);

void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Adds the text of errno. */
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* An internal fault: says so and ends the agent, as PID 1 by powering off. */
void log_panic(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* What log_panic does at the end; abort by default. */
void log_on_panic(void (*fn)(void));

#endif
