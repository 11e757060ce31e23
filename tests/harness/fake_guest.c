/* SPDX-License-Identifier: Apache-2.0 */
/* A guest without a guest: memory, rings, and a small virtio-vsock driver. */
#include "tests/harness/fake_guest.h"

#include <errno.h>
#include <linux/virtio_config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE	   4096U
#define GUARD	   (16 * PAGE)
#define PUMP_LIMIT 20000 /* passes; more is a spin */
#define TABLE_SIZE (8 * sizeof(struct vring_desc))

#define must(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "fake_guest: %s:%d: %s (%s)\n", __func__, __LINE__, #cond, \
				strerror(errno));                                                  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* ---- memory ---- */

static void map_region(struct fg_region *r, uint64_t gpa, size_t size)
{
	r->gpa = gpa;
	r->size = size;
	r->map_size = size + 2 * GUARD;
	r->map = mmap(NULL, r->map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		      0);
	must(r->map != MAP_FAILED);
	r->hva = (uint8_t *)r->map + GUARD;
	must(mprotect(r->hva, size, PROT_READ | PROT_WRITE) == 0);
}

void *fg_ptr(struct fake_guest *fg, uint64_t gpa, size_t len)
{
	for (unsigned i = 0; i < fg->regions; i++) {
		struct fg_region *r = &fg->region[i];

		if (gpa >= r->gpa && gpa - r->gpa < r->size && len <= r->size - (gpa - r->gpa))
			return r->hva + (gpa - r->gpa);
	}
	must(!"an address of the test's own is outside memory");
	return NULL;
}

static void copy(struct fake_guest *fg, uint64_t gpa, uint8_t *buf, size_t len, bool to_guest)
{
	while (len > 0) {
		size_t n = PAGE - gpa % PAGE < len ? PAGE - gpa % PAGE : len;
		void *p = fg_ptr(fg, gpa, n);

		if (to_guest)
			memcpy(p, buf, n);
		else
			memcpy(buf, p, n);
		gpa += n;
		buf += n;
		len -= n;
	}
}

void fg_write(struct fake_guest *fg, uint64_t gpa, const void *buf, size_t len)
{
	copy(fg, gpa, (uint8_t *)(uintptr_t)buf, len, true);
}

void fg_read(struct fake_guest *fg, uint64_t gpa, void *buf, size_t len)
{
	copy(fg, gpa, buf, len, false);
}

uint64_t fg_alloc(struct fake_guest *fg, size_t len, size_t align)
{
	uint64_t at = (fg->brk + align - 1) / align * align;

	must(at + len <= fg->end);
	fg->brk = at + len;
	return at;
}

/* ---- rings ---- */

static void init_ring(struct fake_guest *fg, unsigned queue)
{
	struct fg_ring *r = &fg->ring[queue];
	unsigned num = fg->opts.num;

	r->num = num;
	r->desc = fg_alloc(fg, sizeof(struct vring_desc) * num, 16);
	r->avail = fg_alloc(fg, 6 + 2 * num, 2);
	r->used = fg_alloc(fg, 6 + 8 * num, 4);
	r->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	must(r->kick >= 0 && r->call >= 0);
}

static size_t buffer_size(const struct fake_guest *fg, unsigned queue)
{
	return VSOCK_HDR_BYTES + (queue == VSOCK_QUEUE_RX ? fg->opts.rx_size : FG_MAX_PAYLD);
}

void fg_reset_rings(struct fake_guest *fg)
{
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		struct fg_ring *r = &fg->ring[q];

		memset(fg_ptr(fg, r->desc, 16 * r->num), 0, 16 * r->num);
		memset(fg_ptr(fg, r->avail, 6 + 2 * r->num), 0, 6 + 2 * r->num);
		memset(fg_ptr(fg, r->used, 6 + 8 * r->num), 0, 6 + 8 * r->num);
		r->next_avail = r->last_used = r->told = 0;
		r->free_n = 0;
		for (unsigned i = 0; i < r->num; i++)
			r->free[r->free_n++] = (uint16_t)(r->num - 1 - i);
	}
}

