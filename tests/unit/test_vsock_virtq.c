/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory table and the ring: good chains, each kind of hostile one, and a ring that changes
 * while it is read.
 */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/vsock/virtq.h"
#include "tests/harness/fake_guest.h"

#define NUM 8

static struct fake_guest fg;
static struct gmem mem;
static struct virtq vq;
static struct iovec iov[VIRTQ_MAX_IOV];
static struct virtq_chain chain;
static uint64_t base; /* of free guest memory */
static uint64_t end;  /* of all guest memory */

static uint64_t hva(uint64_t gpa)
{
	return (uint64_t)(uintptr_t)fg_ptr(&fg, gpa, 1);
}

static void start_ring(void)
{
	const struct fg_ring *r = &fg.ring[VSOCK_QUEUE_TX];
	const struct virtq_addr addr = {hva(r->desc), hva(r->avail), hva(r->used)};

	vq = (struct virtq){.mem = &mem, .indirect = true, .event_idx = fg.opts.event_idx};
	ck_assert_int_eq(virtq_set_num(&vq, r->num), 0);
	ck_assert_int_eq(virtq_set_addr(&vq, &addr), 0);
	virtq_start(&vq, true);
}

static void setup_with(const struct fg_opts *opts)
{
	struct gmem_region region[2];

	fg_init(&fg, opts);
	for (unsigned i = 0; i < fg.regions; i++)
		region[i] = (struct gmem_region){fg.region[i].gpa, fg.region[i].size,
						 (uint64_t)(uintptr_t)fg.region[i].hva};
	ck_assert_int_eq(gmem_set(&mem, region, fg.regions), 0);
	base = (fg.brk + 15) / 16 * 16;
	end = fg.end;
	start_ring();
}

static void setup(void)
{
	setup_with(&(struct fg_opts){.num = NUM});
}

static void teardown(void)
{
	fg_free(&fg);
}

static void desc(unsigned i, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next)
{
	fg_desc(&fg, VSOCK_QUEUE_TX, i, addr, len, flags, next);
}

static void indirect_desc(uint64_t table, unsigned i, uint64_t addr, uint32_t len, uint16_t flags,
			  uint16_t next)
{
	struct vring_desc d = {.addr = addr, .len = len, .flags = flags, .next = next};

	fg_write(&fg, table + i * sizeof(d), &d, sizeof(d));
}

static enum virtq_result pop(void)
{
	return virtq_pop(&vq, VIRTQ_READABLE, iov, VIRTQ_MAX_IOV, &chain);
}

/* The chain at descriptor 0 breaks the ring, and it stays broken. */
static void expect_broken(const char *why)
{
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
	ck_assert_ptr_nonnull(vq.broken);
	ck_assert_msg(strstr(vq.broken, why), "%s, not %s", vq.broken, why);
	desc(0, base, 64, 0, 0);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
}

static void expect_chain(unsigned pieces, uint64_t bytes)
{
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(pop(), VIRTQ_OK);
	ck_assert_uint_eq(chain.head, 0);
	ck_assert_uint_eq(chain.iov_n, pieces);
	ck_assert_uint_eq(chain.bytes, bytes);
}

/* ---- memory table ---- */

START_TEST(table_refuses_bad_regions)
{
	static const struct gmem_region bad[][2] = {
		{{0x1000, 0, 0x10000}, {0}},
		{{0x1000, 0x1000, 0}, {0}},
		{{UINT64_MAX - 0xfff, 0x2000, 0x10000}, {0}},
		{{0x1000, 0x2000, UINT64_MAX - 0xfff}, {0}},
		{{0x1000, 0x2000, 0x10000}, {0x2fff, 0x1000, 0x20000}},
		{{0x1000, 0x2000, 0x10000}, {0x1000, 0x2000, 0x10000}},
	};
	struct gmem_region many[GMEM_MAX_REGIONS + 1];
	struct gmem before = mem;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(gmem_set(&mem, bad[i], bad[i][1].size ? 2 : 1), -EINVAL);
	ck_assert_int_eq(gmem_set(&mem, many, GMEM_MAX_REGIONS + 1), -E2BIG);
	ck_assert_mem_eq(&mem, &before, sizeof(mem));
	for (unsigned i = 0; i < GMEM_MAX_REGIONS; i++)
		many[i] = (struct gmem_region){i * 0x1000ULL, 0x1000, 0x100000 + i * 0x1000ULL};
	ck_assert_int_eq(gmem_set(&mem, many, GMEM_MAX_REGIONS), 0);
	ck_assert_ptr_eq(gmem_ptr(&mem, 0x3f123, 1), (void *)0x13f123);
}
END_TEST

