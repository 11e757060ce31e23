/* SPDX-License-Identifier: Apache-2.0 */
/* The device's life: back-end calls, start and stop, and the connections' common moves. */
#include "host/vsock/device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "host/vsock/device_priv.h"
#include "host/vsock/hybrid.h"

#define BIT(n) (1ULL << (n))

/*
 * No SEQPACKET, no packed ring, no VHOST_F_LOG_ALL: a VM is saved when it is stopped, so there is
 * nothing to log.
 */
#define FEATURES \
	(BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_RING_F_EVENT_IDX))

static const char *const queue_names[VSOCK_QUEUES] = {"receive", "transmit"};

__attribute__((format(printf, 2, 0))) static void log_line(struct vsock_dev *dev, const char *fmt,
							   va_list ap)
{
	char line[256];

	if (!dev->cfg.log)
		return;
	vsnprintf(line, sizeof(line), fmt, ap);
	dev->cfg.log(dev->cfg.log_arg, line);
}

void dev_log(struct vsock_dev *dev, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(dev, fmt, ap);
	va_end(ap);
}

void dev_complain(struct vsock_dev *dev, const char *fmt, ...)
{
	va_list ap;

	if (dev->complaints == MAX_COMPLAINTS)
		return;
	va_start(ap, fmt);
	log_line(dev, fmt, ap);
	va_end(ap);
	if (++dev->complaints == MAX_COMPLAINTS)
		dev_log(dev, "no more is logged about this guest");
}

uint64_t dev_clock(struct vsock_dev *dev)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	dev->now_ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	return dev->now_ms;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- connections ---- */

struct conn *dev_conn_new(struct vsock_dev *dev, int fd)
{
	struct conn *c = NULL;
	uint32_t extra;

	if (dev->conn_count == dev->cfg.max_conns)
		errno = EUSERS;
	else
		c = calloc(1, sizeof(*c));
	if (!c)
		goto fail;
	c->dev = dev;
	c->src = (struct loop_source){.fire = host_conn_fire, .fd = fd};
	c->state = CONN_HANDSHAKE;
	if (loop_add(dev->cfg.loop, &c->src, EPOLLIN | EPOLLRDHUP | EPOLLET) < 0)
		goto fail;
	extra = CONN_CREDIT - CONN_CREDIT_MIN;
	if (extra > dev->extra_credit)
		extra = dev->extra_credit;
	dev->extra_credit -= extra;
	c->alloc = CONN_CREDIT_MIN + extra;
	TAILQ_INSERT_TAIL(&dev->conns, c, all);
	dev->conn_count++;
	dev->handshakes++;
	return c;
fail:
	free(c);
	close(fd);
	return NULL;
}

void dev_conn_set_state(struct conn *c, enum conn_state state)
{
	struct vsock_dev *dev = c->dev;

	if (!conn_may_become(c->state, state))
		abort(); /* a bug of ours, and nothing is safe after it */
	if (dev->cfg.debug)
		dev_log(dev, "conn %u:%u %s -> %s", c->host_port, c->guest_port,
			conn_state_name(c->state), conn_state_name(state));
	if (c->state == CONN_HANDSHAKE)
		dev->handshakes--;
	c->state = state;
}

void dev_conn_owe(struct conn *c, unsigned owed)
{
	c->owed |= (uint8_t)owed;
	if (!c->in_owing) {
		TAILQ_INSERT_TAIL(&c->dev->owing, c, owing);
		c->in_owing = true;
	}
}

void dev_conn_consider(struct conn *c)
{
	bool want = c->state == CONN_OPEN && (c->host_gone || conn_flows(c));

	/* Should the guest's update have been lost on us: ask once, its answer has the numbers. */
	if (c->state == CONN_OPEN && conn_has_input(c) && !conn_credit(c) && !c->credit_asked) {
		c->credit_asked = true;
		dev_conn_owe(c, OWED_CREDIT_REQUEST);
	}
	if (want == c->in_ready)
		return;
	c->in_ready = want;
	if (want)
		TAILQ_INSERT_TAIL(&c->dev->ready, c, ready);
	else
		TAILQ_REMOVE(&c->dev->ready, c, ready);
}

