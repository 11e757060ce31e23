/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a machine whose init is the agent. */
#ifndef HUTCH_GUEST_POWER_H
#define HUTCH_GUEST_POWER_H

#include <stdint.h>

#define POWER_GRACE_MS 1000u

/* SIGTERM to all, SIGKILL after grace_ms, sync, power off. Goes on in the loop; what was answered is still sent. */
void power_down(uint32_t grace_ms);
/* From the reaper: the agent has no child any more. */
void power_no_children(void);
/* At once, whatever state things are in. Does not return. */
void power_off(void) __attribute__((noreturn));

#endif
