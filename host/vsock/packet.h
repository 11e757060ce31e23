/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a virtio-vsock packet (virtio 1.2, section 5.10.6), in host order, and its 44 bytes
 * in the guest.
 */
#ifndef HUTCH_VSOCK_PACKET_H
#define HUTCH_VSOCK_PACKET_H

#include <endian.h>
#include <linux/virtio_vsock.h>
#include <stdint.h>

#define VSOCK_HOST_CID	2
#define VSOCK_HDR_BYTES 44 /* sizeof(struct virtio_vsock_hdr), which is packed */

_Static_assert(sizeof(struct virtio_vsock_hdr) == VSOCK_HDR_BYTES, "virtio_vsock_hdr");

struct packet {
	uint64_t src_cid;
	uint64_t dst_cid;
	uint32_t src_port;
	uint32_t dst_port;
	uint32_t len; /* payload bytes */
	uint16_t type;
	uint16_t op;
	uint32_t flags;
	uint32_t buf_alloc; /* the sender's receive buffer, bytes */
	uint32_t fwd_cnt;   /* bytes the sender has taken out of it, modulo 2^32 */
};

static inline void packet_decode(struct packet *p, const struct virtio_vsock_hdr *h)
{
	*p = (struct packet){
		.src_cid = le64toh(h->src_cid),
		.dst_cid = le64toh(h->dst_cid),
		.src_port = le32toh(h->src_port),
		.dst_port = le32toh(h->dst_port),
		.len = le32toh(h->len),
		.type = le16toh(h->type),
		.op = le16toh(h->op),
		.flags = le32toh(h->flags),
		.buf_alloc = le32toh(h->buf_alloc),
		.fwd_cnt = le32toh(h->fwd_cnt),
	};
}

static inline void packet_encode(struct virtio_vsock_hdr *h, const struct packet *p)
{
	*h = (struct virtio_vsock_hdr){
		.src_cid = htole64(p->src_cid),
		.dst_cid = htole64(p->dst_cid),
		.src_port = htole32(p->src_port),
		.dst_port = htole32(p->dst_port),
		.len = htole32(p->len),
		.type = htole16(p->type),
		.op = htole16(p->op),
		.flags = htole32(p->flags),
		.buf_alloc = htole32(p->buf_alloc),
		.fwd_cnt = htole32(p->fwd_cnt),
	};
}

#endif
