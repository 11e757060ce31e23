/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a VM itself: agent.identity, and the clock of one that stood still. */
#ifndef HUTCH_HOST_VM_IDENTITY_H
#define HUTCH_HOST_VM_IDENTITY_H

#include "host/hutchd/vm.h"

/* agent.identity over link (idle, kept idle), with the record's generation and fresh entropy. NULL with errno. */
struct guest_call *vm_identity_give(struct vm *vm, struct guest_link *link, guest_call_done *done,
				    void *arg);
/* Is that RESULT a confirmation: does it name the generation that was given? -1 with err. */
int vm_identity_confirmed(const struct vm *vm, const uint8_t *payload, size_t len,
			  struct hutch_error *err);
/* snapshot.resume, with the record's generation and the time. NULL with errno. */
struct guest_call *vm_identity_resume(struct vm *vm, struct guest_link *link, uint64_t timeout_ms,
				      guest_call_done *done, void *arg);

#endif
