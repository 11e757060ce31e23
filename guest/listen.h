/* SPDX-License-Identifier: Apache-2.0 */
/* Where connections come from: a listener, and the agent's own dial to the host. */
#ifndef HUTCH_GUEST_LISTEN_H
#define HUTCH_GUEST_LISTEN_H

#include <stdbool.h>

/* vsock port HUTCH_PORT_AGENT; peers other than the host are turned away. 0, or -1 with errno. */
int listen_vsock(void);
/* A Unix socket with mode 0600; a stale one is replaced. 0, or -1 with errno. */
int listen_unix(const char *path);
/* Accept nobody for now: they wait. */
void listen_hold(bool hold);
void listen_exit(void);

/*
 * Keep a connection to the host, and say HELLO on it: made now and again whenever it is lost, at once the first
 * time, then with growing pauses. path NULL: vsock, port HUTCH_PORT_HELLO of CID 2; else a Unix socket.
 */
void dial_start(const char *path);
/* The one from before snapshot.prepare is of no use any more, nor is a pause: dial now. */
void dial_renew(void);
/* Is there a host to dial? */
bool dial_on(void);
void dial_exit(void);

#endif
