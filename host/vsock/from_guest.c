/* SPDX-License-Identifier: Apache-2.0 */
/* Packets from the guest: the transmit queue (virtio 1.2, section 5.10.6). */
#include <string.h>
#include <sys/socket.h>

#include "host/vsock/device_priv.h"
#include "host/vsock/hybrid.h"

/* What one pass may cost, so that the other direction and the lock's waiters get their turn. */
#define PASS_PACKETS 64
#define PASS_BYTES   262144U
#define PASS_DESCS   2048U

struct input {
	struct packet hdr;
	struct iovec *iov; /* the payload's pieces */
	unsigned iov_n;
	uint64_t bytes; /* in them: at least hdr.len, or the header lies */
};

/* Moves n bytes from the front of the input to buf; false when there are fewer. */
static bool take_bytes(struct input *in, void *buf, size_t n)
{
	uint8_t *p = buf;

	if (in->bytes < n)
		return false;
	in->bytes -= n;
	while (n > 0) {
		size_t k = in->iov->iov_len < n ? in->iov->iov_len : n;

		memcpy(p, in->iov->iov_base, k);
		p += k;
		n -= k;
		in->iov->iov_base = (uint8_t *)in->iov->iov_base + k;
		in->iov->iov_len -= k;
		if (in->iov->iov_len == 0) {
			in->iov++;
			in->iov_n--;
		}
	}
	return true;
}

/* Cuts the payload to the length that the header gives; bytes behind it are padding. */
static void trim_payload(struct input *in)
{
	uint64_t left = in->hdr.len;
	unsigned i;

	for (i = 0; i < in->iov_n && left > 0; i++) {
		if (in->iov[i].iov_len > left)
			in->iov[i].iov_len = left;
		left -= in->iov[i].iov_len;
	}
	in->iov_n = i;
	in->bytes = in->hdr.len;
}

/* Owes an RST to an address that has no connection. from_guest_run() made sure of the room. */
static void refuse(struct vsock_dev *dev, const struct packet *p)
{
	struct reset_owed *r;

	if (p->op == VIRTIO_VSOCK_OP_RST)
		return;
	r = &dev->reset[(dev->reset_head + dev->reset_count++) % MAX_RESETS];
	*r = (struct reset_owed){
		.src_cid = p->dst_cid,
		.host_port = p->dst_port,
		.guest_port = p->src_port,
		.type = p->type,
	};
}

static void on_request(struct vsock_dev *dev, const struct packet *p)
{
	struct conn *c;
	int fd;

	if (!dev->cfg.dial_prefix || conn_port_is_ours(p->dst_port) ||
	    dev->conn_count == dev->cfg.max_conns) {
		refuse(dev, p);
		return;
	}
	fd = hybrid_dial(dev->cfg.dial_prefix, p->dst_port);
	c = fd < 0 ? NULL : dev_conn_new(dev, fd);
	if (!c) {
		refuse(dev, p);
		return;
	}
	c->host_port = p->dst_port;
	c->guest_port = p->src_port;
	c->peer_alloc = p->buf_alloc;
	c->peer_fwd = p->fwd_cnt;
	conn_insert(&dev->table, c);
	dev_conn_set_state(c, CONN_OPEN);
	dev_conn_owe(c, OWED_RESPONSE);
}

static void on_response(struct conn *c, struct input *in)
{
	(void)in;
	if (c->state != CONN_REQUESTED)
		dev_conn_violation(c, "answered twice");
	else if (c->owed & OWED_REQUEST)
		dev_conn_violation(c, "answered what was not asked");
	else
		host_accepted(c);
}

static void on_rst(struct conn *c, struct input *in)
{
	(void)in;
	if (c->state == CONN_OPEN && (c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND))
		dev_conn_drain(c); /* it had ended its stream in order */
	else
		dev_conn_drop(c);
}

static void on_shutdown(struct conn *c, struct input *in)
{
	const uint32_t both = VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND;

	if (c->state != CONN_OPEN) {
		dev_conn_violation(c, "shut down a connection that is not open");
		return;
	}
	c->guest_shut |= (uint8_t)(in->hdr.flags & both);
	if (c->guest_shut == both) {
		refuse(c->dev, &in->hdr); /* the answer that a closing guest waits for */
		dev_conn_drain(c);
		return;
	}
	if (c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV)
		(void)shutdown(c->src.fd,
			       SHUT_RD); /* fails only when the host has closed already */
	host_follow_shutdown(c);
	dev_conn_consider(c);
}