void fg_init(struct fake_guest *fg, const struct fg_opts *opts)
{
	size_t buffers[VSOCK_QUEUES], rings, half;

	memset(fg, 0, sizeof(*fg));
	fg->loop.epfd = -1;
	if (opts)
		fg->opts = *opts;
	if (!fg->opts.num)
		fg->opts.num = 128;
	if (!fg->opts.rx_size)
		fg->opts.rx_size = 4096;
	must(fg->opts.num <= FG_MAX_NUM);
	rings = VSOCK_QUEUES * (26 * fg->opts.num + TABLE_SIZE * fg->opts.num) + 4 * PAGE;
	for (unsigned q = 0; q < VSOCK_QUEUES; q++)
		buffers[q] = buffer_size(fg, q) * fg->opts.num;
	rings = (rings + PAGE - 1) / PAGE * PAGE;
	/* The border lies in the middle of a receive buffer when there are two regions. */
	half = (buffers[0] / 2 + PAGE - 1) / PAGE * PAGE;
	map_region(&fg->region[0], FG_GPA, rings + half);
	map_region(&fg->region[1], FG_GPA + rings + half,
		   (buffers[0] + buffers[1]) / PAGE * PAGE + 16 * PAGE);
	fg->regions = 2;
	if (!fg->opts.two_regions) {
		size_t all = fg->region[0].size + fg->region[1].size;

		for (int i = 0; i < 2; i++)
			munmap(fg->region[i].map, fg->region[i].map_size);
		map_region(&fg->region[0], FG_GPA, all);
		fg->regions = 1;
	}
	fg->brk = FG_GPA;
	fg->end = fg->region[fg->regions - 1].gpa + fg->region[fg->regions - 1].size;
	fg->features = 1ULL << VIRTIO_F_VERSION_1 | 1ULL << VIRTIO_RING_F_INDIRECT_DESC |
		       (fg->opts.event_idx ? 1ULL << VIRTIO_RING_F_EVENT_IDX : 0);
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		init_ring(fg, q);
		fg->table[q] = fg_alloc(fg, TABLE_SIZE * fg->opts.num, 16);
	}
	for (unsigned q = 0; q < VSOCK_QUEUES; q++)
		fg->buf[q] = fg_alloc(fg, buffers[q], 1);
	fg_reset_rings(fg);
}

void fg_free(struct fake_guest *fg)
{
	vsock_dev_destroy(fg->dev);
	loop_close(&fg->loop);
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		close(fg->ring[q].kick);
		close(fg->ring[q].call);
	}
	for (unsigned i = 0; i < fg->regions; i++)
		munmap(fg->region[i].map, fg->region[i].map_size);
}

void fg_desc(struct fake_guest *fg, unsigned queue, unsigned i, uint64_t addr, uint32_t len,
	     uint16_t flags, uint16_t next)
{
	struct vring_desc d = {.addr = addr, .len = len, .flags = flags, .next = next};

	fg_write(fg, fg->ring[queue].desc + i * sizeof(d), &d, sizeof(d));
}

static uint16_t *avail_at(struct fake_guest *fg, unsigned queue, unsigned word)
{
	return fg_ptr(fg, fg->ring[queue].avail + 2 * word, 2);
}

static uint16_t *used_at(struct fake_guest *fg, unsigned queue, unsigned byte)
{
	return fg_ptr(fg, fg->ring[queue].used + byte, 2);
}

void fg_offer(struct fake_guest *fg, unsigned queue, uint16_t head)
{
	struct fg_ring *r = &fg->ring[queue];

	*avail_at(fg, queue, 2 + r->next_avail % r->num) = head;
	r->next_avail++;
	__atomic_store_n(avail_at(fg, queue, 1), r->next_avail, __ATOMIC_RELEASE);
}

void fg_kick(struct fake_guest *fg, unsigned queue)
{
	struct fg_ring *r = &fg->ring[queue];
	uint64_t one = 1;
	bool wanted;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (fg->opts.event_idx)
		wanted = vring_need_event(__atomic_load_n(used_at(fg, queue, 4 + 8 * r->num),
							  __ATOMIC_RELAXED),
					  r->next_avail, r->told);
	else
		wanted = !(__atomic_load_n(used_at(fg, queue, 0), __ATOMIC_RELAXED) &
			   VRING_USED_F_NO_NOTIFY);
	r->told = r->next_avail;
	if (!wanted)
		return;
	fg->kicks++;
	must(write(r->kick, &one, sizeof(one)) == sizeof(one));
}

uint16_t fg_used_idx(struct fake_guest *fg, unsigned queue)
{
	return __atomic_load_n(used_at(fg, queue, 2), __ATOMIC_ACQUIRE);
}

bool fg_interrupted(struct fake_guest *fg, unsigned queue)
{
	uint64_t n;

	return read(fg->ring[queue].call, &n, sizeof(n)) == sizeof(n);
}

/* ---- buffers ---- */

struct piece {
	uint64_t addr;
	uint32_t len;
};

