/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output pipes that background processes still hold after their exec ended: read and discarded at a bounded
 * rate, so that nobody gets SIGPIPE for having been left behind.
 */
#ifndef HUTCH_GUEST_LEFTOVER_H
#define HUTCH_GUEST_LEFTOVER_H

#include "guest/loop.h"

/* Take over src's descriptor (non-blocking); src is closed then. */
void leftover_add(struct loop_source *src);
unsigned leftover_count(void);
void leftover_close_all(void);

#endif