void dev_conn_unwait(struct conn *c)
{
	if (c->in_waiting)
		TAILQ_REMOVE(&c->dev->waiting, c, waiting);
	c->in_waiting = false;
}

static void conn_unlist(struct conn *c)
{
	struct vsock_dev *dev = c->dev;

	dev_conn_unwait(c);
	if (c->in_ready)
		TAILQ_REMOVE(&dev->ready, c, ready);
	if (c->in_owing)
		TAILQ_REMOVE(&dev->owing, c, owing);
	c->in_ready = c->in_owing = false;
	c->owed = 0;
}

static void conn_close_host(struct conn *c)
{
	loop_del(c->dev->cfg.loop, &c->src);
	close_fd(&c->src.fd);
	backlog_free(&c->backlog);
}

void dev_conn_drop(struct conn *c)
{
	struct vsock_dev *dev = c->dev;

	dev_conn_set_state(c, CONN_DEAD);
	conn_unlist(c);
	conn_remove(&dev->table, c);
	conn_close_host(c);
	dev->extra_credit += c->alloc - CONN_CREDIT_MIN;
	dev->conn_count--;
	TAILQ_REMOVE(&dev->conns, c, all);
	TAILQ_INSERT_TAIL(&dev->dead_conns, c, all);
}

void dev_conn_reset(struct conn *c)
{
	bool unknown = !c->in_table || (c->owed & OWED_REQUEST);

	if (unknown) {
		dev_conn_drop(c);
		return;
	}
	dev_conn_set_state(c, CONN_RESETTING);
	conn_unlist(c);
	conn_close_host(c);
	dev_conn_owe(c, OWED_RST);
}

void dev_conn_violation(struct conn *c, const char *what)
{
	dev_complain(c->dev, "connection %u:%u reset: guest %s", c->host_port, c->guest_port, what);
	c->dev->stats.violations++;
	dev_conn_reset(c);
}

void dev_conn_drain(struct conn *c)
{
	if (c->backlog.len == 0 || c->host_gone) {
		dev_conn_drop(c);
		return;
	}
	dev_conn_set_state(c, CONN_DRAINING);
	conn_unlist(c);
	conn_remove(&c->dev->table, c);
}

/* ---- the whole device ---- */

static void kick_fire(struct loop_source *src, uint32_t events)
{
	struct queue *q = container_of(src, struct queue, kick);

	(void)events; /* edge-triggered, never read: each write fires; service looks at both rings */
	q->dev->stats.kicks++;
}

static int listener_create(struct vsock_dev *dev)
{
	dev->listener = (struct loop_source){.fire = host_listener_fire, .fd = dev->cfg.listen_fd};
	if (dev->listener.fd < 0)
		return 0;
	if (fcntl(dev->listener.fd, F_SETFL, O_NONBLOCK) < 0)
		return -1;
	dev->listener_on = true;
	return loop_add(dev->cfg.loop, &dev->listener, EPOLLIN);
}

struct vsock_dev *vsock_dev_create(const struct vsock_config *cfg)
{
	struct vsock_dev *dev;
	uint32_t rnd[2];

	if (cfg->dial_prefix && hybrid_check_prefix(cfg->dial_prefix) < 0) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	if (getrandom(rnd, sizeof(rnd), 0) != sizeof(rnd))
		return NULL;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	dev->cfg = *cfg;
	if (!dev->cfg.handshake_ms)
		dev->cfg.handshake_ms = VSOCK_HANDSHAKE_MS;
	if (!dev->cfg.max_conns)
		dev->cfg.max_conns = VSOCK_MAX_CONNS;
	dev->table.seed = rnd[0];
	/*
	 * Random, so that a restored guest is not shown the ports of connections it still believes
	 * in.
	 */
	dev->next_port = CONN_PORT_FIRST + rnd[1] % (CONN_PORT_LAST - CONN_PORT_FIRST + 1);
	dev->extra_credit = EXTRA_CREDIT_BYTES;
	TAILQ_INIT(&dev->conns);
	TAILQ_INIT(&dev->dead_conns);
	TAILQ_INIT(&dev->ready);
	TAILQ_INIT(&dev->owing);
	TAILQ_INIT(&dev->waiting);
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		struct queue *q = &dev->queue[i];