START_TEST(table_translates_exactly)
{
	struct iovec v[3];
	uint64_t border;

	teardown();
	setup_with(&(struct fg_opts){.num = NUM, .two_regions = true});
	border = fg.region[1].gpa;
	ck_assert_ptr_eq(gmem_ptr(&mem, end - 1, 1), fg_ptr(&fg, end - 1, 1));
	ck_assert_ptr_null(gmem_ptr(&mem, end - 1, 2));
	ck_assert_ptr_null(gmem_ptr(&mem, end, 1));
	ck_assert_ptr_null(gmem_ptr(&mem, FG_GPA - 1, 1));
	ck_assert_ptr_null(gmem_ptr(&mem, border - 1, 2));
	ck_assert_ptr_null(gmem_ptr(&mem, UINT64_MAX, 1));
	ck_assert_int_eq(gmem_iov(&mem, border - 3, 8, v, 3), 2);
	ck_assert_ptr_eq(v[0].iov_base, fg_ptr(&fg, border - 3, 3));
	ck_assert_uint_eq(v[0].iov_len, 3);
	ck_assert_ptr_eq(v[1].iov_base, fg_ptr(&fg, border, 5));
	ck_assert_uint_eq(v[1].iov_len, 5);
	ck_assert_int_eq(gmem_iov(&mem, border - 3, 8, v, 1), -ENOSPC);
	ck_assert_int_eq(gmem_iov(&mem, end - 3, 4, v, 3), -EFAULT);
	ck_assert_int_eq(gmem_iov(&mem, FG_GPA - 1, 4, v, 3), -EFAULT);
	ck_assert_int_eq(gmem_iov(&mem, UINT64_MAX - 1, UINT32_MAX, v, 3), -EFAULT);
}
END_TEST

/* ---- ring set-up ---- */

START_TEST(ring_sizes)
{
	ck_assert_int_eq(virtq_set_num(&vq, 0), -EINVAL);
	ck_assert_int_eq(virtq_set_num(&vq, 3), -EINVAL);
	ck_assert_int_eq(virtq_set_num(&vq, 2048), -EINVAL);
	ck_assert_int_eq(virtq_set_num(&vq, 0x10000), -EINVAL);
	ck_assert_int_eq(virtq_set_num(&vq, 0x10008), -EINVAL);
	ck_assert_int_eq(virtq_set_num(&vq, 1), 0);
	ck_assert_int_eq(virtq_set_num(&vq, 1024), 0);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN); /* the addresses were for another size */
}
END_TEST

START_TEST(ring_addresses)
{
	const struct virtq_addr good = vq.addr;
	uint64_t last = hva(end - 1) + 1;
	struct virtq_addr a;

	a = good, a.desc += 8;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EINVAL);
	a = good, a.avail += 1;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EINVAL);
	a = good, a.used += 2;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EINVAL);
	a = good, a.desc = last - 16 * NUM + 16;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EFAULT);
	a.desc = last - 16 * NUM;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), 0);
	a = good, a.avail = last - (4 + 2 * NUM); /* its event field is outside */
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EFAULT);
	a = good, a.used = last - (4 + 8 * NUM);
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EFAULT);
	a = good, a.used = 0;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EFAULT);
	a = good, a.avail = UINT64_MAX - 1;
	ck_assert_int_eq(virtq_set_addr(&vq, &a), -EFAULT);
}
END_TEST