/* The pieces of a packet buffer of len bytes at addr. */
static unsigned cut(enum fg_layout layout, uint64_t addr, uint32_t len, struct piece p[8])
{
	static const uint32_t shreds[] = {1, 22, 21, 0};
	uint32_t payload = len - VSOCK_HDR_BYTES;
	unsigned n = 0;

	if (layout == FG_SINGLE) {
		p[n++] = (struct piece){addr, len};
		return n;
	}
	if (layout == FG_SHREDDED) {
		for (unsigned i = 0; i < 4; i++) {
			p[n++] = (struct piece){addr, shreds[i]};
			addr += shreds[i];
		}
		if (payload > 7) {
			p[n++] = (struct piece){addr, 7};
			addr += 7;
			payload -= 7;
		}
	} else {
		p[n++] = (struct piece){addr, VSOCK_HDR_BYTES};
		addr += VSOCK_HDR_BYTES;
	}
	if (payload)
		p[n++] = (struct piece){addr, payload};
	return n;
}

/* Builds a chain for the pieces; the head, or -1 when there are too few descriptors. */
static int build(struct fake_guest *fg, unsigned queue, enum fg_layout layout, uint16_t flags,
		 const struct piece *p, unsigned n)
{
	struct fg_ring *r = &fg->ring[queue];
	bool indirect = layout == FG_INDIRECT;
	unsigned slots = indirect ? 1 : n;
	uint16_t head, *chain;

	if (r->free_n < slots)
		return -1;
	head = r->free[r->free_n - 1];
	chain = r->chain[head];
	for (unsigned i = 0; i < slots; i++)
		chain[i] = r->free[--r->free_n];
	r->chain_n[head] = (uint8_t)slots;
	for (unsigned i = 0; i < n; i++) {
		uint16_t next = i + 1 < n ? VRING_DESC_F_NEXT : 0;
		struct vring_desc d = {.addr = p[i].addr,
				       .len = p[i].len,
				       .flags = flags | next,
				       .next = (uint16_t)(i + 1)};

		if (indirect)
			fg_write(fg, fg->table[queue] + head * TABLE_SIZE + i * sizeof(d), &d,
				 sizeof(d));
		else
			fg_desc(fg, queue, chain[i], d.addr, d.len, d.flags,
				next ? chain[i + 1] : 0);
	}
	if (indirect)
		fg_desc(fg, queue, head, fg->table[queue] + head * TABLE_SIZE, n * 16,
			VRING_DESC_F_INDIRECT, 0);
	return head;
}

static uint64_t buffer_of(const struct fake_guest *fg, unsigned queue, unsigned head)
{
	return fg->buf[queue] + head * buffer_size(fg, queue);
}

/* The head that build() will use next. */
static unsigned next_head(const struct fg_ring *r)
{
	return r->free_n ? r->free[r->free_n - 1] : 0;
}

static bool add_rx_buffer(struct fake_guest *fg)
{
	struct fg_ring *r = &fg->ring[VSOCK_QUEUE_RX];
	struct piece p[8];
	unsigned n = cut(fg->opts.rx, buffer_of(fg, VSOCK_QUEUE_RX, next_head(r)),
			 VSOCK_HDR_BYTES + fg->opts.rx_size, p);
	int head = build(fg, VSOCK_QUEUE_RX, fg->opts.rx, VRING_DESC_F_WRITE, p, n);

	if (head < 0)
		return false;
	fg_offer(fg, VSOCK_QUEUE_RX, (uint16_t)head);
	return true;
}

/* The next used entry; false: none. Frees its descriptors. */
static bool take_used(struct fake_guest *fg, unsigned queue, uint32_t *head, uint32_t *len)
{
	struct fg_ring *r = &fg->ring[queue];
	uint32_t *e;

	if (fg_used_idx(fg, queue) == r->last_used)
		return false;
	must((uint16_t)(fg_used_idx(fg, queue) - r->last_used) <= r->num);
	e = fg_ptr(fg, r->used + 4 + 8 * (r->last_used % r->num), 8);
	*head = e[0];
	*len = e[1];
	must(*head < r->num && r->chain_n[*head] > 0);
	/* Freed backwards, so that the same chain is built from the same descriptors. */
	for (unsigned i = r->chain_n[*head]; i-- > 0;)
		r->free[r->free_n++] = r->chain[*head][i];
	r->chain_n[*head] = 0;
	r->last_used++;
	__atomic_store_n(avail_at(fg, queue, 2 + r->num), r->last_used,
			 __ATOMIC_RELAXED); /* used_event */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return true;
}