static void on_data(struct conn *c, struct input *in)
{
	if (c->state != CONN_OPEN)
		dev_conn_violation(c, "sent data on a connection that is not open");
	else if (c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND)
		dev_conn_violation(c, "sent data after its shutdown");
	else if (in->hdr.len > in->bytes)
		dev_conn_violation(c, "sent a header longer than its packet");
	else if (in->hdr.len > conn_granted(c))
		dev_conn_violation(c, "sent more than its credit");
	else if (in->hdr.len > 0) {
		trim_payload(in);
		c->received += in->hdr.len;
		host_send(c, in->iov, in->iov_n, in->hdr.len);
	}
}

static void on_credit_update(struct conn *c, struct input *in)
{
	(void)c; /* the header of every packet is one */
	(void)in;
}

static void on_credit_request(struct conn *c, struct input *in)
{
	(void)in;
	if (c->state == CONN_OPEN)
		dev_conn_owe(c, OWED_CREDIT_UPDATE);
}

static void (*const on_op[])(struct conn *c, struct input *in) = {
	[VIRTIO_VSOCK_OP_RESPONSE] = on_response,
	[VIRTIO_VSOCK_OP_RST] = on_rst,
	[VIRTIO_VSOCK_OP_SHUTDOWN] = on_shutdown,
	[VIRTIO_VSOCK_OP_RW] = on_data,
	[VIRTIO_VSOCK_OP_CREDIT_UPDATE] = on_credit_update,
	[VIRTIO_VSOCK_OP_CREDIT_REQUEST] = on_credit_request,
};

#define OPS (sizeof(on_op) / sizeof(on_op[0]))

static void on_packet(struct vsock_dev *dev, struct input *in)
{
	const struct packet *p = &in->hdr;
	struct conn *c;

	if (p->src_cid != dev->cid) {
		dev->stats.bad_cid++;
		return;
	}
	dev->stats.to_host_packets++;
	if (p->dst_cid != VSOCK_HOST_CID || p->type != VIRTIO_VSOCK_TYPE_STREAM) {
		refuse(dev, p);
		return;
	}
	c = conn_find(&dev->table, p->dst_port, p->src_port);
	if (!c && p->op == VIRTIO_VSOCK_OP_REQUEST) {
		on_request(dev, p);
		return;
	}
	if (!c) {
		refuse(dev, p);
		return;
	}
	if (c->state == CONN_RESETTING) {
		if (p->op == VIRTIO_VSOCK_OP_RST)
			dev_conn_drop(c);
		return;
	}
	c->peer_alloc = p->buf_alloc;
	c->peer_fwd = p->fwd_cnt;
	if (conn_credit(c) > 0)
		c->credit_asked = false;
	if (p->op < OPS && on_op[p->op])
		on_op[p->op](c, in);
	else
		dev_conn_violation(c, "sent an operation that no connection has");
	dev_conn_consider(c);
}

/* Takes one chain; false when the queue is empty or broken. */
static bool take_packet(struct vsock_dev *dev, struct virtq_chain *chain)
{
	struct virtq *vq = &dev->queue[VSOCK_QUEUE_TX].ring;
	struct input in = {.iov = dev->iov};
	struct virtio_vsock_hdr hdr;
	enum virtq_result r;

	do {
		r = virtq_pop(vq, VIRTQ_READABLE, dev->iov, VIRTQ_MAX_IOV, chain);
	} while (r == VIRTQ_EMPTY && virtq_kick_enable(vq));
	if (r != VIRTQ_OK)
		return false;
	in.iov_n = chain->iov_n;
	in.bytes = chain->bytes;
	if (!take_bytes(&in, &hdr, sizeof(hdr))) {
		virtq_break(vq, "packet shorter than its header");
		return false;
	}
	packet_decode(&in.hdr, &hdr);
	on_packet(dev, &in);
	virtq_put(vq, chain->head, 0);
	dev->tx_slots_unsignalled += chain->slots;
	return true;
}

bool from_guest_run(struct vsock_dev *dev)
{
	struct virtq_chain chain;
	uint64_t bytes = 0;
	uint32_t descs = 0;

	virtq_kick_disable(&dev->queue[VSOCK_QUEUE_TX].ring);
	for (int i = 0; i < PASS_PACKETS && bytes < PASS_BYTES && descs < PASS_DESCS; i++) {
		/*
		 * A guest that takes no answers gets no questions: nothing is dropped, nothing
		 * piles up.
		 */
		dev->tx_blocked = dev->reset_count == MAX_RESETS;
		if (dev->tx_blocked || !take_packet(dev, &chain))
			return false;
		bytes += chain.bytes;
		descs += chain.descs;
	}
	return true;
}