START_TEST(ring_leaves_memory)
{
	struct gmem_region small = {FG_GPA, 4096, hva(FG_GPA)};

	desc(0, base, 64, 0, 0);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	small.gpa += 0x100000;
	small.hva += 0x10000;
	ck_assert_int_eq(gmem_set(&mem, &small, 1), 0);
	ck_assert(!virtq_recheck(&vq));
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
	ck_assert(!virtq_publish(&vq));
	ck_assert(!virtq_should_signal(&vq));
	ck_assert(!virtq_kick_enable(&vq));
}
END_TEST

/* ---- good chains ---- */

START_TEST(chain_direct)
{
	desc(0, base, 10, VRING_DESC_F_NEXT, 5);
	desc(5, base + 100, 0, VRING_DESC_F_NEXT, 2); /* empty ones are allowed, and skipped */
	desc(2, base + 200, 20, 0, 77);
	expect_chain(2, 30);
	ck_assert_uint_eq(chain.slots, 3);
	ck_assert_ptr_eq(iov[0].iov_base, fg_ptr(&fg, base, 10));
	ck_assert_ptr_eq(iov[1].iov_base, fg_ptr(&fg, base + 200, 20));
	ck_assert_int_eq(pop(), VIRTQ_EMPTY);
}
END_TEST

START_TEST(chain_indirect)
{
	uint64_t table = base + 4096 + 3; /* need not be aligned */

	indirect_desc(table, 0, base, 10, VRING_DESC_F_NEXT, 2);
	indirect_desc(table, 2, base + 50, 5, 0, 0);
	desc(0, base + 300, 7, VRING_DESC_F_NEXT, 1);
	desc(1, table, 3 * 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_WRITE,
	     0); /* WRITE is ignored here */
	expect_chain(3, 22);
	ck_assert_uint_eq(chain.slots, 2);
	ck_assert_uint_eq(chain.descs, 4);
}
END_TEST

START_TEST(chain_to_the_last_byte)
{
	desc(0, end - 64, 64, 0, 0);
	expect_chain(1, 64);
}
END_TEST

START_TEST(chain_empty)
{
	desc(0, 0, 0, 0, 0); /* no byte, no address needed */
	expect_chain(0, 0);
}
END_TEST

START_TEST(chain_of_the_greatest_length)
{
	uint64_t table = base + 4096;

	for (unsigned i = 0; i < VIRTQ_MAX_CHAIN - 1; i++)
		indirect_desc(table, i, base + i, 1, VRING_DESC_F_NEXT, (uint16_t)(i + 1));
	indirect_desc(table, VIRTQ_MAX_CHAIN - 2, base, 1, 0, 0);
	desc(0, table, (VIRTQ_MAX_CHAIN - 1) * 16, VRING_DESC_F_INDIRECT, 0);
	expect_chain(VIRTQ_MAX_CHAIN - 1, VIRTQ_MAX_CHAIN - 1);
}
END_TEST

START_TEST(chain_without_room)
{
	desc(0, base, 10, VRING_DESC_F_NEXT, 1);
	desc(1, base, 10, 0, 0);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(virtq_pop(&vq, VIRTQ_READABLE, iov, 1, &chain), VIRTQ_FULL);
	ck_assert_ptr_null(vq.broken);
	ck_assert_int_eq(virtq_pop(&vq, VIRTQ_READABLE, iov, 2, &chain), VIRTQ_OK);
	virtq_unpop(&vq, 1);
	ck_assert_int_eq(virtq_pop(&vq, VIRTQ_READABLE, iov, 2, &chain), VIRTQ_OK);
	ck_assert_int_eq(pop(), VIRTQ_EMPTY);
}
END_TEST

/* ---- hostile ones ---- */