		q->ring.mem = &dev->mem;
		q->kick = (struct loop_source){.fire = kick_fire, .fd = -1};
		q->dev = dev;
		q->call_fd = q->err_fd = -1;
	}
	if (listener_create(dev) < 0) {
		free(dev);
		return NULL;
	}
	return dev;
}

static void reap(struct vsock_dev *dev)
{
	struct conn *c;

	while ((c = TAILQ_FIRST(&dev->dead_conns))) {
		TAILQ_REMOVE(&dev->dead_conns, c, all);
		free(c);
	}
}

void vsock_dev_destroy(struct vsock_dev *dev)
{
	struct conn *c;

	if (!dev)
		return;
	while ((c = TAILQ_FIRST(&dev->conns)))
		dev_conn_drop(c);
	reap(dev);
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		vsock_dev_set_kick(dev, (unsigned)i, -1);
		close_fd(&dev->queue[i].call_fd);
		close_fd(&dev->queue[i].err_fd);
	}
	loop_del(dev->cfg.loop, &dev->listener);
	free(dev);
}

uint64_t vsock_dev_features(void)
{
	return FEATURES;
}

int vsock_dev_set_features(struct vsock_dev *dev, uint64_t features)
{
	if (dev->running)
		return -EBUSY;
	if (features & BIT(VIRTIO_F_RING_PACKED))
		return -EINVAL;
	dev->features = features & FEATURES;
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		dev->queue[i].ring.indirect = features & BIT(VIRTIO_RING_F_INDIRECT_DESC);
		dev->queue[i].ring.event_idx = features & BIT(VIRTIO_RING_F_EVENT_IDX);
	}
	return 0;
}

int vsock_dev_set_mem(struct vsock_dev *dev, const struct gmem_region *region, unsigned count)
{
	int r = gmem_set(&dev->mem, region, count);

	if (r < 0)
		return r;
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		struct virtq *vq = &dev->queue[i].ring;

		if (!virtq_recheck(vq) && dev->running)
			virtq_break(vq, "the new memory table does not hold the ring");
	}
	return 0;
}

int vsock_dev_set_num(struct vsock_dev *dev, unsigned queue, uint32_t num)
{
	if (queue >= VSOCK_QUEUES)
		return -EINVAL;
	if (dev->running)
		return -EBUSY;
	return virtq_set_num(&dev->queue[queue].ring, num);
}

int vsock_dev_set_base(struct vsock_dev *dev, unsigned queue, uint32_t base)
{
	if (queue >= VSOCK_QUEUES || base > UINT16_MAX)
		return -EINVAL;
	if (dev->running)
		return -EBUSY;
	dev->queue[queue].ring.next_avail = (uint16_t)base;
	return 0;
}

int vsock_dev_get_base(struct vsock_dev *dev, unsigned queue, uint32_t *base)
{
	if (queue >= VSOCK_QUEUES)
		return -EINVAL;
	*base = dev->queue[queue].ring.next_avail;
	return 0;
}

int vsock_dev_set_addr(struct vsock_dev *dev, unsigned queue, const struct virtq_addr *addr)
{
	if (queue >= VSOCK_QUEUES)
		return -EINVAL;
	if (dev->running)
		return -EBUSY;
	return virtq_set_addr(&dev->queue[queue].ring, addr);
}

int vsock_dev_set_cid(struct vsock_dev *dev, uint64_t cid)
{
	if (cid <= VSOCK_HOST_CID || cid >= UINT32_MAX)
		return -EINVAL;
	dev->cid = cid;
	return 0;
}

/* Replaces *slot by a duplicate of fd, or by -1. */
static int replace_fd(int *slot, int fd)
{
	int copy = -1;

	if (fd >= 0) {
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (copy < 0)
			return -errno;
	}
	close_fd(slot);
	*slot = copy;
	return 0;
}

