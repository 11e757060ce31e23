/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest and erratic host peers against the vsock device.
 *
 * The input is a program: it scribbles over the guest's memory, offers descriptors good and bad,
 * sends packets that are mostly well formed (to live connections, so that the fuzzer gets behind
 * the first check), moves the host's sockets, and stops, starts and resets the device. The guest's
 * memory lies between inaccessible pages, so that a stray access is a crash; after each step the
 * device's own books must balance, and it must come to rest.
 */
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/vsock/device_priv.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GPA	  0x10000U
#define REGION	  0x8000U /* two of them, side by side in the guest, apart here */
#define GUARD	  0x10000U
#define CID	  42
#define HOSTS	  6
#define MAX_CONNS 12
#define STEPS	  200
#define REST	  10000 /* passes until the device must have come to rest */
#define DIAL_PORT 7

static uint8_t *region[2];
static struct loop loop;
static struct vsock_dev *dev;
static char dir[] = "/tmp/fuzz_vsock_XXXXXX";
static char prefix[64];
static int dial_listener;
static int host[HOSTS];
static uint64_t features;
static unsigned num[VSOCK_QUEUES];
static uint16_t avail_idx[VSOCK_QUEUES];

/* Where the rings are; the rest of memory is buffers. */
static const uint32_t ring_at[VSOCK_QUEUES] = {0, 0x1000};
static const uint32_t buffers_at = 0x2000;

/* ---- input ---- */

static const uint8_t *in;
static size_t left;

static uint8_t u8(void)
{
	if (!left)
		return 0;
	left--;
	return *in++;
}

static uint16_t u16(void)
{
	uint16_t hi = u8();

	return (uint16_t)(hi << 8 | u8());
}

static uint32_t u32(void)
{
	uint32_t hi = u16();

	return hi << 16 | u16();
}

/* ---- guest memory ---- */

/* len bytes at an offset from GPA, as far as they go. */
static void guest_write(uint32_t off, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len && off + i < 2 * REGION; i++)
		region[(off + i) / REGION][(off + i) % REGION] = p[i];
}

static uint64_t hva(uint32_t off)
{
	return (uint64_t)(uintptr_t)(region[off / REGION] + off % REGION);
}

static uint32_t desc_at(unsigned q)
{
	return ring_at[q];
}

static uint32_t avail_at(unsigned q)
{
	return ring_at[q] + 16 * num[q];
}

static uint32_t used_at(unsigned q)
{
	return ring_at[q] + 0x800;
}

static void write_desc(uint32_t table, unsigned i, uint64_t addr, uint32_t len, uint16_t flags,
		       uint16_t next)
{
	struct vring_desc d = {.addr = addr, .len = len, .flags = flags, .next = next};

	guest_write(table + 16 * i, &d, sizeof(d));
}

static void offer(unsigned q, uint16_t head)
{
	guest_write(avail_at(q) + 4 + 2 * (avail_idx[q] % num[q]), &head, 2);
	avail_idx[q]++;
	guest_write(avail_at(q) + 2, &avail_idx[q], 2);
}

/* ---- device ---- */

/* Which of the two regions are in the table; the rings are in the first. */
static int set_mem(unsigned which)
{
	const struct gmem_region r[2] = {
		{GPA, REGION, (uint64_t)(uintptr_t)region[0]},
		{GPA + REGION, REGION, (uint64_t)(uintptr_t)region[1]},
	};

	return vsock_dev_set_mem(dev, r + (which == 2), which == 3 ? 2 : which != 0);
}

static void start(bool fresh)
{
	vsock_dev_set_features(dev, features);
	set_mem(3);
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		const struct virtq_addr addr = {hva(desc_at(q)), hva(avail_at(q)), hva(used_at(q))};

		vsock_dev_set_num(dev, q, num[q]);
		if (fresh)
			vsock_dev_set_base(dev, q, avail_idx[q]);
		if (vsock_dev_set_addr(dev, q, &addr) < 0)
			abort();
	}
	if (vsock_dev_run(dev, true) < 0)
		abort();
}

