/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Users, from the image's own /etc/passwd and /etc/group: no NSS, any size of file, malformed lines skipped.
 */
#ifndef HUTCH_GUEST_USER_H
#define HUTCH_GUEST_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "guest/limits.h"
#include "protocol/error.h"

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[AGENT_MAX_GROUPS]; /* supplementary, gid included */
	size_t ngroups;
	char name[64];	/* the number as text when there is no entry */
	char home[256]; /* "/" when there is no entry */
	char shell[128];
};

/*
 * spec: name, uid, name:group, uid:gid. A number needs no entry: its group then is the same number, unless given.
 * A group that is given replaces the supplementary ones. -1 with HUTCH_E_INVALID naming what is unknown.
 * etc is the directory of passwd and group.
 */
int user_lookup(const char *etc, const char *spec, struct user *u, struct hutch_error *err);
/* The entry of a uid, for name, home and shell; always gives an answer. groups are left empty. */
void user_describe(const char *etc, uid_t uid, struct user *u);

#endif
