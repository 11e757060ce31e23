/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets to the guest: the receive queue.
 *
 * Control packets go first, then the connections that have data take turns of at most VSOCK_QUANTUM
 * bytes. One readv(2) fills the guest's buffers straight from the socket, as many of them as the
 * turn needs; what the read did not fill is given back to the ring, which the guest never saw us
 * take.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "host/vsock/device_priv.h"

#define PASS_TURNS  64
#define PASS_BYTES  131072U
#define TURN_CHAINS 64
#define READ_MIN    4096U

/* A chain taken for a turn. */
struct slot {
	uint16_t head;
	unsigned iov_at; /* its first piece in dev->iov */
	unsigned iov_n;
	uint32_t room; /* payload bytes it is meant to take */
};

/* The buffers of one turn; dev->data[0 .. data_n-1] are their payload parts, in order. */
struct turn {
	struct slot slot[TURN_CHAINS];
	unsigned slots;
	unsigned iov_n;
	unsigned data_n;
	uint32_t room;
};

static struct packet header(const struct conn *c, uint16_t op)
{
	return (struct packet){
		.src_cid = VSOCK_HOST_CID,
		.dst_cid = c->dev->cid,
		.src_port = c->host_port,
		.dst_port = c->guest_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = c->alloc,
		.fwd_cnt = c->fwd,
	};
}

static void write_header(const struct iovec *iov, const struct packet *p)
{
	struct virtio_vsock_hdr hdr;
	size_t done = 0;

	packet_encode(&hdr, p);
	while (done < sizeof(hdr)) {
		size_t n = sizeof(hdr) - done;

		if (n > iov->iov_len)
			n = iov->iov_len;
		memcpy(iov->iov_base, (const uint8_t *)&hdr + done, n);
		done += n;
		iov++;
	}
}

/*
 * Takes a receive buffer with its pieces at dev->iov[at]. VIRTQ_EMPTY: the guest has been asked to
 * notify, and there still is none.
 */
static enum virtq_result take_buffer(struct vsock_dev *dev, unsigned at, struct virtq_chain *chain)
{
	struct virtq *vq = &dev->queue[VSOCK_QUEUE_RX].ring;
	enum virtq_result r;

	r = virtq_pop(vq, VIRTQ_WRITABLE, dev->iov + at, VIRTQ_MAX_IOV - at, chain);
	if (r == VIRTQ_OK && chain->bytes <= VSOCK_HDR_BYTES)
		return virtq_break(vq, "receive buffer has no room for a packet");
	return r;
}

/* As take_buffer at 0, but waits for none only when the guest will tell. */
static bool need_buffer(struct vsock_dev *dev, struct virtq_chain *chain)
{
	struct virtq *vq = &dev->queue[VSOCK_QUEUE_RX].ring;
	enum virtq_result r;

	do {
		r = take_buffer(dev, 0, chain);
	} while (r == VIRTQ_EMPTY && virtq_kick_enable(vq));
	return r == VIRTQ_OK;
}

/* Sends a packet without payload; false when the guest has no buffer. */
static bool put_control(struct vsock_dev *dev, const struct packet *p)
{
	struct virtq_chain chain;

	if (!need_buffer(dev, &chain))
		return false;
	write_header(dev->iov, p);
	virtq_put(&dev->queue[VSOCK_QUEUE_RX].ring, chain.head, VSOCK_HDR_BYTES);
	dev->stats.to_guest_packets++;
	return true;
}

static bool send_resets(struct vsock_dev *dev)
{
	while (dev->reset_count > 0) {
		const struct reset_owed *r = &dev->reset[dev->reset_head];
		struct packet p = {
			.src_cid = r->src_cid,
			.dst_cid = dev->cid,
			.src_port = r->host_port,
			.dst_port = r->guest_port,
			.type = r->type,
			.op = VIRTIO_VSOCK_OP_RST,
		};

		if (!put_control(dev, &p))
			return false;
		dev->reset_head = (dev->reset_head + 1) % MAX_RESETS;
		dev->reset_count--;
	}
	return true;
}

static const struct {
	uint8_t owed;
	uint16_t op;
} control[] = {
	{OWED_REQUEST, VIRTIO_VSOCK_OP_REQUEST},
	{OWED_RESPONSE, VIRTIO_VSOCK_OP_RESPONSE},
	{OWED_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_UPDATE},
	{OWED_CREDIT_REQUEST, VIRTIO_VSOCK_OP_CREDIT_REQUEST},
	{OWED_SHUTDOWN, VIRTIO_VSOCK_OP_SHUTDOWN},
	{OWED_RST, VIRTIO_VSOCK_OP_RST},
};

static uint32_t shutdown_flags(const struct conn *c)
{
	return VIRTIO_VSOCK_SHUTDOWN_SEND | (c->host_wr_shut ? VIRTIO_VSOCK_SHUTDOWN_RCV : 0U);
}

static bool send_owed_by(struct conn *c)
{
	for (unsigned i = 0; i < sizeof(control) / sizeof(control[0]); i++) {
		struct packet p;

		if (!(c->owed & control[i].owed))
			continue;
		p = header(c, control[i].op);
		if (control[i].op == VIRTIO_VSOCK_OP_SHUTDOWN)
			p.flags = shutdown_flags(c);
		if (!put_control(c->dev, &p))
			return false;
		c->fwd_told = p.fwd_cnt;
		c->owed &= (uint8_t)~control[i].owed;
	}
	return true;
}

static bool send_owed(struct vsock_dev *dev)
{
	struct conn *c;

	while ((c = TAILQ_FIRST(&dev->owing))) {
		if (!send_owed_by(c))
			return false;
		TAILQ_REMOVE(&dev->owing, c, owing);
		c->in_owing = false;
		if (c->state == CONN_RESETTING)
			dev_conn_drop(c);
	}
	return true;
}

