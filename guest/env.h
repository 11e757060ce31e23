/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a command. */
#ifndef HUTCH_GUEST_ENV_H
#define HUTCH_GUEST_ENV_H

#include "guest/user.h"
#include "protocol/msg_exec.h"

#define ENV_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct env {
	char **vec;	  /* NULL-terminated NAME=VALUE */
	char *block;	  /* the texts */
	const char *path; /* value of PATH, or the default when there is none */
	const char *home; /* value of HOME; NULL: there is none */
};

/* Defaults of wire.md for u, then m's own in their order. 0, or -1: no memory. */
int env_build(struct env *env, const struct exec_start *m, const struct user *u);
void env_free(struct env *env);

#endif
