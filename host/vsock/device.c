/* SPDX-License-Identifier: Apache-2.0 */
/* The device's life, its interrupts, and the one pass that does all its work. */
#include "host/vsock/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "host/vsock/device_priv.h"
#include "host/vsock/hybrid.h"

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
	/* Random, so that a restored guest does not meet ports that it takes for living ones. */
	dev->next_port = CONN_PORT_FIRST + rnd[1] % (CONN_PORT_LAST - CONN_PORT_FIRST + 1);
	dev->extra_credit = EXTRA_CREDIT_BYTES;
	TAILQ_INIT(&dev->conns);
	TAILQ_INIT(&dev->dead_conns);
	TAILQ_INIT(&dev->ready);
	TAILQ_INIT(&dev->owing);
	TAILQ_INIT(&dev->stalled);
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
		dev_close_fd(&dev->queue[i].call_fd);
		dev_close_fd(&dev->queue[i].err_fd);
	}
	loop_del(dev->cfg.loop, &dev->listener);
	free(dev);
}

int vsock_dev_forked(struct vsock_dev *dev, bool another_guest)
{
	struct conn *c, *next;
	uint32_t rnd;

	for (c = TAILQ_FIRST(&dev->conns); c; c = next) {
		next = TAILQ_NEXT(c, all);
		if (c->state == CONN_DRAINING || another_guest)
			dev_conn_drop(c);
		else if (c->state != CONN_RESETTING)
			dev_conn_reset(c);
	}
	if (another_guest)
		dev->reset_count = 0;
	/* The driver's eventfds are made anew with each start. */
	for (int i = 0; i < VSOCK_QUEUES; i++) {
		vsock_dev_set_kick(dev, (unsigned)i, -1);
		dev_close_fd(&dev->queue[i].call_fd);
		dev_close_fd(&dev->queue[i].err_fd);
	}
	if (getrandom(&rnd, sizeof(rnd), 0) == (ssize_t)sizeof(rnd))
		dev->next_port = CONN_PORT_FIRST + rnd % (CONN_PORT_LAST - CONN_PORT_FIRST + 1);
	dev->accept_again_ms = 0;
	dev->accept_failing = false;
	return listener_create(dev);
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
void dev_signal_tx(struct vsock_dev *dev, bool at_once)
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
	dev_signal_tx(dev, true);
	for (c = TAILQ_FIRST(&dev->conns); c; c = next) {
		next = TAILQ_NEXT(c, all);
		if (c->state != CONN_DRAINING)
			dev_conn_drop(c);
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
	const struct conn *waiting = TAILQ_FIRST(&dev->waiting);
	const struct conn *stalled = TAILQ_FIRST(&dev->stalled);
	int timeout = -1;

	if (waiting)
		timeout = sooner(timeout, dev, waiting->deadline_ms);
	if (stalled && dev->running)
		timeout = sooner(timeout, dev, stalled->ask_at_ms);
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
	dev_conn_ask_credit(dev);
	if (dev->running && !dev->dead) {
		more = from_guest_run(dev);
		more |= to_guest_run(dev);
		more |= dev->tx_blocked && dev->reset_count < MAX_RESETS;
		virtq_publish(&dev->queue[VSOCK_QUEUE_TX].ring);
		if (virtq_publish(&dev->queue[VSOCK_QUEUE_RX].ring))
			signal_queue(dev, VSOCK_QUEUE_RX);
		dev_signal_tx(dev, false);
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