START_TEST(hostile_head)
{
	fg_offer(&fg, VSOCK_QUEUE_TX, NUM);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
	start_ring();
	fg_reset_rings(&fg);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0xffff);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
}
END_TEST

START_TEST(hostile_avail_index)
{
	for (unsigned i = 0; i <= NUM; i++)
		fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
	ck_assert(strstr(vq.broken, "ahead"));
}
END_TEST

START_TEST(hostile_avail_index_backwards)
{
	desc(0, base, 1, 0, 0);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(pop(), VIRTQ_OK);
	fg.ring[VSOCK_QUEUE_TX].next_avail -= 2;
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
}
END_TEST

START_TEST(hostile_loop_self)
{
	desc(0, base, 1, VRING_DESC_F_NEXT, 0);
	expect_broken("loop");
}
END_TEST

START_TEST(hostile_loop_of_empty)
{
	desc(0, base, 0, VRING_DESC_F_NEXT, 1);
	desc(1, base, 0, VRING_DESC_F_NEXT, 0);
	expect_broken("loop");
}
END_TEST

START_TEST(hostile_loop_indirect)
{
	indirect_desc(base, 0, base, 1, VRING_DESC_F_NEXT, 1);
	indirect_desc(base, 1, base, 1, VRING_DESC_F_NEXT, 0);
	desc(0, base, 32, VRING_DESC_F_INDIRECT, 0);
	expect_broken("loop");
}
END_TEST

START_TEST(hostile_next)
{
	desc(0, base, 1, VRING_DESC_F_NEXT, NUM);
	expect_broken("outside its table");
}
END_TEST

START_TEST(hostile_next_indirect)
{
	indirect_desc(base, 0, base, 1, VRING_DESC_F_NEXT, 2);
	desc(0, base, 32, VRING_DESC_F_INDIRECT, 0);
	expect_broken("outside its table");
}
END_TEST

/* Buffers that are not, or not wholly, in memory. */
static const struct {
	int64_t from_end; /* the address, relative to the end of memory; or 0 and absolute */
	uint64_t absolute;
	uint32_t len;
} outside[] = {
	{-1, 0, 2},
	{-64, 0, 65},
	{-4096, 0, UINT32_MAX},
	{0, 0, 1},
	{0, FG_GPA - 1, 1},
	{0, FG_GPA - 1, 2},
	{0, UINT64_MAX, 1},
	{0, UINT64_MAX - 63, 64},
	{0, UINT64_MAX - 63, UINT32_MAX},
	{0, 1ULL << 63, UINT32_MAX},
};

START_TEST(hostile_address)
{
	uint64_t at = outside[_i].from_end ? end + (uint64_t)outside[_i].from_end
					   : outside[_i].absolute;

	desc(0, base, 8, VRING_DESC_F_NEXT, 1);
	desc(1, at, outside[_i].len, 0, 0);
	expect_broken("outside memory");
}
END_TEST

START_TEST(hostile_address_indirect)
{
	uint64_t at = outside[_i].from_end ? end + (uint64_t)outside[_i].from_end
					   : outside[_i].absolute;

	indirect_desc(base, 0, at, outside[_i].len, 0, 0);
	desc(0, base, 16, VRING_DESC_F_INDIRECT, 0);
	expect_broken("outside memory");
}
END_TEST

START_TEST(hostile_direction)
{
	desc(0, base, 8, VRING_DESC_F_NEXT, 1);
	desc(1, base, 8, VRING_DESC_F_WRITE, 0);
	expect_broken("wrong direction");
	start_ring();
	fg_reset_rings(&fg);
	desc(0, base, 8, 0, 0);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert_int_eq(virtq_pop(&vq, VIRTQ_WRITABLE, iov, VIRTQ_MAX_IOV, &chain), VIRTQ_BROKEN);
}
END_TEST

START_TEST(hostile_indirect_not_negotiated)
{
	vq.indirect = false;
	indirect_desc(base, 0, base, 1, 0, 0);
	desc(0, base, 16, VRING_DESC_F_INDIRECT, 0);
	expect_broken("negotiated");
}
END_TEST

