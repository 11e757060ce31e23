/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a VM and the moves between them. */
#include "host/hutchd/vm_state.h"

#include <assert.h>

#include "host/hutchd/log.h"

static const char *const names[] = {
	[VM_STARTING] = "starting", [VM_BOOTING] = "booting", [VM_RUNNING] = "running",
	[VM_PAUSED] = "paused",	    [VM_PARKED] = "parked",   [VM_STOPPING] = "stopping",
	[VM_DEAD] = "dead",
};
static_assert(sizeof(names) / sizeof(names[0]) == VM_STATES, "every state has a name");

/* starting -> running, paused or parked is an adopted VM's: it was so all the time. */
static const bool moves[VM_STATES][VM_STATES] = {
	[VM_STARTING] = {[VM_BOOTING] = true,
			 [VM_RUNNING] = true,
			 [VM_PAUSED] = true,
			 [VM_PARKED] = true,
			 [VM_STOPPING] = true,
			 [VM_DEAD] = true},
	[VM_BOOTING] =
		{[VM_STARTING] = true, [VM_RUNNING] = true, [VM_STOPPING] = true, [VM_DEAD] = true},
	[VM_RUNNING] =
		{[VM_PAUSED] = true, [VM_PARKED] = true, [VM_STOPPING] = true, [VM_DEAD] = true},
	[VM_PAUSED] =
		{[VM_RUNNING] = true, [VM_PARKED] = true, [VM_STOPPING] = true, [VM_DEAD] = true},
	[VM_PARKED] = {[VM_RUNNING] = true, [VM_STOPPING] = true, [VM_DEAD] = true},
	[VM_STOPPING] = {[VM_DEAD] = true},
};

const char *vm_state_name(enum vm_state s)
{
	return names[s];
}

bool vm_state_allowed(enum vm_state from, enum vm_state to)
{
	return moves[from][to];
}

bool vm_state_set(enum vm_state *state, enum vm_state to, const char *object)
{
	if (!vm_state_allowed(*state, to)) {
		log_error(object, "refused: %s -> %s", names[*state], names[to]);
		return false;
	}
	log_info(object, "%s -> %s", names[*state], names[to]);
	*state = to;
	return true;
}
