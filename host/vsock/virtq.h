/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A split virtqueue, seen from the device (virtio 1.2, section 2.7), in memory that the guest can
 * change at any time.
 *
 * How it stays safe: every field in guest memory is read once, into a local, and checked there;
 * every address goes through gmem. A ring that breaks a rule is marked broken with the reason, and
 * from then on nothing is taken from it; virtq_start() with fresh is what clears it. A walk over a
 * chain is bounded by VIRTQ_MAX_CHAIN descriptors, so a loop ends. Nothing is allocated.
 *
 * The order of calls is: virtq_pop() any number of chains, virtq_put() each one's head (or
 * virtq_unpop() the last ones), then one virtq_publish(), then virtq_should_signal() when it is
 * convenient.
 */
#ifndef HUTCH_VSOCK_VIRTQ_H
#define HUTCH_VSOCK_VIRTQ_H

#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "host/vsock/gmem.h"

#define VIRTQ_MAX_NUM	1024 /* entries; QEMU's own limit (VIRTQUEUE_MAX_SIZE) */
#define VIRTQ_MAX_CHAIN 1024 /* descriptors in one chain, indirect ones included */
#define VIRTQ_MAX_IOV	1024 /* pieces of one chain: IOV_MAX */

enum virtq_dir {
	VIRTQ_READABLE, /* the device reads: transmit queue */
	VIRTQ_WRITABLE, /* the device writes: receive queue */
};

enum virtq_result {
	VIRTQ_OK,
	VIRTQ_EMPTY,
	VIRTQ_FULL,   /* the caller's iov has no room for this chain; nothing was taken */
	VIRTQ_BROKEN, /* see virtq->broken */
};

struct virtq_chain {
	uint16_t head;
	uint16_t slots; /* descriptors used in the ring's own table */
	uint32_t descs; /* all descriptors walked: the work it cost */
	unsigned iov_n; /* pieces written to the caller's iov */
	uint64_t bytes;
};

/* Addresses in this process, as vhost has it (struct vhost_vring_addr). */
struct virtq_addr {
	uint64_t desc;
	uint64_t avail;
	uint64_t used;
};

struct virtq {
	struct gmem *mem;
	const char *broken; /* why it stopped, or NULL */
	uint16_t num;	    /* entries, a power of two; 0: not set */
	bool indirect;	    /* VIRTIO_RING_F_INDIRECT_DESC was negotiated */
	bool event_idx;	    /* VIRTIO_RING_F_EVENT_IDX was negotiated */
	bool attached;	    /* addr was checked against mem */
	bool kicks_on;	    /* the guest was asked to notify (without event_idx) */
	bool signalled_valid;
	struct virtq_addr addr;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t next_avail; /* next entry of the available ring to take */
	uint16_t avail_seen; /* the available index as last read */
	uint16_t next_used;  /* next entry of the used ring to fill */
	uint16_t used_told;  /* the used index as last published */
	uint16_t signalled;  /* used_told when virtq_should_signal() was last asked */
};

/* 0, or -EINVAL when num is 0, above VIRTQ_MAX_NUM or no power of two. */
int virtq_set_num(struct virtq *vq, uint32_t num);

/*
 * Checks the three areas' alignment and that each lies in one region of mem, then uses them.
 * -EINVAL: no size set or bad alignment; -EFAULT: outside the table.
 */
int virtq_set_addr(struct virtq *vq, const struct virtq_addr *addr);

/*
 * After the table changed: a ring that is no longer inside is detached. Returns whether it is
 * attached.
 */
bool virtq_recheck(struct virtq *vq);

/* Begins (again) at available entry next_avail; fresh: forget that it was broken. */
void virtq_start(struct virtq *vq, bool fresh);

/* Marks it broken; the first reason stays. Always returns VIRTQ_BROKEN. */
enum virtq_result virtq_break(struct virtq *vq, const char *why);

/*
 * Takes the next chain. Its pieces are written to iov[0 .. room-1]; all must be of direction dir. A
 * room of VIRTQ_MAX_IOV never gives VIRTQ_FULL.
 */
enum virtq_result virtq_pop(struct virtq *vq, enum virtq_dir dir, struct iovec *iov, unsigned room,
			    struct virtq_chain *chain);

/* Gives back the last n chains taken, none of which was put. */
void virtq_unpop(struct virtq *vq, unsigned n);

/*
 * Fills the next used entry: the chain at head is done, len bytes were written to it. Seen by the
 * guest on publish.
 */
void virtq_put(struct virtq *vq, uint16_t head, uint32_t len);

/* Shows the guest what was put. Returns whether there was anything new. */
bool virtq_publish(struct virtq *vq);

/* Whether the guest wants an interrupt for what was published since this was last asked (2.7.7). */
bool virtq_should_signal(struct virtq *vq);

/* Asks the guest to notify on the next chain; true: one is there already, so don't wait. */
bool virtq_kick_enable(struct virtq *vq);

/* Asks the guest not to notify (with event_idx there is nothing to do: the old index stays). */
void virtq_kick_disable(struct virtq *vq);

#endif
