/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of what a guest dials on HUTCH_PORT_HELLO: a socket in the directory "dial" of the run directory, which is all of
 * it that a jailed VMM sees (as its current directory), so that a later broker can bind it anew. "vsock_521" beside it leads to
 * it, for a VMM that has no jail.
 *
 * Where VMMs have uids of their own the launcher opens both to all (dial_open), for a later broker has no right to give its
 * socket away: the run directory, which is the broker's alone, keeps others out.
 */
#ifndef HUTCH_HOST_DIAL_SOCKET_H
#define HUTCH_HOST_DIAL_SOCKET_H

#define DIAL_DIR    "dial"
#define DIAL_SOCKET "vsock_521"

/* Listening, in place of one that is there. -1 with errno. */
int dial_listen(int rundir_fd);
void dial_remove(int rundir_fd);
/* The launcher's. -1 with errno. */
int dial_open(int rundir_fd);

#endif
