/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that finds its VM asleep: parked, being parked, or paused by its idle policy. It lets the VM run, waits for that with all others
 * that do, and is dispatched then as if it had come now.
 */
#ifndef HUTCH_HOST_ROUSE_H
#define HUTCH_HOST_ROUSE_H

#include "host/hutchd/dispatch.h"

/* Answers the client in any case. f, payload: its CALL, which is kept; its input is not read before. */
void rouse_start(struct client *c, const struct method *m, struct vm *vm, const struct frame *f,
		 const uint8_t *payload);

#endif
