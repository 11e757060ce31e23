/* SPDX-License-Identifier: Apache-2.0 */
/* A split virtqueue, seen from the device. */
#include "host/vsock/virtq.h"

#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Virtio 1.x is little-endian; so are all hosts this is built for. */
_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "little-endian host");

static uint16_t load16(const __virtio16 *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void store16(__virtio16 *p, uint16_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/*
 * The fields at the rings' ends: used_event after the available ring, avail_event after the used
 * ring (2.7.6, 2.7.8).
 */
static __virtio16 *used_event(const struct virtq *vq)
{
	return &vq->avail->ring[vq->num];
}

static __virtio16 *avail_event(const struct virtq *vq)
{
	return (__virtio16 *)(void *)&vq->used->ring[vq->num];
}

int virtq_set_num(struct virtq *vq, uint32_t num)
{
	if (num == 0 || num > VIRTQ_MAX_NUM || (num & (num - 1)))
		return -EINVAL;
	vq->num = (uint16_t)num;
	vq->attached = false;
	return 0;
}

static int addr_check(const struct virtq *vq, const struct virtq_addr *a)
{
	/*
	 * With the event fields, whether negotiated or not: QEMU lays the rings out so, and the
	 * guest too.
	 */
	uint64_t desc_len = sizeof(struct vring_desc) * (uint64_t)vq->num;
	uint64_t avail_len = sizeof(struct vring_avail) + sizeof(__virtio16) * (vq->num + 1ULL);
	uint64_t used_len = sizeof(struct vring_used) +
			    sizeof(struct vring_used_elem) * (uint64_t)vq->num + sizeof(__virtio16);

	if (!vq->num || a->desc % VRING_DESC_ALIGN_SIZE || a->avail % VRING_AVAIL_ALIGN_SIZE ||
	    a->used % VRING_USED_ALIGN_SIZE)
		return -EINVAL;
	if (!gmem_maps(vq->mem, a->desc, desc_len) || !gmem_maps(vq->mem, a->avail, avail_len) ||
	    !gmem_maps(vq->mem, a->used, used_len))
		return -EFAULT;
	return 0;
}

int virtq_set_addr(struct virtq *vq, const struct virtq_addr *addr)
{
	int r = addr_check(vq, addr);

	if (r < 0)
		return r;
	vq->addr = *addr;
	vq->desc = (struct vring_desc *)(uintptr_t)addr->desc;
	vq->avail = (struct vring_avail *)(uintptr_t)addr->avail;
	vq->used = (struct vring_used *)(uintptr_t)addr->used;
	vq->attached = true;
	return 0;
}

bool virtq_recheck(struct virtq *vq)
{
	if (vq->attached)
		vq->attached = addr_check(vq, &vq->addr) == 0;
	return vq->attached;
}

void virtq_start(struct virtq *vq, bool fresh)
{
	if (fresh)
		vq->broken = NULL;
	vq->avail_seen = vq->next_avail;
	vq->next_used = load16(&vq->used->idx);
	vq->used_told = vq->next_used;
	vq->signalled_valid = false;
	vq->kicks_on = false;
	if (!vq->event_idx)
		store16(&vq->used->flags, VRING_USED_F_NO_NOTIFY);
}

enum virtq_result virtq_break(struct virtq *vq, const char *why)
{
	if (!vq->broken)
		vq->broken = why;
	return VIRTQ_BROKEN;
}

/* How many entries wait, or -1 when the index lies. */
static int pending(struct virtq *vq)
{
	uint16_t n = (uint16_t)(vq->avail_seen - vq->next_avail);

	if (n == 0) {
		vq->avail_seen = __atomic_load_n(&vq->avail->idx, __ATOMIC_ACQUIRE);
		n = (uint16_t)(vq->avail_seen - vq->next_avail);
	}
	if (n > vq->num) {
		virtq_break(vq, "available index is ahead by more than the ring");
		return -1;
	}
	return n;
}

/* A walk along one chain; table is the ring's own or an indirect one. */
struct walk {
	const struct vring_desc *table;
	uint32_t size;
	bool indirect;
};

/*
 * Copies a descriptor once. Indirect tables have no alignment rule, so it is a byte copy, not three
 * loads.
 */
static void read_desc(struct vring_desc *d, const struct vring_desc *table, uint32_t i)
{
	memcpy(d, (const char *)table + (size_t)i * sizeof(*d), sizeof(*d));
	__asm__ volatile("" : : "r"(d) : "memory"); /* not read again from the guest's memory */
}

static enum virtq_result enter_indirect(struct virtq *vq, struct walk *w,
					const struct vring_desc *d)
{
	if (!vq->indirect)
		return virtq_break(vq, "indirect descriptor was not negotiated");
	if (w->indirect)
		return virtq_break(vq, "indirect descriptor inside an indirect table");
	if (d->flags & VRING_DESC_F_NEXT)
		return virtq_break(vq, "indirect descriptor has a next one");
	if (d->len == 0 || d->len % sizeof(*d) || d->len / sizeof(*d) > VIRTQ_MAX_CHAIN)
		return virtq_break(vq, "indirect table of a bad length");
	w->table = gmem_ptr(vq->mem, d->addr, d->len);
	if (!w->table)
		return virtq_break(vq, "indirect table outside memory");
	w->size = d->len / sizeof(*d);
	w->indirect = true;
	return VIRTQ_OK;
}

static enum virtq_result add_piece(struct virtq *vq, const struct vring_desc *d, struct iovec *iov,
				   unsigned room, struct virtq_chain *c)
{
	int n;

	if (d->len == 0)
		return VIRTQ_OK;
	n = gmem_iov(vq->mem, d->addr, d->len, iov + c->iov_n, room - c->iov_n);
	if (n == -EFAULT)
		return virtq_break(vq, "buffer outside memory");
	if (n < 0)
		return room < VIRTQ_MAX_IOV ? VIRTQ_FULL
					    : virtq_break(vq, "chain of too many pieces");
	c->iov_n += (unsigned)n;
	c->bytes += d->len;
	return VIRTQ_OK;
}

static enum virtq_result walk_chain(struct virtq *vq, enum virtq_dir dir, struct iovec *iov,
				    unsigned room, struct virtq_chain *c)
{
	struct walk w = {.table = vq->desc, .size = vq->num};
	enum virtq_result r;
	uint32_t i = c->head;
	struct vring_desc d;

	for (;;) {
		if (i >= w.size)
			return virtq_break(vq, "descriptor index outside its table");
		if (++c->descs > VIRTQ_MAX_CHAIN || (!w.indirect && c->slots++ == vq->num))
			return virtq_break(vq, "chain is a loop or too long");
		read_desc(&d, w.table, i);
		if (d.flags & VRING_DESC_F_INDIRECT) {
			r = enter_indirect(vq, &w, &d);
			if (r != VIRTQ_OK)
				return r;
			i = 0;
			continue;
		}
		if (!!(d.flags & VRING_DESC_F_WRITE) != (dir == VIRTQ_WRITABLE))
			return virtq_break(vq, "buffer of the wrong direction");
		r = add_piece(vq, &d, iov, room, c);
		if (r != VIRTQ_OK)
			return r;
		if (!(d.flags & VRING_DESC_F_NEXT))
			return VIRTQ_OK;
		i = d.next;
	}
}

enum virtq_result virtq_pop(struct virtq *vq, enum virtq_dir dir, struct iovec *iov, unsigned room,
			    struct virtq_chain *chain)
{
	enum virtq_result r;
	int n;

	if (vq->broken || !vq->attached)
		return VIRTQ_BROKEN;
	n = pending(vq);
	if (n <= 0)
		return n < 0 ? VIRTQ_BROKEN : VIRTQ_EMPTY;
	*chain = (struct virtq_chain){
		.head = load16(&vq->avail->ring[vq->next_avail & (vq->num - 1)]),
	};
	if (chain->head >= vq->num)
		return virtq_break(vq, "head outside the descriptor table");
	r = walk_chain(vq, dir, iov, room, chain);
	if (r == VIRTQ_OK)
		vq->next_avail++;
	return r;
}

void virtq_unpop(struct virtq *vq, unsigned n)
{
	vq->next_avail = (uint16_t)(vq->next_avail - n);
}

void virtq_put(struct virtq *vq, uint16_t head, uint32_t len)
{
	struct vring_used_elem *e = &vq->used->ring[vq->next_used & (vq->num - 1)];

	__atomic_store_n(&e->id, head, __ATOMIC_RELAXED);
	__atomic_store_n(&e->len, len, __ATOMIC_RELAXED);
	vq->next_used++;
}

bool virtq_publish(struct virtq *vq)
{
	if (!vq->attached || vq->next_used == vq->used_told)
		return false;
	__atomic_store_n(&vq->used->idx, vq->next_used, __ATOMIC_RELEASE);
	vq->used_told = vq->next_used;
	return true;
}

bool virtq_should_signal(struct virtq *vq)
{
	uint16_t old = vq->signalled, now = vq->used_told;
	bool valid = vq->signalled_valid;

	if (!vq->attached)
		return false;
	/*
	 * The used index must be out before the guest's wish is read, or both sides could wait
	 * (2.7.13.4.1).
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!vq->event_idx)
		return !(load16(&vq->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	vq->signalled = now;
	vq->signalled_valid = true;
	return !valid || vring_need_event(load16(used_event(vq)), now, old);
}

bool virtq_kick_enable(struct virtq *vq)
{
	if (vq->broken || !vq->attached)
		return false;
	if (vq->event_idx)
		store16(avail_event(vq), vq->next_avail);
	else if (!vq->kicks_on)
		store16(&vq->used->flags, 0);
	vq->kicks_on = true;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return load16(&vq->avail->idx) != vq->next_avail;
}

void virtq_kick_disable(struct virtq *vq)
{
	if (!vq->event_idx && vq->kicks_on && vq->attached)
		store16(&vq->used->flags, VRING_USED_F_NO_NOTIFY);
	vq->kicks_on = false;
}
