/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent.warm: what a call of a user and agent.identity run, once, so that its code is translated, cached and in memory.
 *
 * How it works. The agent calls itself, over a connection of its own that has the same way through parser, dispatch,
 * spawn, reaper, workers and encoders as any. A packet of the socket pair carries one call; the next one is sent when the answer
 * to the last came. Its execs use the same id one after the other and are forgotten at the end; they run in a cgroup
 * outside of those that a snapshot freezes.
 */
#ifndef HUTCH_GUEST_WARM_H
#define HUTCH_GUEST_WARM_H

#include <stdbool.h>

bool warm_runs(void);

#endif
