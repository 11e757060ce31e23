/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket: who connects is taken from the kernel (SO_PEERCRED) before a byte is read, and dropped
 * unless it is the broker's own user, root, an admin, or in the configured group.
 */
#ifndef HUTCH_HOST_LISTEN_H
#define HUTCH_HOST_LISTEN_H

#include "host/hutchd/broker.h"

#define LISTEN_BATCH	16  /* accepts at a time, so that clients that exist get their turn */
#define LISTEN_PAUSE_MS 100 /* after running out of descriptors */

struct listener;

/* Takes over fd. NULL when memory is gone. */
struct listener *listener_create(struct broker *b, int fd);
void listener_destroy(struct listener *l); /* harmless on NULL */

#endif
