/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM whose guest's driver is hostile: the device of host/vsock as it is in every VM, behind a driver that first boots like a
 * good guest (it dials the host, says hello and confirms its identity) and then, until it is killed, breaks its rings in every
 * way that chance finds, resets them, and begins again.
 *
 * It takes the descriptors of a VMM (4 hybrid vsock, 5 QMP, 6 the library's control socket) and says yes to QMP and control
 * commands. One thread. --seed N repeats a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/frame.h"
#include "tests/harness/fake_guest.h"

#define PEERS	16
#define HELLO	521
#define PASSES	64  /* of the device, in one turn of ours */
#define ROUND	400 /* hostile steps between two resets */
#define BOOT_ID "11111111-2222-4333-8444-555555555555"

static struct fake_guest fg;
static uint64_t seed = 88172645463325252u;

static uint64_t chance(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static unsigned below(unsigned n)
{
	return (unsigned)(chance() % n);
}

/* ---- QMP and control ---- */

static struct {
	int fd; /* 0: free */
	bool qmp;
	char line[512];
	size_t len;
} peers[PEERS];

static void accept_peer(int listener, bool qmp)
{
	static const char greeting[] =
		"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2, \"micro\": 0}, "
		"\"package\": \"hostile\"}, \"capabilities\": []}}\r\n";
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), i = 0;

	while (fd >= 0 && i < PEERS && peers[i].fd)
		i++;
	if (fd < 0 || i == PEERS)
		return;
	peers[i].fd = fd;
	peers[i].qmp = qmp;
	peers[i].len = 0;
	if (qmp)
		(void)!send(fd, greeting, sizeof(greeting) - 1, MSG_NOSIGNAL);
}

static void answer_line(int i)
{
	const char *id = strstr(peers[i].line, "\"id\"");
	unsigned long number = id ? strtoul(id + strcspn(id, "0123456789"), NULL, 10) : 0;
	char text[128] = "ok\n";

	if (peers[i].qmp)
		snprintf(
			text, sizeof(text),
			"{\"return\": {\"status\": \"running\", \"running\": true}, \"id\": %lu}\r\n",
			number);
	(void)!send(peers[i].fd, text, strlen(text), MSG_NOSIGNAL);
}

static void serve_peer(int i)
{
	char c;
	ssize_t n;

	while ((n = recv(peers[i].fd, &c, 1, 0)) == 1) {
		if (c != '\n') {
			if (peers[i].len < sizeof(peers[i].line) - 1)
				peers[i].line[peers[i].len++] = c;
			continue;
		}
		peers[i].line[peers[i].len] = '\0';
		peers[i].len = 0;
		answer_line(i);
	}
	if (n == 0 || errno != EAGAIN) {
		close(peers[i].fd);
		peers[i].fd = 0;
	}
}

static void serve_peers(int wait_ms)
{
	struct pollfd p[2] = {{.fd = 5, .events = POLLIN}, {.fd = 6, .events = POLLIN}};

	poll(p, 2, wait_ms);
	if (p[0].revents)
		accept_peer(5, true);
	if (p[1].revents)
		accept_peer(6, false);
	for (int i = 0; i < PEERS; i++)
		if (peers[i].fd)
			serve_peer(i);
}

/* ---- the device ---- */

/* Bounded: a device that is kept busy gets no rest. */
static void serve_device(void)
{
	struct epoll_event ev[LOOP_BATCH];
	int n, timeout = 0;

	for (int i = 0; i < PASSES; i++) {
		n = loop_wait(&fg.loop, ev, 0);
		loop_dispatch(ev, n);
		timeout = vsock_dev_service(fg.dev);
		if (n == 0 && timeout != 0)
			return;
	}
}

/* ---- boot ---- */

static size_t put_frame(uint8_t *out, enum frame_type type, unsigned flags, const void *payload,
			size_t len)
{
	const struct frame f = {.type = type, .flags = (uint8_t)flags, .length = (uint32_t)len};

	frame_encode(out, &f);
	memcpy(out + HUTCH_FRAME_HEADER, payload, len);
	return HUTCH_FRAME_HEADER + len;
}

static const char hello[] = "\x85\xa5proto\x01\xa4role\xa5"
			    "agent\xa4name\xa7hostile\xa7"
			    "boot_id\xd9\x24" BOOT_ID "\xaa"
			    "generation\x00";
static const char confirmed[] = "\x81\xaa"
				"generation\x01";

/* The first CALL is agent.identity, of a first boot: generation 1. */
static bool came_call(const uint8_t *data, size_t len)
{
	while (len >= HUTCH_FRAME_HEADER) {
		struct hutch_error err;
		struct frame f;

		if (frame_decode(data, &f, &err) < 0 || len < HUTCH_FRAME_HEADER + f.length)
			return false;
		if (f.type == FRAME_CALL)
			return true;
		data += HUTCH_FRAME_HEADER + f.length;
		len -= HUTCH_FRAME_HEADER + f.length;
	}
	return false;
}

static void boot(void)
{
	struct fg_conn c = {.host_port = HELLO, .guest_port = 1024, .buf_alloc = 65536};
	uint8_t in[16384], out[256];
	size_t have = 0, len;
	bool greeted = false;

	fg_op(&fg, &c, VIRTIO_VSOCK_OP_REQUEST, 0);
	while (!came_call(in, have)) {
		serve_peers(1);
		serve_device();
		have += fg_conn_recv(&fg, &c, in + have, sizeof(in) - have, true);
		if (c.open && !greeted) {
			len = put_frame(out, FRAME_HELLO, 0, hello, sizeof(hello) - 1);
			fg_conn_send(&fg, &c, out, len);
			greeted = true;
		}
	}
	len = put_frame(out, FRAME_RESULT, FRAME_END, confirmed, sizeof(confirmed) - 1);
	fg_conn_send(&fg, &c, out, len);
	serve_device();
}

/* ---- the attack ---- */

/* What the protocol allows, and a little more: accepts, dials, data that nobody asked for, resets. */
static void act_as_peer(void)
{
	static uint8_t junk[FG_MAX_PAYLD];
	struct packet p;

	while (fg_recv(&fg, &p, NULL)) {
		struct packet r = {.src_cid = FG_CID,
				   .dst_cid = VSOCK_HOST_CID,
				   .src_port = p.dst_port,
				   .dst_port = p.src_port,
				   .type = VIRTIO_VSOCK_TYPE_STREAM,
				   .buf_alloc = below(3) ? 65536 : below(100),
				   .fwd_cnt = (uint32_t)chance()};

		r.op = p.op == VIRTIO_VSOCK_OP_REQUEST ? VIRTIO_VSOCK_OP_RESPONSE
						       : VIRTIO_VSOCK_OP_RW;
		r.len = r.op == VIRTIO_VSOCK_OP_RW ? below(4096) : 0;
		if (!fg_send(&fg, &r, junk))
			return;
	}
	for (unsigned i = below(20); i > 0; i--) {
		struct packet d = {.src_cid = FG_CID,
				   .dst_cid = below(20) ? VSOCK_HOST_CID : chance(),
				   .src_port = 1024 + below(4096),
				   .dst_port = below(3) ? HELLO : below(65536),
				   .type = VIRTIO_VSOCK_TYPE_STREAM,
				   .op = (uint16_t)below(9),
				   .buf_alloc = 65536};

		if (!fg_send(&fg, &d, junk))
			return;
	}
}

static uint64_t some_address(void)
{
	const struct fg_ring *r = &fg.ring[below(2)];

	switch (below(4)) {
	case 0:
		return chance();
	case 1:
		return r->desc + below(16 * r->num);
	default:
		return FG_GPA + below((unsigned)fg.region[0].size);
	}
}

static void break_rings(void)
{
	unsigned queue = below(2);
	struct fg_ring *r = &fg.ring[queue];
	uint8_t bytes[32];
	uint16_t word = (uint16_t)chance();

	switch (below(6)) {
	case 0:
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)chance();
		fg_write(&fg, r->desc + below(16 * r->num - 32), bytes, sizeof(bytes));
		break;
	case 1:
		fg_write(&fg, r->avail + 2, &word, 2); /* its index */
		break;
	case 2:
		fg_write(&fg, r->used + below(6 + 8 * r->num - 2), &word, 2);
		break;
	case 3:
		fg_offer(&fg, queue, (uint16_t)below(2 * r->num));
		break;
	default:
		fg_desc(&fg, queue, below(r->num), some_address(), below(10) ? below(70000) : ~0u,
			(uint16_t)below(8), (uint16_t)below(2 * r->num));
	}
	fg_kick(&fg, queue);
}

static void attack(void)
{
	fg_stop(&fg);
	fg_reset_rings(&fg);
	fg_start(&fg);
	for (int i = 0; i < 4; i++) {
		serve_device();
		act_as_peer();
	}
	for (unsigned i = below(ROUND); i > 0; i--) {
		break_rings();
		if (below(8) == 0)
			serve_device();
	}
	serve_device();
}

int main(int argc, char **argv)
{
	const struct fg_opts opts = {.num = 128, .event_idx = true, .rx = FG_INDIRECT};
	const struct vsock_config config = {.listen_fd = 4, .dial_prefix = "vsock"};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], "--seed") == 0)
			seed ^= strtoull(argv[i + 1], NULL, 10) * 0x9E3779B97F4A7C15u;
	fcntl(4, F_SETFL, O_NONBLOCK);
	fg_init(&fg, &opts);
	fg_create_device(&fg, &config);
	if (fg_start(&fg) < 0)
		return 1;
	boot();
	for (;;) {
		serve_peers(0);
		attack();
	}
}