static void reset_rings(uint8_t kind)
{
	static const uint16_t bases[] = {0, 0xfff0, 0x7fff, 1};

	memset(region[0], 0, buffers_at);
	num[VSOCK_QUEUE_RX] = 1U << (kind & 3) << (kind >> 2 & 1);
	num[VSOCK_QUEUE_TX] = 1U << (kind >> 3 & 3) << (kind >> 2 & 1);
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		avail_idx[q] = bases[kind >> 5 & 3];
		guest_write(avail_at(q) + 2, &avail_idx[q], 2);
	}
}

static void balance(void)
{
	unsigned conns = 0, handshakes = 0;
	uint64_t extra = dev->extra_credit;
	struct conn *c;

	TAILQ_FOREACH(c, &dev->conns, all) {
		conns++;
		handshakes += c->state == CONN_HANDSHAKE;
		extra += c->alloc - CONN_CREDIT_MIN;
		if (c->backlog.len > c->alloc || c->received - c->fwd < c->backlog.len)
			abort();
		if (c->state != CONN_RESETTING && c->src.fd < 0)
			abort();
		if (c->in_table != (c->state == CONN_REQUESTED || c->state == CONN_OPEN ||
				    c->state == CONN_RESETTING))
			abort();
		if (c->in_table && conn_find(&dev->table, c->host_port, c->guest_port) != c)
			abort();
		if (c->in_ready && c->state != CONN_OPEN)
			abort();
	}
	if (conns != dev->conn_count || conns > MAX_CONNS || handshakes != dev->handshakes ||
	    extra != EXTRA_CREDIT_BYTES || dev->reset_count > MAX_RESETS ||
	    !TAILQ_EMPTY(&dev->dead_conns))
		abort();
	if (dev->dead && conns) {
		TAILQ_FOREACH(c, &dev->conns, all) {
			if (c->state != CONN_DRAINING && c->state != CONN_HANDSHAKE)
				abort();
		}
	}
}

static void serve(void)
{
	struct epoll_event ev[LOOP_BATCH];
	int n, timeout, passes = 0;

	do {
		if (++passes > REST)
			abort();
		n = loop_wait(&loop, ev, 0);
		loop_dispatch(ev, n);
		timeout = vsock_dev_service(dev);
		balance();
	} while (n > 0 || timeout == 0);
}

/* ---- steps ---- */

static struct conn *pick_conn(uint8_t which)
{
	struct conn *c = TAILQ_FIRST(&dev->conns);

	while (c && which--)
		c = TAILQ_NEXT(c, all);
	return c;
}

static uint64_t pick_addr(void)
{
	static const uint64_t special[] = {
		0,	    GPA - 1,	     GPA + 2 * REGION - 1, GPA + 2 * REGION,
		UINT64_MAX, UINT64_MAX - 43, GPA + REGION - 5,	   1ULL << 63};
	uint8_t kind = u8();

	return kind < 0xe0 ? GPA + u16() : special[kind & 7];
}

static void step_scribble(void)
{
	uint32_t off = u16();
	size_t n = u8() % 64U;

	if (n > left)
		n = left;
	guest_write(off, in, n);
	in += n;
	left -= n;
}

static void step_desc(void)
{
	unsigned q = u8() & 1;
	uint8_t i = u8();
	uint64_t addr = pick_addr();
	uint32_t len = u8();

	if (len > 0xf0)
		len = u32();
	write_desc(desc_at(q), i % num[q], addr, len, u8(), u8());
}

static void step_offer(void)
{
	uint8_t what = u8();

	if (what == 0xff)
		avail_idx[what & 1] = u16();
	offer(what & 1, what >> 1);
}

/* A chain for len bytes at off: one descriptor, two, or two in an indirect table. */
static void put_chain(unsigned q, uint8_t layout, uint16_t head, uint32_t off, uint32_t len,
		      uint16_t flags)
{
	uint32_t table = desc_at(q), cut = VSOCK_HDR_BYTES;
	uint16_t next = (uint16_t)((head + 1) % num[q]), first;

	head = (uint16_t)(head % num[q]);
	first = head;
	if ((layout & 3) == 0 || len <= cut || (num[q] == 1 && (layout & 3) != 2)) {
		write_desc(table, head, GPA + off, len, flags, 0);
	} else {
		if ((layout & 3) == 2) {
			table = 0x1c00 + 32 * (head & 15);
			write_desc(desc_at(q), head, GPA + table, 32, VRING_DESC_F_INDIRECT, 0);
			first = 0;
			next = 1;
		}
		if ((layout & 3) == 3)
			cut = 20;
		write_desc(table, first, GPA + off, cut, VRING_DESC_F_NEXT | flags, next);
		write_desc(table, next, GPA + off + cut, len - cut, flags, 0);
	}
	offer(q, head);
}

