/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection between a Unix socket on the host and a vsock port pair of the guest: its state,
 * its two directions and its credit. No I/O here.
 *
 * The two directions are independent, as in TCP. Towards the guest, ended by the host: readable ->
 * eof (a SHUTDOWN is owed). Towards the host, ended by the guest: guest_shut -> (backlog empty) ->
 * host_wr_shut. Credit (5.10.6.3) is counted modulo 2^32 on both sides.
 */
#ifndef HUTCH_VSOCK_CONN_H
#define HUTCH_VSOCK_CONN_H

#include <linux/virtio_vsock.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "host/vsock/backlog.h"
#include "host/vsock/loop.h"

/* At most this many bytes are in flight to a guest, or held for a host, on one connection. */
#define CONN_CREDIT	262144U
#define CONN_CREDIT_MIN 16384U

/*
 * HANDSHAKE   Host socket accepted, CONNECT line awaited. No ports, not in the table; a deadline
 *             runs.
 * REQUESTED   Ports taken; REQUEST is owed or sent, RESPONSE or RST awaited; a deadline runs. The
 *             host's early bytes stay in its socket.
 * OPEN        Bytes flow.
 * DRAINING    The guest is done with it and its ports are free; what it sent still goes to the
 *             host, then the socket is closed. Never touches a ring.
 * RESETTING   The host's socket is closed, an RST is owed to the guest; the ports stay taken until
 *             it is sent.
 * DEAD        Unlinked from everything but the dead list; freed at the end of the pass.
 */
enum conn_state {
	CONN_HANDSHAKE,
	CONN_REQUESTED,
	CONN_OPEN,
	CONN_DRAINING,
	CONN_RESETTING,
	CONN_DEAD,
	CONN_STATES
};

/* Packets owed to the guest, sent before any data, in this order. */
enum conn_owed {
	OWED_REQUEST = 1 << 0,
	OWED_RESPONSE = 1 << 1,
	OWED_CREDIT_UPDATE = 1 << 2,
	OWED_CREDIT_REQUEST = 1 << 3,
	OWED_SHUTDOWN = 1 << 4, /* the host will send no more */
	OWED_RST = 1 << 5,
};

struct vsock_dev;

struct conn {
	struct loop_source src; /* src.fd: the host's socket, owned; -1 when closed */
	struct vsock_dev *dev;
	enum conn_state state;
	uint8_t owed; /* enum conn_owed */
	bool from_host;
	uint32_t host_port;
	uint32_t guest_port;
	uint64_t deadline_ms; /* in HANDSHAKE and REQUESTED */

	/* Host to guest. */
	bool readable;	    /* reading the socket may give something */
	bool ended;	    /* an end of file or an error waits in the socket, behind its data */
	bool host_gone;	    /* the host closed fully: deliver what needs no waiting, then RST */
	bool eof;	    /* read to the end */
	uint64_t ask_at_ms; /* in dev->stalled: when to ask for credit */
	bool credit_asked;  /* since it ran out */
	uint32_t sent;
	uint32_t peer_alloc;
	uint32_t peer_fwd;
	uint32_t read_size; /* how much the last read gave: sizes the next one's buffers */

	/* Guest to host. */
	uint8_t guest_shut; /* VIRTIO_VSOCK_SHUTDOWN_* seen */
	bool host_wr_shut;  /* the socket's write side was shut down */
	bool polling_out;   /* EPOLLOUT is asked for */
	uint32_t received;
	uint32_t fwd;	   /* of received, taken by the host */
	uint32_t fwd_told; /* fwd as last told to the guest */
	uint32_t alloc;	   /* credit granted to the guest: the backlog's capacity */
	struct backlog backlog;

	bool in_table, in_ready, in_owing, in_waiting, in_stalled;
	TAILQ_ENTRY(conn) all;	   /* dev->conns, or dev->dead */
	TAILQ_ENTRY(conn) ready;   /* dev->ready */
	TAILQ_ENTRY(conn) owing;   /* dev->owing */
	TAILQ_ENTRY(conn) waiting; /* dev->waiting, by deadline */
	TAILQ_ENTRY(conn) stalled; /* dev->stalled, by ask_at_ms */
	struct conn *next;	   /* in its bucket */
};

TAILQ_HEAD(conn_list, conn);

const char *conn_state_name(enum conn_state state);

/* Whether from -> to is a transition that exists. */
bool conn_may_become(enum conn_state from, enum conn_state to);

/* How many payload bytes may be sent to the guest now. */
uint32_t conn_credit(const struct conn *c);

/* Whether the host may have sent something that the guest would take, had it credit. */
static inline bool conn_has_input(const struct conn *c)
{
	return c->readable && !c->eof && !(c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV);
}

/* Whether bytes can go to the guest now. */
static inline bool conn_flows(const struct conn *c)
{
	return conn_has_input(c) && conn_credit(c) > 0;
}

/* How many payload bytes the guest may still send. */
uint32_t conn_granted(const struct conn *c);

/*
 * Whether the guest should be told about freed space now: it believes it has less than half its
 * grant left, and a quarter of the grant, or everything, has been freed meanwhile. So a guest that
 * waits is always told, and one that streams is told about every 128 KiB.
 */
bool conn_update_due(const struct conn *c);

/* The table: connections by (host port, guest port). */
#define CONN_BUCKETS 1024

struct conn_table {
	uint32_t seed; /* the guest chooses ports, so the hash must not be guessable */
	struct conn *bucket[CONN_BUCKETS];
};

struct conn *conn_find(const struct conn_table *t, uint32_t host_port, uint32_t guest_port);
/* Whether any connection has this host port; only for ports that hutch gives out itself. */
bool conn_host_port_used(const struct conn_table *t, uint32_t host_port);
void conn_insert(struct conn_table *t, struct conn *c);
void conn_remove(struct conn_table *t, struct conn *c);

/*
 * Host ports of connections that the host began, unique among the living. The guest can't dial
 * these (RST), so a port in this range alone names its connection.
 */
#define CONN_PORT_FIRST 0x40000000U
#define CONN_PORT_LAST	0x7fffffffU

static inline bool conn_port_is_ours(uint32_t host_port)
{
	return host_port >= CONN_PORT_FIRST && host_port <= CONN_PORT_LAST;
}

#endif
