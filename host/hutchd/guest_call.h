/* SPDX-License-Identifier: Apache-2.0 */
/* A call that the broker itself makes to an agent: identity, heartbeat, cancel. Its input is the CALL alone. */
#ifndef HUTCH_HOST_GUEST_CALL_H
#define HUTCH_HOST_GUEST_CALL_H

#include "host/hutchd/guest_pool.h"

struct guest_call;

/*
 * err NULL: payload is the RESULT's. Else what the agent answered, or why there is no answer (HUTCH_E_TIMEOUT,
 * HUTCH_E_IO, HUTCH_E_INTERNAL, HUTCH_E_NOT_DISPATCHED, HUTCH_E_VM_DIED). Once, from the loop; the call is
 * over and frees itself.
 */
typedef void guest_call_done(void *arg, const struct hutch_error *err, const uint8_t *payload,
			     size_t len);

/*
 * Send call over link (idle, kept idle afterwards), or over one of the pool's when link is NULL. timeout_ms covers
 * waiting and answer; 0: none. A call that timed out closes its connection. NULL when memory is gone.
 */
struct guest_call *guest_call_start(struct guest_pool *pool, struct guest_link *link,
				    const struct msg_call *call, uint64_t timeout_ms,
				    guest_call_done *done, void *arg);
/* Forget it; done is not called. Its connection is closed. Harmless on NULL. */
void guest_call_cancel(struct guest_call *c);

#endif