START_TEST(hostile_indirect_nested)
{
	indirect_desc(base, 0, base, 16, VRING_DESC_F_INDIRECT, 0);
	desc(0, base, 16, VRING_DESC_F_INDIRECT, 0);
	expect_broken("inside an indirect");
}
END_TEST

START_TEST(hostile_indirect_with_next)
{
	desc(0, base, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT, 1);
	expect_broken("next");
}
END_TEST

START_TEST(hostile_indirect_length)
{
	static const uint32_t lens[] = {0,	    1,	       15, 17, 16 * (VIRTQ_MAX_CHAIN + 1),
					0xfffffff0, UINT32_MAX};

	desc(0, base, lens[_i], VRING_DESC_F_INDIRECT, 0);
	expect_broken("bad length");
}
END_TEST

START_TEST(hostile_indirect_table)
{
	const uint64_t at[] = {end - 16, end, FG_GPA - 16, UINT64_MAX - 15, 0};

	desc(0, at[_i], 32, VRING_DESC_F_INDIRECT, 0);
	expect_broken("table outside memory");
}
END_TEST

START_TEST(hostile_indirect_bomb)
{
	/* As many descriptors as a walk may see, in front of one that can never be reached. */
	uint64_t table = base + 4096;

	for (unsigned i = 0; i < VIRTQ_MAX_CHAIN; i++)
		indirect_desc(table, i, base, 1, VRING_DESC_F_NEXT, (uint16_t)(i + 1));
	desc(0, table, VIRTQ_MAX_CHAIN * 16, VRING_DESC_F_INDIRECT, 0);
	expect_broken("too long");
}
END_TEST

START_TEST(hostile_too_many_pieces)
{
	uint64_t table, border;

	teardown();
	setup_with(&(struct fg_opts){.num = NUM, .two_regions = true});
	table = base + 4096;
	border = fg.region[1].gpa;
	for (unsigned i = 0; i < 1000; i++) /* each lies in both regions: two pieces */
		indirect_desc(table, i, border - 1, 2, i < 999 ? VRING_DESC_F_NEXT : 0,
			      (uint16_t)(i + 1));
	desc(0, table, 1000 * 16, VRING_DESC_F_INDIRECT, 0);
	expect_broken("pieces");
}
END_TEST

START_TEST(broken_until_fresh_start)
{
	desc(0, base, 1, VRING_DESC_F_NEXT, 0);
	expect_broken("loop");
	virtq_start(&vq, false);
	ck_assert_int_eq(pop(), VIRTQ_BROKEN);
	fg_reset_rings(&fg);
	vq.next_avail = 0;
	virtq_start(&vq, true);
	ck_assert_int_eq(pop(), VIRTQ_EMPTY);
	desc(0, base, 64, 0, 0);
	expect_chain(1, 64);
}
END_TEST

/* ---- indices, used ring and notifications ---- */

START_TEST(indices_wrap)
{
	struct fg_ring *r = &fg.ring[VSOCK_QUEUE_TX];

	desc(0, base, 1, 0, 0);
	desc(3, base, 1, 0, 0);
	for (unsigned i = 0; i < 70000; i++) {
		uint16_t head = i % 2 ? 3 : 0;
		uint32_t *used = fg_ptr(&fg, r->used + 4 + 8 * (i % NUM), 8);

		fg_offer(&fg, VSOCK_QUEUE_TX, head);
		/* One plain test, for each that check counts is a system call. */
		if (pop() != VIRTQ_OK ||
		    virtq_pop(&vq, VIRTQ_READABLE, iov, 1, &chain) != VIRTQ_EMPTY)
			ck_abort_msg("chain %u", i);
		virtq_put(&vq, head, i);
		if (!virtq_publish(&vq) || virtq_publish(&vq) ||
		    fg_used_idx(&fg, VSOCK_QUEUE_TX) != (uint16_t)(i + 1) || used[0] != head ||
		    used[1] != i)
			ck_abort_msg("used entry %u", i);
	}
}
END_TEST

