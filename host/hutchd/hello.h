/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The port on which a VM's agent says hello (dial_socket.h). It is there only while the agent's hello is
 * awaited: any process of the guest can dial it, so a hello counts only when none can run, or where it does no harm.
 */
#ifndef HUTCH_HOST_HELLO_H
#define HUTCH_HOST_HELLO_H

#include "host/hutchd/guest_link.h"

#define HELLO_PENDING 4u /* connections whose HELLO is awaited; more are closed */

struct hello_port {
	struct loop *loop;
	const char *object; /* for logs; borrowed */
	int rundir_fd;	    /* borrowed */
	int listen_fd;	    /* -1: closed */
	struct event accept;
	struct link_list pending;
	/* HELLO was said: the link is idle, on no list, and the callee's, which sets an owner. The port stays open. */
	void (*got)(void *arg, struct guest_link *g);
	void *arg;
};

void hello_init(struct hello_port *h, struct loop *l, int rundir_fd, const char *object,
		void (*got)(void *arg, struct guest_link *g), void *arg);
/* Bind it; what is dialled waits until hello_accept. -1 with errno. */
int hello_open(struct hello_port *h);
void hello_accept(struct hello_port *h);
/* Harmless when it is closed. */
void hello_close(struct hello_port *h);

#endif