bool fg_send(struct fake_guest *fg, const struct packet *hdr, const void *payload)
{
	struct fg_ring *r = &fg->ring[VSOCK_QUEUE_TX];
	struct virtio_vsock_hdr raw;
	uint32_t used_head, used_len;
	struct piece p[8];
	uint64_t buf;
	int head;

	while (take_used(fg, VSOCK_QUEUE_TX, &used_head, &used_len))
		must(used_len == 0);
	must(hdr->len <= FG_MAX_PAYLD);
	buf = buffer_of(fg, VSOCK_QUEUE_TX, next_head(r));
	head = build(fg, VSOCK_QUEUE_TX, fg->opts.tx, 0, p,
		     cut(fg->opts.tx, buf, VSOCK_HDR_BYTES + (payload ? hdr->len : 0), p));
	if (head < 0)
		return false;
	packet_encode(&raw, hdr);
	fg_write(fg, buf, &raw, sizeof(raw));
	if (payload)
		fg_write(fg, buf + sizeof(raw), payload, hdr->len);
	fg_offer(fg, VSOCK_QUEUE_TX, (uint16_t)head);
	fg_kick(fg, VSOCK_QUEUE_TX);
	return true;
}

bool fg_recv(struct fake_guest *fg, struct packet *hdr, void *payload)
{
	struct virtio_vsock_hdr raw;
	uint32_t head, len;
	uint64_t buf;

	if (!take_used(fg, VSOCK_QUEUE_RX, &head, &len))
		return false;
	buf = buffer_of(fg, VSOCK_QUEUE_RX, head);
	must(len >= sizeof(raw) && len <= buffer_size(fg, VSOCK_QUEUE_RX));
	fg_read(fg, buf, &raw, sizeof(raw));
	packet_decode(hdr, &raw);
	must(hdr->len == len - sizeof(raw));
	must(hdr->dst_cid == FG_CID);
	if (payload)
		fg_read(fg, buf + sizeof(raw), payload, hdr->len);
	must(add_rx_buffer(fg));
	fg_kick(fg, VSOCK_QUEUE_RX);
	return true;
}

/* ---- device ---- */

static void keep_log(void *arg, const char *line)
{
	struct fake_guest *fg = arg;
	size_t at = strlen(fg->log);

	snprintf(fg->log + at, sizeof(fg->log) - at, "%s\n", line);
}

void fg_create_device(struct fake_guest *fg, const struct vsock_config *cfg)
{
	struct vsock_config c = {.listen_fd = -1};

	if (cfg)
		c = *cfg;
	must(loop_init(&fg->loop) == 0);
	c.loop = &fg->loop;
	c.log = keep_log;
	c.log_arg = fg;
	fg->dev = vsock_dev_create(&c);
	must(fg->dev);
	must(vsock_dev_set_cid(fg->dev, FG_CID) == 0);
}

static uint64_t to_hva(struct fake_guest *fg, uint64_t gpa)
{
	return (uint64_t)(uintptr_t)fg_ptr(fg, gpa, 1);
}

int fg_start(struct fake_guest *fg)
{
	struct gmem_region region[2];
	int r;

	for (unsigned i = 0; i < fg->regions; i++)
		region[i] = (struct gmem_region){fg->region[i].gpa, fg->region[i].size,
						 (uint64_t)(uintptr_t)fg->region[i].hva};
	if ((r = vsock_dev_set_features(fg->dev, fg->features)) < 0 ||
	    (r = vsock_dev_set_mem(fg->dev, region, fg->regions)) < 0)
		return r;
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		struct fg_ring *ring = &fg->ring[q];
		const struct virtq_addr addr = {to_hva(fg, ring->desc), to_hva(fg, ring->avail),
						to_hva(fg, ring->used)};
		bool fresh = ring->next_avail == 0;

		if ((r = vsock_dev_set_num(fg->dev, q, ring->num)) < 0 ||
		    (fresh && (r = vsock_dev_set_base(fg->dev, q, 0)) < 0) ||
		    (r = vsock_dev_set_addr(fg->dev, q, &addr)) < 0 ||
		    (r = vsock_dev_set_kick(fg->dev, q, ring->kick)) < 0 ||
		    (r = vsock_dev_set_call(fg->dev, q, ring->call)) < 0)
			return r;
	}
	r = vsock_dev_run(fg->dev, true);
	if (r == 0 && fg->ring[VSOCK_QUEUE_RX].next_avail == 0)
		fg_fill_rx(fg);
	return r;
}