static void use_one(void)
{
	virtq_put(&vq, 0, 0);
	ck_assert(virtq_publish(&vq));
}

START_TEST(signals_by_flag)
{
	uint16_t *flags = fg_ptr(&fg, fg.ring[VSOCK_QUEUE_TX].avail, 2);

	use_one();
	ck_assert(virtq_should_signal(&vq));
	*flags = VRING_AVAIL_F_NO_INTERRUPT;
	use_one();
	ck_assert(!virtq_should_signal(&vq));
}
END_TEST

START_TEST(signals_by_index)
{
	uint16_t *used_event;

	teardown();
	setup_with(&(struct fg_opts){.num = NUM, .event_idx = true});
	used_event = fg_ptr(&fg, fg.ring[VSOCK_QUEUE_TX].avail + 4 + 2 * NUM, 2);
	use_one();
	ck_assert(virtq_should_signal(&vq)); /* the first one always */
	*used_event = 3;
	use_one(); /* 2 */
	ck_assert(!virtq_should_signal(&vq));
	use_one(); /* 3 */
	ck_assert(!virtq_should_signal(&vq));
	use_one(); /* 4: the entry at index 3 */
	ck_assert(virtq_should_signal(&vq));
	use_one();
	ck_assert(!virtq_should_signal(&vq));
	/* Asked late, for several entries at once, as the transmit queue does. */
	*used_event = 6;
	use_one(), use_one(), use_one();
	ck_assert(virtq_should_signal(&vq));
	/* And the guest has seen them by itself meanwhile. */
	*used_event = 9;
	use_one(), *used_event = 9;
	ck_assert(!virtq_should_signal(&vq));
}
END_TEST

START_TEST(kicks_by_flag)
{
	uint16_t *flags = fg_ptr(&fg, fg.ring[VSOCK_QUEUE_TX].used, 2);

	ck_assert_uint_eq(*flags, VRING_USED_F_NO_NOTIFY);
	ck_assert(!virtq_kick_enable(&vq));
	ck_assert_uint_eq(*flags, 0);
	virtq_kick_disable(&vq);
	ck_assert_uint_eq(*flags, VRING_USED_F_NO_NOTIFY);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert(virtq_kick_enable(&vq)); /* came in between */
}
END_TEST

START_TEST(kicks_by_index)
{
	uint16_t *avail_event;

	teardown();
	setup_with(&(struct fg_opts){.num = NUM, .event_idx = true});
	avail_event = fg_ptr(&fg, fg.ring[VSOCK_QUEUE_TX].used + 4 + 8 * NUM, 2);
	desc(0, base, 1, 0, 0);
	expect_chain(1, 1);
	ck_assert(!virtq_kick_enable(&vq));
	ck_assert_uint_eq(*avail_event, 1);
	fg_offer(&fg, VSOCK_QUEUE_TX, 0);
	ck_assert(virtq_kick_enable(&vq));
}
END_TEST

/* ---- a guest that changes the ring while it is read ---- */

static bool scribble_stop;

/* Mostly the words of a good descriptor; now and then anything. */
static uint32_t word(uint32_t seed, unsigned at)
{
	const uint32_t good[] = {(uint32_t)base, 0, 8, 0};

	return seed >> 28 ? good[at % 4] : seed;
}

