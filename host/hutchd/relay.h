/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call between a client and a VM's agent.
 *
 * The CALL's envelope is rewritten, its params are passed as the bytes they are; every other frame is relayed by its header
 * alone, whole, in both directions. Back-pressure: the guest side is not read while more than STREAM_HIGH waits for the
 * client, and the client is not read while as much waits for the guest.
 *
 * The answer's END ends the relay at once: where the client's input is still open, the broker sends the guest an END of its
 * own and lets the client side discard the rest, so that a slow client holds no guest connection.
 *
 * A client that goes before the answer: the guest connection is closed and, where the method asks for it, exec.kill is
 * sent over another one. A guest connection that is lost (wire.md section 5): repeated once where it was a
 * used one, not a byte of an answer or of input has passed, and the method allows it; else the VM has RELAY_GRACE_MS to be
 * found dead, for its connections break before its process is gone, and only then the outcome is called unknown.
 */
#ifndef HUTCH_HOST_RELAY_H
#define HUTCH_HOST_RELAY_H

#include "host/hutchd/dispatch.h"

#define RELAY_GRACE_MS	1000u
#define RELAY_CANCEL_MS 30000u /* for exec.kill to be answered */

/* Answers the client in any case, now or later. flags: of the CALL's frame. */
void relay_start(struct client *c, const struct method *m, const struct msg_call *call,
		 struct vm *vm, unsigned flags);

#endif