int vsock_dev_set_kick(struct vsock_dev *dev, unsigned queue, int fd)
{
	struct loop_source *kick;
	int r;

	if (queue >= VSOCK_QUEUES)
		return -EINVAL;
	kick = &dev->queue[queue].kick;
	loop_del(dev->cfg.loop, kick);
	r = replace_fd(&kick->fd, fd);
	if (kick->fd >= 0 && loop_add(dev->cfg.loop, kick, EPOLLIN | EPOLLET) < 0) {
		r = -errno;
		close_fd(&kick->fd);
	}
	return r;
}

int vsock_dev_set_call(struct vsock_dev *dev, unsigned queue, int fd)
{
	return queue < VSOCK_QUEUES ? replace_fd(&dev->queue[queue].call_fd, fd) : -EINVAL;
}

int vsock_dev_set_err(struct vsock_dev *dev, unsigned queue, int fd)
{
	return queue < VSOCK_QUEUES ? replace_fd(&dev->queue[queue].err_fd, fd) : -EINVAL;
}

static void signal_fd(int fd)
{
	uint64_t one = 1;
	ssize_t n;

	if (fd < 0)
		return;
	n = write(fd, &one, sizeof(one));
	(void)n; /* fails only when the counter is full, and then it is signalled */
}

static void signal_queue(struct vsock_dev *dev, unsigned queue)
{
	if (virtq_should_signal(&dev->queue[queue].ring)) {
		dev->stats.signals++;
		signal_fd(dev->queue[queue].call_fd);
	}
}

/*
 * A transmit interrupt only tells the guest that it may free its buffers, yet costs it as much as a
 * receive one. So it waits for company: a receive interrupt makes the guest look at both queues
 * where they share the line (virtio-mmio), and then used_event says that no interrupt is wanted any
 * more. It is sent when a quarter of the ring is waiting to be freed, or after SIGNAL_DELAY_MS.
 */
static void signal_tx(struct vsock_dev *dev, bool at_once)
{
	if (!dev->tx_slots_unsignalled)
		return; /* and no deadline is set */
	if (!dev->tx_signal_at_ms)
		dev->tx_signal_at_ms = dev->now_ms + SIGNAL_DELAY_MS;
	if (!at_once && dev->tx_slots_unsignalled < dev->queue[VSOCK_QUEUE_TX].ring.num / 4U &&
	    dev->now_ms < dev->tx_signal_at_ms)
		return;
	signal_queue(dev, VSOCK_QUEUE_TX);
	dev->tx_slots_unsignalled = 0;
	dev->tx_signal_at_ms = 0;
}

/* What the guest's old driver knew is gone; what it was never told can be said again. */
static void forget_guest(struct vsock_dev *dev)
{
	struct conn *c, *next;

	for (c = TAILQ_FIRST(&dev->conns); c; c = next) {
		next = TAILQ_NEXT(c, all);
		if (c->state == CONN_OPEN || c->state == CONN_RESETTING)
			dev_conn_drop(c);
		else if (c->state == CONN_REQUESTED)
			dev_conn_owe(c, OWED_REQUEST);
	}
	dev->reset_count = 0;
	dev->tx_blocked = false;
}

/* A ring broke: nobody can be reached through this device until the driver resets it. */
static void check_broken(struct vsock_dev *dev)
{
	struct conn *c, *next;

	if (dev->dead)
		return;
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		struct queue *q = &dev->queue[i];

		if (!q->ring.broken)
			continue;
		dev->dead = true;
		dev->stats.broken = q->ring.broken;
		dev_complain(dev, "%s queue stopped until the driver resets the device: %s",
			     queue_names[i], q->ring.broken);
		signal_fd(q->err_fd);
	}
	if (!dev->dead)
		return;
	signal_tx(dev, true);
	for (c = TAILQ_FIRST(&dev->conns); c; c = next) {
		next = TAILQ_NEXT(c, all);
		if (c->state != CONN_DRAINING)
			dev_conn_drop(c);
	}
}

static struct queue_mark queue_mark(const struct virtq *vq)
{
	return (struct queue_mark){.num = vq->num, .base = vq->next_avail, .addr = vq->addr};
}

static bool marks_equal(const struct queue_mark *a, const struct queue_mark *b)
{
	return a->num == b->num && a->base == b->base && a->addr.desc == b->addr.desc &&
	       a->addr.avail == b->addr.avail && a->addr.used == b->addr.used;
}