static void *scribble(void *arg)
{
	const struct fg_ring *r = &fg.ring[VSOCK_QUEUE_TX];
	uint32_t *descs = fg_ptr(&fg, r->desc, 16 * NUM);
	uint16_t *avail = fg_ptr(&fg, r->avail, 6 + 2 * NUM);
	uint32_t *table = fg_ptr(&fg, base, 256);
	uint32_t seed = 12345;

	(void)arg;
	while (!__atomic_load_n(&scribble_stop, __ATOMIC_RELAXED)) {
		unsigned at;

		seed = seed * 1664525 + 1013904223;
		at = seed >> 8 & 31;
		__atomic_store_n(&descs[at], word(seed, at), __ATOMIC_RELAXED);
		at = seed >> 9 & 63;
		__atomic_store_n(&table[at], word(seed, at), __ATOMIC_RELAXED);
		__atomic_store_n(&avail[2 + (seed >> 10) % NUM],
				 (uint16_t)((seed >> 20) % (seed >> 28 ? NUM : NUM + 1)),
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static void check_pieces(const struct virtq_chain *c)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < c->iov_n; i++) {
		if (!gmem_maps(&mem, (uint64_t)(uintptr_t)iov[i].iov_base, iov[i].iov_len))
			ck_abort_msg("a piece outside memory");
		bytes += iov[i].iov_len;
	}
	if (bytes != c->bytes)
		ck_abort_msg("the pieces don't add up");
}

START_TEST(ring_changes_while_it_is_read)
{
	unsigned good = 0, broken = 0;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, scribble, NULL), 0);
	/* Until the other thread had its turns, however busy the machine is. */
	for (int i = 0; i < 300000 || !good || !broken; i++) {
		fg_offer(&fg, VSOCK_QUEUE_TX, 0);
		switch (pop()) {
		case VIRTQ_OK:
			check_pieces(&chain);
			virtq_put(&vq, chain.head, 0);
			virtq_publish(&vq);
			good++;
			break;
		default:
			if (!vq.broken)
				ck_abort_msg("no chain, and no reason");
			vq.next_avail = fg.ring[VSOCK_QUEUE_TX].next_avail;
			virtq_start(&vq, true);
			broken++;
		}
	}
	__atomic_store_n(&scribble_stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vsock_virtq");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, table_refuses_bad_regions);
	tcase_add_test(t, table_translates_exactly);
	tcase_add_test(t, ring_sizes);
	tcase_add_test(t, ring_addresses);
	tcase_add_test(t, ring_leaves_memory);
	tcase_add_test(t, chain_direct);
	tcase_add_test(t, chain_indirect);
	tcase_add_test(t, chain_to_the_last_byte);
	tcase_add_test(t, chain_empty);
	tcase_add_test(t, chain_of_the_greatest_length);
	tcase_add_test(t, chain_without_room);
	tcase_add_test(t, hostile_head);
	tcase_add_test(t, hostile_avail_index);
	tcase_add_test(t, hostile_avail_index_backwards);
	tcase_add_test(t, hostile_loop_self);
	tcase_add_test(t, hostile_loop_of_empty);
	tcase_add_test(t, hostile_loop_indirect);
	tcase_add_test(t, hostile_next);
	tcase_add_test(t, hostile_next_indirect);
	tcase_add_loop_test(t, hostile_address, 0, (int)(sizeof(outside) / sizeof(outside[0])));
	tcase_add_loop_test(t, hostile_address_indirect, 0,
			    (int)(sizeof(outside) / sizeof(outside[0])));
	tcase_add_test(t, hostile_direction);
	tcase_add_test(t, hostile_indirect_not_negotiated);
	tcase_add_test(t, hostile_indirect_nested);
	tcase_add_test(t, hostile_indirect_with_next);
	tcase_add_loop_test(t, hostile_indirect_length, 0, 7);
	tcase_add_loop_test(t, hostile_indirect_table, 0, 5);
	tcase_add_test(t, hostile_indirect_bomb);
	tcase_add_test(t, hostile_too_many_pieces);
	tcase_add_test(t, broken_until_fresh_start);
	tcase_add_test(t, indices_wrap);
	tcase_add_test(t, signals_by_flag);
	tcase_add_test(t, signals_by_index);
	tcase_add_test(t, kicks_by_flag);
	tcase_add_test(t, kicks_by_index);
	tcase_add_test(t, ring_changes_while_it_is_read);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
