/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to a VM's agent: dialled through the hybrid-vsock socket (or dialled by the agent and accepted), HELLO
 * exchanged, then one call at a time. What comes from it is hostile: every frame is checked against wire.md
 * section 2, and a connection that breaks it is closed; nothing else is harmed.
 *
 *   dial -> line -> hello -> idle <-> busy        any -> dead
 *
 * A link belongs to its owner (a VM's pool, or the VM as its control connection) from ready on; while it is
 * busy, frames and its loss go to the user that took it. It frees itself once it is dead.
 */
#ifndef HUTCH_HOST_GUEST_LINK_H
#define HUTCH_HOST_GUEST_LINK_H

#include "host/hutchd/call_ends.h"
#include "host/hutchd/stream.h"
#include "protocol/msg.h"

/* CONNECT, OK and HELLO, or the link has failed. */
#define GUEST_LINK_DEADLINE_MS 4500u
/* "OK <port>\n": longer than any port, and what a peer that never ends its line can make us hold. */
#define GUEST_LINK_LINE_MAX 32u

enum link_state { LINK_LINE, LINK_HELLO, LINK_IDLE, LINK_BUSY, LINK_DEAD };

struct guest_link;

/* Links of one kind; a link is on at most one list, and leaves it when it dies. */
struct link_list {
	TAILQ_HEAD(, guest_link) links;
	unsigned count;
};

struct link_owner {
	/* HELLO was exchanged: it is idle. */
	void (*ready)(void *arg, struct guest_link *l);
	/* It failed before ready, or was lost while idle. It is dead and off every list by the return. */
	void (*lost)(void *arg, struct guest_link *l, const struct hutch_error *err);
};

struct link_user {
	/* A frame of the answer that keeps the rules. raw: header and payload. */
	void (*frame)(void *arg, const struct frame *f, const uint8_t *raw);
	/*
	 * The link is dead. err: HUTCH_E_IO it was lost, HUTCH_E_INTERNAL the agent broke the protocol,
	 * HUTCH_E_VM_DIED the VM ends. Not called from inside a call on the link.
	 */
	void (*lost)(void *arg, const struct hutch_error *err);
	/* What was queued towards the guest fell to STREAM_LOW. */
	void (*drained)(void *arg);
};

struct guest_link {
	TAILQ_ENTRY(guest_link) next;
	struct link_list *list; /* NULL: on none */
	struct deferred deferred;
	struct stream s;
	struct event deadline;
	enum link_state state;
	bool slow;     /* the pool's: still dialling after a while */
	bool used;     /* it carried a call before: it may be stale */
	bool answered; /* a frame of the present call's answer came */
	struct call_ends ends;
	struct msg_hello hello; /* the agent's, from idle on */
	const struct link_owner *owner;
	void *owner_arg;
	const struct link_user *user;
	void *user_arg;
};

/* Connect to rundir/vsock and ask for port. NULL with err when that fails at once. */
struct guest_link *guest_link_dial(struct loop *l, int rundir_fd, unsigned port,
				   const struct link_owner *owner, void *arg,
				   struct hutch_error *err);
/* Takes over fd, a connection that the agent dialled. NULL when memory is gone (fd is closed). */
struct guest_link *guest_link_accept(struct loop *l, int fd, const struct link_owner *owner,
				     void *arg);

void link_list_init(struct link_list *list);
/* Move it to the front of list, or off all lists (NULL). */
void guest_link_move(struct guest_link *g, struct link_list *list);
void guest_link_set_owner(struct guest_link *g, const struct link_owner *owner, void *arg);
/* idle -> busy. */
void guest_link_take(struct guest_link *g, const struct link_user *user, void *arg);
/* One whole frame of the caller's: the CALL, then its input. It must keep the rules. */
void guest_link_send(struct guest_link *g, const uint8_t *raw, size_t len);
/* The same for a frame that from hands out. */
void guest_link_pass(struct guest_link *g, struct stream *from, const uint8_t *raw, size_t len);
/* Send END where the caller's half is still open. */
void guest_link_end_input(struct guest_link *g);
/* Both halves ended and nothing is left over: the link may carry another call. */
bool guest_link_clean(const struct guest_link *g);
/* busy -> idle; one that is not clean is closed, and its owner loses it. */
void guest_link_release(struct guest_link *g);
/* Close it without telling anybody. Harmless on NULL or a dead link. */
void guest_link_close(struct guest_link *g);
/* Close it and tell the user or owner. */
void guest_link_fail(struct guest_link *g, const struct hutch_error *err);

#endif
