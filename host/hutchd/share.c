/* SPDX-License-Identifier: Apache-2.0 */
/* VMs that their owner shares with a group. */
#include "host/hutchd/share.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/hutchd/client.h"
#include "host/hutchd/vm.h"

#define GROUPS_USUAL 64u
#define GROUPS_FILE  "/etc/group"

/* Of a process with more groups than are looked for at first: the kernel says how much room they take. */
static gid_t *all_groups(int fd, socklen_t *len)
{
	gid_t *groups = malloc(*len);

	if (groups && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, len) == 0)
		return groups;
	free(groups);
	return NULL;
}

bool share_peer_is_member(int fd, gid_t group)
{
	gid_t few[GROUPS_USUAL], *groups = few, *more = NULL;
	struct ucred peer = {.gid = (gid_t)-1};
	socklen_t len = sizeof(peer);
	bool member = false;

	if (group == (gid_t)-1 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return false;
	if (peer.gid == group)
		return true;
	len = sizeof(few);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &len) < 0) {
		if (errno != ERANGE || !(more = all_groups(fd, &len)))
			return false;
		groups = more;
	}
	for (size_t i = 0; i < len / sizeof(*groups) && !member; i++)
		member = groups[i] == group;
	free(more);
	return member;
}

/*
 * From the file alone: a directory service may take its time, for which the loop cannot wait. Its groups are given by number,
 * which clients look up for themselves.
 */
static bool look_up(const char *name, gid_t *out)
{
	FILE *f = fopen(GROUPS_FILE, "re");
	const struct group *g;
	bool found = false;

	while (f && !found && (g = fgetgrent(f)) != NULL) {
		found = strcmp(g->gr_name, name) == 0;
		if (found)
			*out = g->gr_gid;
	}
	if (f)
		fclose(f);
	return found;
}

static bool is_number(const char *text, gid_t *out)
{
	unsigned long long n = 0;

	if (!text[0] || strspn(text, "0123456789") != strlen(text) || strlen(text) > 10)
		return false;
	n = strtoull(text, NULL, 10);
	*out = (gid_t)n;
	return n < UINT32_MAX;
}

int share_resolve(const struct client *c, const char *text, gid_t *out, struct hutch_error *err)
{
	if (!is_number(text, out) && !look_up(text, out))
		return hutch_error_set(err, HUTCH_E_NOT_FOUND, 0, "there is no group '%.64s'",
				       text);
	if (c->admin || share_peer_is_member(c->s.fd, *out))
		return 0;
	return hutch_error_set(err, HUTCH_E_DENIED, 0,
			       "a VM can be shared with a group of one's own, and uid %u is not in "
			       "group %u",
			       (unsigned)c->uid, (unsigned)*out);
}

bool share_allows(const struct client *c, const struct vm *vm)
{
	return vm->kind == VM_USERS && vm->r.shared && !vm_visible(vm, c->uid) &&
	       share_peer_is_member(c->s.fd, (gid_t)vm->r.share_gid);
}