static void step_rx_buffer(void)
{
	uint8_t layout = u8();
	uint32_t size = VSOCK_HDR_BYTES +
			(layout & 0x80 ? 16U * (layout >> 2 & 31) : u16() % 0x3000U);

	put_chain(VSOCK_QUEUE_RX, layout, layout >> 2,
		  buffers_at + u16() % (2 * REGION - buffers_at), size, VRING_DESC_F_WRITE);
}

/* Many plain ones, which is what a test of data needs. */
static void step_rx_refill(void)
{
	for (unsigned i = 0; i < num[VSOCK_QUEUE_RX]; i++)
		put_chain(VSOCK_QUEUE_RX, 0, (uint16_t)i, buffers_at + 0x400 * i,
			  VSOCK_HDR_BYTES + 800, VRING_DESC_F_WRITE);
}

static void step_packet(void)
{
	uint8_t kind = u8(), layout = u8();
	struct conn *c = pick_conn(kind >> 4);
	uint32_t off = 0xa000 + (uint32_t)(layout >> 2) * 64, payload;
	struct virtio_vsock_hdr hdr;
	struct packet p = {
		.src_cid = CID,
		.dst_cid = VSOCK_HOST_CID,
		.src_port = c ? c->guest_port : u8(),
		.dst_port = c ? c->host_port : DIAL_PORT,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = kind & 15,
		.buf_alloc = 0x1000,
		.fwd_cnt = c ? c->sent : 0,
	};

	if (p.op == VIRTIO_VSOCK_OP_RW) {
		p.len = layout & 0x80 ? u16() % 0x4000U : u8();
	} else if (p.op == VIRTIO_VSOCK_OP_SHUTDOWN) {
		p.flags = u8() & 3;
	} else if (p.op == VIRTIO_VSOCK_OP_REQUEST) {
		p.src_port = u8();
		p.dst_port = DIAL_PORT + (u8() == 0xff);
	}
	payload = p.len;
	if (p.op == 15) { /* one field is wrong */
		uint8_t field = u8();

		p.op = field & 7;
		p.len = field & 0x80 ? u32() : 0;
		p.src_cid ^= field & 8 ? u8() : 0;
		p.dst_cid ^= field & 16 ? u8() : 0;
		p.type ^= field & 32 ? u8() : 0;
		p.fwd_cnt += field & 64 ? u32() : 0;
		p.buf_alloc = field & 64 ? u32() : p.buf_alloc;
	}
	packet_encode(&hdr, &p);
	guest_write(off, &hdr, sizeof(hdr));
	put_chain(VSOCK_QUEUE_TX, layout, layout >> 2, off, VSOCK_HDR_BYTES + payload, 0);
}

static void host_close(unsigned i)
{
	if (host[i] >= 0)
		close(host[i]);
	host[i] = -1;
}

static void step_host_connect(void)
{
	uint8_t kind = u8();
	unsigned i = kind % HOSTS;
	const int small = 1; /* the kernel's minimum: the socket is soon full */
	char line[64];
	int sv[2], n;

	host_close(i);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv) < 0 ||
	    setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) < 0)
		abort();
	if (kind & 0x80) {
		for (n = 0; n < (kind >> 3 & 15) && left; n++)
			line[n] = (char)u8();
	} else {
		n = snprintf(line, sizeof(line), "CONNECT %u\n%s", u8(),
			     kind & 0x40 ? "early" : "");
	}
	if (n > 0 && send(sv[0], line, (size_t)n, MSG_NOSIGNAL) < 0)
		abort();
	host[i] = sv[0];
	vsock_dev_adopt(dev, sv[1]);
}

