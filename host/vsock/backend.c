/* SPDX-License-Identifier: Apache-2.0 */
/* The back-end calls, after vhost: features, memory, rings, eventfds; start, stop and reset. */
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_config.h>

#include "host/vsock/device_priv.h"

#define BIT(n) (1ULL << (n))

/*
 * No SEQPACKET, no packed ring, no VHOST_F_LOG_ALL: a VM is saved when it is stopped, so there is
 * nothing to log.
 */
#define FEATURES \
	(BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_INDIRECT_DESC) | BIT(VIRTIO_RING_F_EVENT_IDX))

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
	dev_close_fd(slot);
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
		dev_close_fd(&kick->fd);
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
	dev_signal_tx(dev, true);
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
