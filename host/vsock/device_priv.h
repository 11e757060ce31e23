/* SPDX-License-Identifier: Apache-2.0 */
/* What the device's own files share; nobody else includes it. */
#ifndef HUTCH_VSOCK_DEVICE_PRIV_H
#define HUTCH_VSOCK_DEVICE_PRIV_H

#include <unistd.h>

#include "host/vsock/conn.h"
#include "host/vsock/device.h"
#include "host/vsock/packet.h"

#define MAX_RESETS	   128 /* RSTs owed to ports without connection; then transmit waits */
#define MAX_COMPLAINTS	   64  /* log lines that a guest can cause in the life of the device */
#define CREDIT_ASK_MS	   20  /* how long a guest without credit may stay silent */
#define SIGNAL_DELAY_MS	   1   /* longest delay of a transmit interrupt */
#define ACCEPT_RETRY_MS	   100 /* pause of the listener when descriptors ran out */
#define EXTRA_CREDIT_BYTES (32U << 20) /* credit above CONN_CREDIT_MIN, shared by all connections */

struct queue {
	struct virtq ring;
	struct loop_source kick; /* kick.fd: our duplicate of the eventfd, or -1 */
	struct vsock_dev *dev;
	int call_fd;
	int err_fd;
};

/* What must be equal for a start to be the continuation of a stop. */
struct queue_mark {
	uint16_t num;
	uint16_t base;
	struct virtq_addr addr;
};

struct reset_owed {
	uint64_t src_cid; /* as the guest addressed it */
	uint32_t host_port;
	uint32_t guest_port;
	uint16_t type;
};

struct vsock_dev {
	struct vsock_config cfg;
	struct gmem mem;
	struct queue queue[VSOCK_QUEUES];
	uint64_t features;
	uint64_t cid;
	bool running;
	bool dead; /* a ring broke: every connection was closed, new ones are refused */
	bool stopped_once;
	uint64_t mark_features;
	struct queue_mark mark[VSOCK_QUEUES]; /* as of the last stop */
	uint64_t now_ms;

	struct loop_source listener;
	bool listener_on;
	uint64_t accept_again_ms; /* 0: not paused for want of descriptors */
	bool accept_failing;	  /* logged; until one succeeds */

	struct conn_table table;
	struct conn_list conns;
	struct conn_list dead_conns;
	struct conn_list ready;	  /* have something for the guest; served in turn */
	struct conn_list owing;	  /* owe the guest control packets */
	struct conn_list stalled; /* want credit and did not ask for it yet, nearest time first */
	struct conn_list waiting; /* HANDSHAKE and REQUESTED, nearest deadline first */
	unsigned conn_count;
	unsigned handshakes;
	uint32_t next_port;
	uint32_t extra_credit; /* what is left of EXTRA_CREDIT_BYTES */

	struct reset_owed reset[MAX_RESETS]; /* ring */
	unsigned reset_head;
	unsigned reset_count;
	bool tx_blocked; /* transmit waits for room in reset[] */

	unsigned tx_slots_unsignalled;
	uint64_t tx_signal_at_ms; /* 0: nothing to signal */

	unsigned complaints;
	struct vsock_stats stats;

	struct iovec iov[VIRTQ_MAX_IOV];  /* the pieces of the chains at hand */
	struct iovec data[VIRTQ_MAX_IOV]; /* of those, what lies behind the headers */
};

/* device.c */
static inline void dev_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Reads the clock into now_ms and returns it; callbacks run with the now_ms of the last service. */
uint64_t dev_clock(struct vsock_dev *dev);
__attribute__((format(printf, 2, 3))) void dev_log(struct vsock_dev *dev, const char *fmt, ...);
/* As dev_log, for what a guest can cause at will: at most MAX_COMPLAINTS lines. */
__attribute__((format(printf, 2, 3))) void dev_complain(struct vsock_dev *dev, const char *fmt,
							...);

/* Sends the transmit interrupt if it is due, or at once. */
void dev_signal_tx(struct vsock_dev *dev, bool at_once);

/* conn_moves.c */
/*
 * A connection over fd (taken over, closed on error), in HANDSHAKE, in no list but conns. NULL with
 * errno: EUSERS when the table is full, ENOMEM, or of epoll_ctl(2).
 */
struct conn *dev_conn_new(struct vsock_dev *dev, int fd);
void dev_conn_set_state(struct conn *c, enum conn_state state);
/* Queues packets for the guest. */
void dev_conn_owe(struct conn *c, unsigned owed);
/* Puts c on the ready list or takes it off, as its state says; notes when only credit is missing. */
void dev_conn_consider(struct conn *c);
/* Asks for credit on connections that have waited long enough for it. */
void dev_conn_ask_credit(struct vsock_dev *dev);
/* Closes it without a word to the guest. */
void dev_conn_drop(struct conn *c);
/* Closes it and owes the guest an RST, if the guest knows of it. */
void dev_conn_reset(struct conn *c);
/* As dev_conn_reset, for a guest that broke the rules. */
void dev_conn_violation(struct conn *c, const char *what);
/* The guest is done: out of the table; closed at once, or when the backlog has been written. */
void dev_conn_drain(struct conn *c);
/* Ends the deadline of HANDSHAKE or REQUESTED. */
void dev_conn_unwait(struct conn *c);

/* host_side.c */
void host_listener_fire(struct loop_source *src, uint32_t events);
void host_conn_fire(struct loop_source *src, uint32_t events);
/* Ends the handshakes and requests that are past their deadline. */
void host_expire(struct vsock_dev *dev);
/* Puts the listener on or off, as the bounds allow. */
void host_listen(struct vsock_dev *dev);
/* Writes to the host what it takes, keeps the rest. iov holds len bytes and may be changed. */
void host_send(struct conn *c, struct iovec *iov, unsigned n, uint32_t len);
/* After guest_shut changed or the backlog was emptied. */
void host_follow_shutdown(struct conn *c);
/* Tells the host its connect succeeded. */
void host_accepted(struct conn *c);

/* from_guest.c: true when work is left. */
bool from_guest_run(struct vsock_dev *dev);

/* to_guest.c: true when work is left. */
bool to_guest_run(struct vsock_dev *dev);

#endif
