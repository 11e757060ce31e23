/* SPDX-License-Identifier: Apache-2.0 */
/* From a CALL to its handler: one table of all methods (wire.md sections 3 and 4). */
#ifndef HUTCH_HOST_DISPATCH_H
#define HUTCH_HOST_DISPATCH_H

#include "host/hutchd/client.h"
#include "host/hutchd/vm.h"

enum method_where {
	METHOD_BROKER,
	METHOD_RELAY,
	METHOD_EITHER /* relayed when the CALL names a VM */
};

#define METHOD_NEEDS_VM 0x01u /* the CALL must name one */
#define METHOD_PREFIX	0x02u /* name is a family: "fs." */
#define METHOD_REFUSED	0x04u /* the broker's own; no client may call it */
#define METHOD_REPEAT	0x08u /* safe to send again when its connection was lost before any answer */
#define METHOD_START \
	0x10u /* gets an id and a key, and is canceled when its client goes, unless detached */
#define METHOD_ATTACH \
	0x20u /* is canceled when its client goes and it had taken the owner's place */

#define METHOD_WAKES \
	0x40u /* the broker's own, and needs its VM awake, as all do that are relayed */

#define METHOD_SHARED \
	0x80u /* the broker's own, and not its VM's owner's alone, as all are that are relayed */

struct method {
	const char *name;
	enum method_where where;
	unsigned flags;
	/* METHOD_BROKER, METHOD_EITHER. vm is NULL where the method takes none. It answers, or begins a call. */
	void (*run)(struct client *c, const struct msg_call *call, struct vm *vm);
};

/* NULL: unknown. */
const struct method *method_find(const char *name);

/* The method of a call whose VM, if it has one, was found. call is used during this alone; flags: of its frame. */
void dispatch_run(struct client *c, const struct method *m, const struct msg_call *call,
		  struct vm *vm, unsigned flags);
/* payload of a CALL frame that keeps the END rules. */
void dispatch_call(struct client *c, const struct frame *f, const uint8_t *payload);

#endif
