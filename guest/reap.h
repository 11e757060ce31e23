/* SPDX-License-Identifier: Apache-2.0 */
/* The one place that waits for processes: execs' own, and orphans of anybody. */
#ifndef HUTCH_GUEST_REAP_H
#define HUTCH_GUEST_REAP_H

/* SIGCHLD is blocked already. 0, or -1 with errno. */
int reap_init(void);
void reap_exit(void);

#endif
