/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a VM, as the wire names them.
 *
 *   starting  run directory and record are there; accelerator, VMM process and QMP are awaited. Calls to its agent wait.
 *   booting   the VMM runs; the agent's hello is awaited. The only state in which one is taken. Calls wait.
 *   running   it has its identity and answers. Calls are relayed.
 *   paused    it stands still, with its agent held, until it is resumed. Calls fail with state.
 *   parked    it is on the disk, and its VMM has ended or is ending. Calls to its agent wake it, and wait for that.
 *   stopping  it is being ended: calls fail with vm_died, nothing new begins.
 *   dead      process, sockets and run directory are gone; kept for vm.info and vm.wait.
 */
#ifndef HUTCH_HOST_VM_STATE_H
#define HUTCH_HOST_VM_STATE_H

#include <stdbool.h>

enum vm_state {
	VM_STARTING,
	VM_BOOTING,
	VM_RUNNING,
	VM_PAUSED,
	VM_PARKED,
	VM_STOPPING,
	VM_DEAD,
	VM_STATES
};

const char *vm_state_name(enum vm_state s);
bool vm_state_allowed(enum vm_state from, enum vm_state to);
/* The one setter: checks, logs "from -> to" under object, and refuses (false) a forbidden move. */
bool vm_state_set(enum vm_state *state, enum vm_state to, const char *object);

#endif
