/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs that their owner shares with a group. Who is a member is the kernel's word, as it was when the client connected
 * (unix(7), SO_PEERCRED and SO_PEERGROUPS): nothing that a client says counts.
 *
 * Members use the VM: all that is relayed to its agent, and vm.info, vm.list and vm.wait. What makes, ends, stops or copies it is its
 * owner's alone. Being able to run commands in a guest is being all-powerful in it, so that members trust each other.
 */
#ifndef HUTCH_HOST_SHARE_H
#define HUTCH_HOST_SHARE_H

#include <stdbool.h>
#include <sys/types.h>

#include "protocol/error.h"

struct client;
struct vm;

/* Is the process that connected a member of that group? */
bool share_peer_is_member(int fd, gid_t group);
/*
 * Which group a client means: a number, or a name that is in /etc/group. -1 with HUTCH_E_NOT_FOUND, or HUTCH_E_DENIED when
 * the client is no member (root and admins need not be).
 */
int share_resolve(const struct client *c, const char *text, gid_t *out, struct hutch_error *err);
/* Is it another's, and shared with a group that the client is a member of? */
bool share_allows(const struct client *c, const struct vm *vm);

#endif