/* Whether the driver is the one that was stopped. */
static bool continues(const struct vsock_dev *dev)
{
	if (!dev->stopped_once || dev->features != dev->mark_features)
		return false;
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		struct queue_mark now = queue_mark(&dev->queue[i].ring);

		if (!marks_equal(&now, &dev->mark[i]))
			return false;
	}
	return true;
}

static int start(struct vsock_dev *dev)
{
	bool fresh;

	if (!(dev->features & BIT(VIRTIO_F_VERSION_1))) {
		dev_complain(dev, "the driver did not negotiate VIRTIO_F_VERSION_1");
		return -EINVAL;
	}
	if (!dev->cid)
		return -EINVAL;
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		if (!dev->queue[i].ring.attached)
			return -EFAULT;
	}
	fresh = !continues(dev);
	if (fresh) {
		forget_guest(dev);
		dev->dead = false;
		dev->stats.broken = NULL;
	}
	for (int i = 0; i < VSOCK_QUEUES; i++)
		virtq_start(&dev->queue[i].ring, fresh);
	dev->tx_slots_unsignalled = 0;
	dev->tx_signal_at_ms = 0;
	dev->running = true;
	return 0;
}

static void stop(struct vsock_dev *dev)
{
	signal_tx(dev, true);
	for (int i = 0; i < VSOCK_QUEUES; i++)
		dev->mark[i] = queue_mark(&dev->queue[i].ring);
	dev->mark_features = dev->features;
	dev->stopped_once = true;
	dev->running = false;
}

int vsock_dev_run(struct vsock_dev *dev, bool run)
{
	if (run == dev->running)
		return 0;
	if (run)
		return start(dev);
	stop(dev);
	return 0;
}

void vsock_dev_reset(struct vsock_dev *dev)
{
	vsock_dev_run(dev, false);
	forget_guest(dev);
	dev->stopped_once = false;
	dev->features = 0;
	dev->mem.count = 0;
	for (unsigned i = 0; i < VSOCK_QUEUES; i++) {
		struct virtq *vq = &dev->queue[i].ring;

		vsock_dev_set_kick(dev, i, -1);
		vsock_dev_set_call(dev, i, -1);
		vsock_dev_set_err(dev, i, -1);
		*vq = (struct virtq){.mem = &dev->mem};
	}
}

static int sooner(int timeout, const struct vsock_dev *dev, uint64_t at_ms)
{
	uint64_t left = at_ms > dev->now_ms ? at_ms - dev->now_ms : 0;

	if (timeout >= 0 && (uint64_t)timeout <= left)
		return timeout;
	return left < INT32_MAX ? (int)left : INT32_MAX;
}

static int next_timeout(const struct vsock_dev *dev)
{
	const struct conn *c = TAILQ_FIRST(&dev->waiting);
	int timeout = -1;

	if (c)
		timeout = sooner(timeout, dev, c->deadline_ms);
	if (dev->tx_signal_at_ms)
		timeout = sooner(timeout, dev, dev->tx_signal_at_ms);
	if (dev->accept_again_ms)
		timeout = sooner(timeout, dev, dev->accept_again_ms);
	return timeout;
}

int vsock_dev_service(struct vsock_dev *dev)
{
	bool more = false;

	dev_clock(dev);
	host_expire(dev);
	if (dev->running && !dev->dead) {
		more = from_guest_run(dev);
		more |= to_guest_run(dev);
		more |= dev->tx_blocked && dev->reset_count < MAX_RESETS;
		virtq_publish(&dev->queue[VSOCK_QUEUE_TX].ring);
		if (virtq_publish(&dev->queue[VSOCK_QUEUE_RX].ring))
			signal_queue(dev, VSOCK_QUEUE_RX);
		signal_tx(dev, false);
		check_broken(dev);
	}
	host_listen(dev);
	reap(dev);
	return more && !dev->dead ? 0 : next_timeout(dev);
}

void vsock_dev_stats(const struct vsock_dev *dev, struct vsock_stats *stats)
{
	*stats = dev->stats;
	stats->running = dev->running;
	stats->cid = dev->cid;
	stats->conns = dev->conn_count;
	stats->handshakes = dev->handshakes;
}
