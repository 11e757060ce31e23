/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtio-vsock device (virtio 1.2, section 5.10) whose host side is a hybrid-vsock Unix socket.
 *
 * The caller owns the thread and the loop: it waits in loop_wait(), dispatches, and then calls
 * vsock_dev_service(). All calls on one device are made by one thread at a time. The back-end calls
 * follow vhost (linux/vhost.h): features, memory, rings, then run. The event queue is the VMM's;
 * queue 0 is receive (to the guest), 1 transmit.
 */
#ifndef HUTCH_VSOCK_DEVICE_H
#define HUTCH_VSOCK_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "host/vsock/gmem.h"
#include "host/vsock/loop.h"
#include "host/vsock/virtq.h"

enum {
	VSOCK_QUEUE_RX, /* the guest's receive queue */
	VSOCK_QUEUE_TX,
	VSOCK_QUEUES
};

/* Bounds; README.md says what happens at each. */
#define VSOCK_MAX_CONNS	     2048
#define VSOCK_MAX_HANDSHAKES 256
#define VSOCK_HANDSHAKE_MS   5000
#define VSOCK_QUANTUM	     65536 /* bytes to the guest in one turn of a connection */

struct vsock_config {
	struct loop *loop;
	int listen_fd; /* listening Unix stream socket, borrowed; -1: none */
	/* A guest's dial of port P connects to <prefix>_P; borrowed; NULL: refused. */
	const char *dial_prefix;
	unsigned handshake_ms; /* from accept to the guest's answer; 0: VSOCK_HANDSHAKE_MS */
	unsigned max_conns;    /* 0: VSOCK_MAX_CONNS */
	void (*log)(void *arg, const char *line);
	void *log_arg;
	bool debug; /* log every change of a connection's state */
};

struct vsock_stats {
	bool running;
	const char *broken; /* why a ring stopped, or NULL */
	uint64_t cid;
	unsigned conns;	     /* all, handshakes included */
	unsigned handshakes; /* no complete CONNECT line yet */
	uint64_t to_guest_bytes;
	uint64_t to_guest_packets;
	uint64_t to_host_bytes;
	uint64_t to_host_packets;
	uint64_t signals;    /* interrupts asked for */
	uint64_t kicks;	     /* notifications seen */
	uint64_t bad_cid;    /* packets dropped for a source CID that is not the guest's */
	uint64_t violations; /* connections reset for a guest's breach of the protocol */
};

struct vsock_dev;

/* NULL with errno: EINVAL, ENAMETOOLONG (dial_prefix), ENOMEM, or of epoll_ctl(2). */
struct vsock_dev *vsock_dev_create(const struct vsock_config *cfg);
void vsock_dev_destroy(struct vsock_dev *dev);

/*
 * In a process that was forked while the device was stopped, with a new loop and a new listener: every
 * connection ends here, of which the guest is told as soon as it runs, unless its memory is going to be
 * that of another one; and nothing is said to the other end, which is the parent's. 0, or -1 with errno of epoll_ctl(2).
 */
int vsock_dev_forked(struct vsock_dev *dev, bool another_guest);

/* The feature bits on offer. */
uint64_t vsock_dev_features(void);

/*
 * Back-end calls: 0 or -errno. -EBUSY: not while running; -EINVAL: bad value; -EFAULT: outside the
 * memory table; -EBADF: descriptor. set_features needs VIRTIO_F_VERSION_1 to run; unknown bits are
 * ignored, as QEMU sends its own.
 */
int vsock_dev_set_features(struct vsock_dev *dev, uint64_t features);
int vsock_dev_set_mem(struct vsock_dev *dev, const struct gmem_region *region, unsigned count);
int vsock_dev_set_num(struct vsock_dev *dev, unsigned queue, uint32_t num);
int vsock_dev_set_base(struct vsock_dev *dev, unsigned queue, uint32_t base);
int vsock_dev_get_base(struct vsock_dev *dev, unsigned queue, uint32_t *base);
int vsock_dev_set_addr(struct vsock_dev *dev, unsigned queue, const struct virtq_addr *addr);
int vsock_dev_set_cid(struct vsock_dev *dev, uint64_t cid);

/* Eventfds; duplicated, the caller keeps its own. -1 takes one away. */
int vsock_dev_set_kick(struct vsock_dev *dev, unsigned queue, int fd);
int vsock_dev_set_call(struct vsock_dev *dev, unsigned queue, int fd);
int vsock_dev_set_err(struct vsock_dev *dev, unsigned queue, int fd);

/*
 * Starts or stops serving the rings. Stopping leaves nothing half done in them and keeps all
 * connections; starting again at the same base, addresses, sizes and features continues them. Any
 * difference means that the driver was reset: its connections are closed, and requests it has not
 * answered are sent again.
 */
int vsock_dev_run(struct vsock_dev *dev, bool run);

/* Stops, and forgets everything but the host's handshakes (VHOST_RESET_OWNER). */
void vsock_dev_reset(struct vsock_dev *dev);

/*
 * Does a bounded amount of work: packets of both directions, interrupts, deadlines, and frees what
 * died. Returns how long loop_wait() may sleep before the next call: 0 when there is more to do, -1
 * for ever.
 */
int vsock_dev_service(struct vsock_dev *dev);

/* Takes over fd as if it had been accepted on the listening socket. 0, or -errno with fd closed. */
int vsock_dev_adopt(struct vsock_dev *dev, int fd);

void vsock_dev_stats(const struct vsock_dev *dev, struct vsock_stats *stats);

#endif
