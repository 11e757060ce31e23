/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest without a guest: memory, the two rings and a small virtio-vsock driver, for tests of
 * host/vsock.
 *
 * The memory is made of one or two regions, each between inaccessible pages, so that a stray access
 * of the device faults. The driver behaves well; a test that wants a hostile one writes to the
 * rings itself (fg_desc(), fg_offer()).
 */
#ifndef HUTCH_TESTS_FAKE_GUEST_H
#define HUTCH_TESTS_FAKE_GUEST_H

#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/vsock/device.h"
#include "host/vsock/packet.h"

#define FG_GPA	     0x10000U /* where the first region begins */
#define FG_MAX_NUM   1024
#define FG_MAX_PAYLD 65536
#define FG_CID	     77

/* How the driver lays out a packet's buffer. */
enum fg_layout {
	FG_SINGLE,   /* one descriptor */
	FG_PAIR,     /* header and payload, chained */
	FG_INDIRECT, /* header and payload in an indirect table, as Linux 6.1 */
	FG_SHREDDED, /* the header in three odd pieces, an empty descriptor, the payload in two */
	FG_LAYOUTS
};

struct fg_opts {
	unsigned num;	     /* ring entries; 0: 128 */
	unsigned rx_size;    /* payload bytes of a receive buffer; 0: 4096 */
	unsigned rx_buffers; /* given to the device at the start; 0: as many as fit */
	enum fg_layout rx, tx;
	bool event_idx;
	bool two_regions; /* buffers lie across the border of two regions */
};

struct fg_ring {
	unsigned num;
	uint64_t desc, avail, used; /* guest addresses */
	uint16_t next_avail;	    /* next entry we fill */
	uint16_t last_used;	    /* next used entry we look at */
	uint16_t told;		    /* next_avail when we last thought about a kick */
	int kick, call;		    /* eventfds */
	uint16_t free[FG_MAX_NUM];
	unsigned free_n;
	uint16_t chain[FG_MAX_NUM][8]; /* the descriptors of the chain that begins here */
	uint8_t chain_n[FG_MAX_NUM];
};

struct fg_region {
	uint8_t *hva;
	uint64_t gpa;
	size_t size;
	void *map; /* with its guards */
	size_t map_size;
};

struct fake_guest {
	struct fg_opts opts;
	struct fg_region region[2];
	unsigned regions;
	uint64_t brk; /* bump allocator */
	uint64_t end;
	struct fg_ring ring[VSOCK_QUEUES];
	uint64_t buf[VSOCK_QUEUES];   /* one buffer per possible head */
	uint64_t table[VSOCK_QUEUES]; /* one small indirect table per possible head */
	uint64_t features;
	unsigned kicks; /* sent */

	/* fg_create_device() */
	struct loop loop;
	struct vsock_dev *dev;
	char log[4096];
};

/* Aborts the test on failure of the host's system calls. */
void fg_init(struct fake_guest *fg, const struct fg_opts *opts);
void fg_free(struct fake_guest *fg);

/* A device of our own in the calling thread. cfg's loop and log are set here; cfg may be NULL. */
void fg_create_device(struct fake_guest *fg, const struct vsock_config *cfg);

/* Features, memory, rings, start, as QEMU does it: 0 or the first error. */
int fg_start(struct fake_guest *fg);
int fg_stop(struct fake_guest *fg);

/* Gives the device the receive buffers, as fg_start() does in a fresh ring. */
void fg_fill_rx(struct fake_guest *fg);

/*
 * Empties the rings as a driver's reset does, and gives the device new receive buffers on the next
 * fg_start().
 */
void fg_reset_rings(struct fake_guest *fg);

/*
 * Runs the device until it has nothing to do; fails the test if it never comes to rest. Without
 * wait it does not sleep; with wait it sleeps once, at most wait ms, for the device's own deadlines
 * or an event.
 */
void fg_pump(struct fake_guest *fg);
void fg_pump_wait(struct fake_guest *fg, int wait_ms);

/* Guest memory. fg_ptr: len bytes that lie in one region. */
void *fg_ptr(struct fake_guest *fg, uint64_t gpa, size_t len);
void fg_write(struct fake_guest *fg, uint64_t gpa, const void *buf, size_t len);
void fg_read(struct fake_guest *fg, uint64_t gpa, void *buf, size_t len);
uint64_t fg_alloc(struct fake_guest *fg, size_t len, size_t align);

/*
 * The bare ring: a descriptor, an entry of the available ring (seen at fg_kick()), a notification
 * if one is wanted.
 */
void fg_desc(struct fake_guest *fg, unsigned queue, unsigned i, uint64_t addr, uint32_t len,
	     uint16_t flags, uint16_t next);
void fg_offer(struct fake_guest *fg, unsigned queue, uint16_t head);
void fg_kick(struct fake_guest *fg, unsigned queue);
uint16_t fg_used_idx(struct fake_guest *fg, unsigned queue);

/* Sends one packet; false when the ring is full. */
bool fg_send(struct fake_guest *fg, const struct packet *hdr, const void *payload);

/* Takes the next packet from the device and gives the buffer back; false when there is none. */
bool fg_recv(struct fake_guest *fg, struct packet *hdr, void *payload);

/* Whether the device has interrupted since this was last asked. */
bool fg_interrupted(struct fake_guest *fg, unsigned queue);

/* ---- one connection, from the guest's end ---- */

struct fg_conn {
	uint32_t host_port, guest_port;
	uint32_t buf_alloc; /* our receive buffer */
	uint32_t received, fwd;
	uint32_t sent, peer_alloc, peer_fwd;
	bool peer_done; /* SHUTDOWN with SEND came */
	bool reset;	/* RST came */
	bool open;
};

/* A packet of op from this connection; fields may be changed before it is sent. */
struct packet fg_header(const struct fg_conn *c, uint16_t op);
void fg_op(struct fake_guest *fg, struct fg_conn *c, uint16_t op, uint32_t flags);

/* Sends what credit and ring allow of n bytes; returns how many. */
size_t fg_conn_send(struct fake_guest *fg, struct fg_conn *c, const void *buf, size_t n);

/*
 * Takes packets, all of which must be for c; data goes to buf (of size cap) and is acknowledged
 * when ack. Returns the bytes of data.
 */
size_t fg_conn_recv(struct fake_guest *fg, struct fg_conn *c, void *buf, size_t cap, bool ack);

/* Waits for the host's REQUEST to port, and accepts it. */
void fg_accept(struct fake_guest *fg, struct fg_conn *c, uint32_t port);

#endif