void fg_fill_rx(struct fake_guest *fg)
{
	for (unsigned i = 0; !fg->opts.rx_buffers || i < fg->opts.rx_buffers; i++) {
		if (!add_rx_buffer(fg))
			break;
	}
	fg_kick(fg, VSOCK_QUEUE_RX);
}

int fg_stop(struct fake_guest *fg)
{
	return vsock_dev_run(fg->dev, false);
}

void fg_pump_wait(struct fake_guest *fg, int wait_ms)
{
	struct epoll_event ev[LOOP_BATCH];
	int timeout = 0, n;

	for (int i = 0; i < PUMP_LIMIT; i++) {
		n = loop_wait(&fg->loop, ev, timeout);
		must(n >= 0);
		loop_dispatch(ev, n);
		timeout = vsock_dev_service(fg->dev);
		if (n == 0 && timeout != 0) {
			if (wait_ms == 0)
				return;
			timeout = timeout < 0 || timeout > wait_ms ? wait_ms : timeout;
			wait_ms = 0;
		} else {
			timeout = 0;
		}
	}
	must(!"the device spins");
}

void fg_pump(struct fake_guest *fg)
{
	fg_pump_wait(fg, 0);
}

/* ---- one connection ---- */

struct packet fg_header(const struct fg_conn *c, uint16_t op)
{
	return (struct packet){
		.src_cid = FG_CID,
		.dst_cid = VSOCK_HOST_CID,
		.src_port = c->guest_port,
		.dst_port = c->host_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = c->buf_alloc,
		.fwd_cnt = c->fwd,
	};
}

void fg_op(struct fake_guest *fg, struct fg_conn *c, uint16_t op, uint32_t flags)
{
	struct packet p = fg_header(c, op);

	p.flags = flags;
	must(fg_send(fg, &p, NULL));
}

size_t fg_conn_send(struct fake_guest *fg, struct fg_conn *c, const void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		struct packet p = fg_header(c, VIRTIO_VSOCK_OP_RW);
		uint32_t credit = c->peer_alloc - (c->sent - c->peer_fwd);
		size_t k = n - done < FG_MAX_PAYLD ? n - done : FG_MAX_PAYLD;

		p.len = (uint32_t)(k < credit ? k : credit);
		if (p.len == 0 || !fg_send(fg, &p, (const uint8_t *)buf + done))
			break;
		c->sent += p.len;
		done += p.len;
	}
	return done;
}

size_t fg_conn_recv(struct fake_guest *fg, struct fg_conn *c, void *buf, size_t cap, bool ack)
{
	static uint8_t payload[FG_MAX_PAYLD];
	struct packet p;
	size_t got = 0;

	while (fg_recv(fg, &p, payload)) {
		must(p.src_port == c->host_port && p.dst_port == c->guest_port);
		c->peer_alloc = p.buf_alloc;
		c->peer_fwd = p.fwd_cnt;
		switch (p.op) {
		case VIRTIO_VSOCK_OP_RESPONSE:
			c->open = true;
			break;
		case VIRTIO_VSOCK_OP_RW:
			must(got + p.len <= cap);
			memcpy((uint8_t *)buf + got, payload, p.len);
			got += p.len;
			c->received += p.len;
			must(c->received - c->fwd <=
			     c->buf_alloc); /* the device keeps to its credit */
			break;
		case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
			fg_op(fg, c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
			break;
		case VIRTIO_VSOCK_OP_SHUTDOWN:
			c->peer_done = true;
			break;
		case VIRTIO_VSOCK_OP_RST:
			c->reset = true;
			break;
		default:
			must(p.op == VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		}
	}
	if (ack && c->fwd != c->received) {
		c->fwd = c->received;
		fg_op(fg, c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	}
	return got;
}

void fg_accept(struct fake_guest *fg, struct fg_conn *c, uint32_t port)
{
	struct packet p;

	fg_pump(fg);
	must(fg_recv(fg, &p, NULL));
	must(p.op == VIRTIO_VSOCK_OP_REQUEST && p.dst_port == port && p.src_cid == VSOCK_HOST_CID);
	*c = (struct fg_conn){
		.host_port = p.src_port,
		.guest_port = port,
		.buf_alloc = c->buf_alloc ? c->buf_alloc : 262144,
		.peer_alloc = p.buf_alloc,
		.peer_fwd = p.fwd_cnt,
		.open = true,
	};
	fg_op(fg, c, VIRTIO_VSOCK_OP_RESPONSE, 0);
	fg_pump(fg);
}
