/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's part in a snapshot or fork: it is held from snapshot.prepare until snapshot.resume or agent.identity.
 *
 * How it works. First everything is closed, then the execs' cgroup is frozen: a command that is started into a frozen
 * cgroup never gets to its execve, and the agent would wait for it for ever (spawn.h). What is held: every connection
 * but the caller's (conn_hold), the listener, the timers of execs and calls. Then two things may happen, and
 * the agent cannot tell which until it is told: the VM goes on, or it is a copy, in which the transport has reset all
 * connections. In both the loss of the caller's connection has it dial the host, where it gets to know.
 */
#ifndef HUTCH_GUEST_SNAPSHOT_H
#define HUTCH_GUEST_SNAPSHOT_H

#include <stdbool.h>

/* agent.identity succeeded while the agent was held: this is a copy, or (keep_keys) the VM that was parked. */
void snapshot_copied(bool keep_keys);

#endif