static void step_host_send(void)
{
	static const uint8_t bytes[0x10000];
	uint8_t which = u8();
	size_t n = which & 0x80 ? 0x10000 : u8() + 1U;

	if (host[which % HOSTS] >= 0)
		(void)!send(host[which % HOSTS], bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void step_host_recv(void)
{
	static uint8_t bytes[0x40000];
	uint8_t which = u8();

	if (host[which % HOSTS] >= 0)
		(void)!recv(host[which % HOSTS], bytes, which & 0x80 ? sizeof(bytes) : 100,
			    MSG_DONTWAIT);
}

static void step_host_end(void)
{
	uint8_t which = u8();
	int fd = host[which % HOSTS];

	if (fd < 0)
		return;
	if (which >> 6 < 3)
		(void)shutdown(fd, which >> 6);
	else
		host_close(which % HOSTS);
}

static void step_lifecycle(void)
{
	uint8_t kind = u8();

	if (kind == 0xff) {
		vsock_dev_reset(dev);
		vsock_dev_set_cid(dev, CID);
		reset_rings(kind);
		start(true);
		return;
	}
	vsock_dev_run(dev, false);
	if (kind & 0x80)
		reset_rings(kind);
	start(kind & 0x80);
}

static void step_mem(void)
{
	if (set_mem(u8() & 3) < 0)
		abort();
}

static void step_serve(void)
{
	serve();
}

static void (*const steps[])(void) = {
	step_serve,	   step_packet,	   step_rx_refill, step_packet,
	step_host_connect, step_host_send, step_host_recv, step_host_end,
	step_rx_buffer,	   step_desc,	   step_offer,	   step_scribble,
	step_lifecycle,	   step_packet,	   step_host_send, step_mem,
};

/* ---- the target ---- */

static uint8_t *map_region(void)
{
	uint8_t *p = mmap(NULL, REGION + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || mprotect(p + GUARD, REGION, PROT_READ | PROT_WRITE) < 0)
		abort();
	return p + GUARD;
}

static void remove_dir(void)
{
	char path[80];

	snprintf(path, sizeof(path), "%s_%d", prefix, DIAL_PORT);
	unlink(path);
	rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	(void)argc;
	(void)argv;
	region[0] = map_region();
	region[1] = map_region();
	if (loop_init(&loop) < 0 || !mkdtemp(dir))
		abort();
	snprintf(prefix, sizeof(prefix), "%s/v", dir);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s_%d", prefix, DIAL_PORT);
	dial_listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (bind(dial_listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(dial_listener, 4) < 0)
		abort();
	atexit(remove_dir);
	return 0;
}

static void create(uint8_t rings, uint8_t bits)
{
	const struct vsock_config cfg = {
		.loop = &loop,
		.listen_fd = -1,
		.dial_prefix = prefix,
		.handshake_ms = 3600000,
		.max_conns = MAX_CONNS,
	};

	dev = vsock_dev_create(&cfg);
	if (!dev || vsock_dev_set_cid(dev, CID) < 0)
		abort();
	dev->table.seed = 0; /* the same input, the same run */
	dev->next_port = CONN_PORT_LAST - 1;
	features = 1ULL << VIRTIO_F_VERSION_1 | (bits & 1 ? 1ULL << VIRTIO_RING_F_EVENT_IDX : 0) |
		   (bits & 2 ? 0 : 1ULL << VIRTIO_RING_F_INDIRECT_DESC);
	memset(region[0], 0, REGION);
	memset(region[1], 0, REGION);
	reset_rings(rings);
	start(true);
}

static void destroy(void)
{
	int fd;

	for (unsigned i = 0; i < HOSTS; i++)
		host_close(i);
	serve();
	vsock_dev_destroy(dev);
	while ((fd = accept(dial_listener, NULL, NULL)) >= 0)
		close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t rings;

	in = data;
	left = size;
	rings = u8();
	for (unsigned i = 0; i < HOSTS; i++)
		host[i] = -1;
	create(rings, u8());
	for (int i = 0; i < STEPS && left > 0; i++) {
		uint8_t step = u8();

		steps[step & 15]();
		if (step & 16)
			serve();
	}
	serve();
	destroy();
	return 0;
}