/* Adds the chain's payload part, at most want bytes, to the turn's data. */
static void add_slot(struct vsock_dev *dev, struct turn *t, const struct virtq_chain *chain,
		     uint32_t want)
{
	struct slot *s = &t->slot[t->slots++];
	size_t skip = VSOCK_HDR_BYTES;

	*s = (struct slot){.head = chain->head, .iov_at = t->iov_n, .iov_n = chain->iov_n};
	for (unsigned i = 0; i < chain->iov_n && s->room < want; i++) {
		struct iovec v = dev->iov[t->iov_n + i];

		if (skip >= v.iov_len) {
			skip -= v.iov_len;
			continue;
		}
		v.iov_base = (uint8_t *)v.iov_base + skip;
		v.iov_len -= skip;
		skip = 0;
		if (v.iov_len > want - s->room)
			v.iov_len = want - s->room;
		s->room += (uint32_t)v.iov_len;
		dev->data[t->data_n++] = v;
	}
	t->iov_n += chain->iov_n;
	t->room += s->room;
}

/* Takes buffers for want bytes, or fewer when the guest has no more; false when it has none. */
static bool gather(struct vsock_dev *dev, struct turn *t, uint32_t want)
{
	struct virtq_chain chain;

	*t = (struct turn){0};
	if (!need_buffer(dev, &chain))
		return false;
	do {
		add_slot(dev, t, &chain, want - t->room);
	} while (t->room < want && t->slots < TURN_CHAINS &&
		 take_buffer(dev, t->iov_n, &chain) == VIRTQ_OK);
	return !dev->queue[VSOCK_QUEUE_RX].ring.broken;
}

/*
 * Puts headers before the n bytes that were read, and gives back the buffers that were not needed.
 */
static void put_data(struct conn *c, struct turn *t, uint32_t n)
{
	struct vsock_dev *dev = c->dev;
	struct virtq *vq = &dev->queue[VSOCK_QUEUE_RX].ring;
	struct packet p = header(c, VIRTIO_VSOCK_OP_RW);
	unsigned i;

	c->sent += n;
	c->fwd_told = p.fwd_cnt;
	c->owed &= (uint8_t)~OWED_CREDIT_UPDATE;
	dev->stats.to_guest_bytes += n;
	for (i = 0; n > 0; i++) {
		const struct slot *s = &t->slot[i];

		p.len = s->room < n ? s->room : n;
		n -= p.len;
		write_header(&dev->iov[s->iov_at], &p);
		virtq_put(vq, s->head, VSOCK_HDR_BYTES + p.len);
	}
	dev->stats.to_guest_packets += i;
	virtq_unpop(vq, t->slots - i);
}

static uint32_t turn_size(const struct conn *c)
{
	uint32_t credit = conn_credit(c);
	uint32_t want = c->read_size * 2 > READ_MIN ? c->read_size * 2 : READ_MIN;

	if (want > VSOCK_QUANTUM)
		want = VSOCK_QUANTUM;
	return want < credit ? want : credit;
}

static void reached_end(struct conn *c)
{
	c->eof = true;
	if (!c->host_gone)
		dev_conn_owe(c, OWED_SHUTDOWN);
}

/* What a readv of n bytes (of room) or errno says about the socket. */
static void after_read(struct conn *c, ssize_t n, uint32_t room)
{
	if (n > 0) {
		c->read_size = (uint32_t)n;
		/* Short: the socket is empty, unless its end is what made it short. */
		if ((uint32_t)n < room && !c->ended)
			c->readable = false;
		return;
	}
	c->readable = false;
	if (n == 0)
		reached_end(c);
	else if (errno == EFAULT)
		virtq_break(&c->dev->queue[VSOCK_QUEUE_RX].ring, "receive buffer is not mapped");
	else if (errno != EAGAIN)
		c->host_gone = true;
}

/* One turn. Returns the bytes it moved, or -1 when the guest has no buffer. */
static int64_t take_turn(struct conn *c)
{
	struct vsock_dev *dev = c->dev;
	struct turn t;
	ssize_t n;

	if (!gather(dev, &t, turn_size(c)))
		return -1;
	n = readv(c->src.fd, dev->data, (int)t.data_n);
	if (n > 0)
		put_data(c, &t, (uint32_t)n);
	else
		virtq_unpop(&dev->queue[VSOCK_QUEUE_RX].ring, t.slots);
	after_read(c, n, t.room);
	return n > 0 ? n : 0;
}

/*
 * After its turn: to the end of the line, out of it, or reset when the host is gone and nothing
 * more can flow now.
 */
static void requeue(struct conn *c)
{
	struct vsock_dev *dev = c->dev;

	if (c->host_gone && !conn_flows(c)) {
		dev_conn_reset(c);
		return;
	}
	dev_conn_consider(c);
	if (c->in_ready) {
		TAILQ_REMOVE(&dev->ready, c, ready);
		TAILQ_INSERT_TAIL(&dev->ready, c, ready);
	}
}

bool to_guest_run(struct vsock_dev *dev)
{
	uint64_t bytes = 0;
	struct conn *c;

	virtq_kick_disable(&dev->queue[VSOCK_QUEUE_RX].ring);
	for (int turn = 0;; turn++) {
		int64_t n = 0;

		if (!send_resets(dev) || !send_owed(dev))
			return false;
		c = TAILQ_FIRST(&dev->ready);
		if (!c)
			return false;
		if (turn == PASS_TURNS || bytes >= PASS_BYTES)
			return true;
		if (conn_flows(c))
			n = take_turn(c);
		if (n < 0)
			return false;
		bytes += (uint64_t)n;
		requeue(c);
	}
}
