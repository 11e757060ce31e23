/* SPDX-License-Identifier: Apache-2.0 */
/* Who this machine is: given by the broker after boot and after a restore. */
#ifndef HUTCH_GUEST_IDENTITY_H
#define HUTCH_GUEST_IDENTITY_H

#include "protocol/msg_exec.h"

/*
 * Apply id; from then on all methods are answered. Repeating the generation in force does nothing. -1 with
 * err, stage set when a step failed: then the old one, or none, stays in force.
 */
int identity_set(const struct agent_identity *id, struct hutch_error *err);
/* Before a snapshot of a machine without commands, and when its copies, or the VM itself, go on: what a copy would else have to open. */
void identity_prepare(void);
void identity_over(void);
/* The same steps with the host name and time that are there, and with entropy that counts for nothing. */
int identity_rehearse(const struct agent_identity *id, struct hutch_error *err);
/* Its clock alone. */
int identity_set_clock(uint64_t realtime_ns, struct hutch_error *err);

#endif
