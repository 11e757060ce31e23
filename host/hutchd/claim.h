/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may serve a socket path and a state directory: the holder of two locks, <state>/lock and <socket>.lock (flock(2),
 * which ends with the process). A leftover socket is removed only by the holder, and only when nobody answers on it; a
 * file that is no socket is never touched. The lock files stay.
 */
#ifndef HUTCH_HOST_CLAIM_H
#define HUTCH_HOST_CLAIM_H

#include <stdbool.h>
#include <sys/types.h>

#include "protocol/error.h"

/* A broker that is ending holds its locks a moment longer than its socket; one that was killed, both for a moment. */
#define CLAIM_WAIT_MS 3000

struct claim {
	int state_lock, socket_lock; /* -1: not held */
	int dir_fd;		     /* the socket's directory */
	char name[108];		     /* its name there */
	dev_t dev;		     /* the socket that this broker bound */
	ino_t ino;
	bool bound;
};

/*
 * Make the directories (0700) where missing, take both locks, refuse or remove what is at the socket's path.
 * -1 with err: somebody serves there, it is no socket, or the name is too long (err.path names it).
 */
int claim_take(struct claim *c, int state_fd, const char *state, const char *socket_path,
	       struct hutch_error *err);
/* Bind and listen; mode 0600, or 0660 and group when has_group. Returns the descriptor or -1. */
int claim_listen(struct claim *c, const char *socket_path, bool has_group, gid_t group,
		 struct hutch_error *err);
/* Remove the socket if it is still the one that was bound, let the locks go. */
void claim_release(struct claim *c);

#endif
