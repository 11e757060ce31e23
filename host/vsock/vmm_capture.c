/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vsock/vmm_capture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_scan.h"

#define STACK_BYTES (128 * 1024)
#define EXTENTS	    256 /* written at a time */

static int fail(struct vmm_capture *c, const char *stage)
{
	c->error = errno ? errno : EIO;
	c->stage = stage;
	return -1;
}

static int write_at(int fd, const void *data, size_t len, uint64_t offset)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static int save(struct vmm_capture *c, const uint8_t *p, size_t len)
{
	const struct vmm_ram *ram = &c->vmm->ram;

	if (write_at(c->data_fd, p, len, (uint64_t)(p - ram->base)) < 0)
		return fail(c, "data");
	c->bytes += len;
	return 0;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	const uint64_t *w = (const uint64_t *)(const void *)p;

	for (size_t i = 0; i < len / sizeof(*w); i += 8)
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] | w[i + 5] | w[i + 6] |
		    w[i + 7])
			return false;
	return true;
}

/* ---- delta ---- */

#define DIRTY 1u /* is to be written */
#define SAVED 2u /* was written ahead */

static int mark_dirty(void *arg, const uint8_t *p, size_t len)
{
	struct vmm_capture *c = arg;

	vmm_ram_mark(&c->vmm->ram, c->dirty, p, len, DIRTY);
	return 0;
}

/* A page that changed since its granule was written ahead; or one of a granule that was not. */
static int save_written(void *arg, const uint8_t *p, size_t len)
{
	struct vmm_capture *c = arg;
	const struct vmm_ram *ram = &c->vmm->ram;

	while (len > 0) {
		size_t offset = (size_t)(p - ram->base), granule = offset / ram->granule;
		size_t here = (size_t)((granule + 1) * ram->granule) - offset;

		if (here > len)
			here = len;
		if (!(c->dirty[granule] & SAVED))
			c->dirty[granule] = DIRTY;
		else if (save(c, p, here) < 0)
			return -1;
		p += here;
		len -= here;
	}
	return 0;
}

/* The next run, from granule *at on, of granules that have any of these marks; false: none. */
static bool next_run(const struct vmm_capture *c, uint8_t marks, size_t *at, struct vmm_extent *e)
{
	const struct vmm_ram *ram = &c->vmm->ram;
	size_t granules = vmm_ram_granules(ram), first;

	while (*at < granules && !(c->dirty[*at] & marks))
		++*at;
	first = *at;
	while (*at < granules && (c->dirty[*at] & marks))
		++*at;
	if (first == *at)
		return false;
	*e = vmm_ram_extent(ram, first, *at - first);
	return true;
}

static int save_dirty(struct vmm_capture *c)
{
	struct vmm_extent e;
	size_t at = 0;

	while (next_run(c, DIRTY, &at, &e))
		if (save(c, c->vmm->ram.base + e.offset, e.length) < 0)
			return -1;
	return 0;
}

static int save_some_extents(struct vmm_capture *c, const struct vmm_extent *e, size_t count)
{
	uint64_t offset = c->extents * sizeof(*e);

	if (write_at(c->extents_fd, e, count * sizeof(*e), offset) < 0)
		return fail(c, "extents");
	c->extents += count;
	return 0;
}

static int save_extents(struct vmm_capture *c)
{
	struct vmm_extent e[EXTENTS];
	size_t at = 0, n = 0;

	while (next_run(c, DIRTY | SAVED, &at, &e[n])) {
		if (++n < EXTENTS)
			continue;
		if (save_some_extents(c, e, n) < 0)
			return -1;
		n = 0;
	}
	return save_some_extents(c, e, n);
}

static int scan(struct vmm_capture *c, enum vmm_scan what, vmm_scan_fn *fn)
{
	const struct vmm_ram *ram = &c->vmm->ram;

	if (vmm_scan(ram->base, ram->size, what, fn, c) < 0)
		return c->error ? -1 : fail(c, "pagemap");
	return 0;
}

/* The granules of the layers that it stands for. */
static void mark_layers(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;

	for (size_t i = 0; i < VMM_RAM_GRANULES; i++)
		if (ram->owner[i] > c->below && !(c->dirty[i] & SAVED))
			c->dirty[i] = DIRTY;
}

static bool is_zero_granule(const struct vmm_ram *ram, size_t granule)
{
	struct vmm_extent e = vmm_ram_extent(ram, granule, 1);

	return is_zero(ram->base + e.offset, e.length);
}

/* What was only read of a hole looks like one's own where pagemap is read; it is as good as the hole. */
static void leave_holes(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;

	for (size_t i = 0; i < VMM_RAM_GRANULES; i++)
		if (c->dirty[i] && ram->hole[i] && !ram->owner[i] && is_zero_granule(ram, i))
			c->dirty[i] = 0;
}

static int capture_delta(struct vmm_capture *c, bool was_ahead)
{
	int r;

	if (was_ahead) {
		r = scan(c, VMM_SCAN_WRITTEN, save_written);
	} else {
		memset(c->dirty, 0, sizeof(c->dirty));
		r = scan(c, VMM_SCAN_OWN, mark_dirty);
		leave_holes(c);
	}
	if (r == 0)
		mark_layers(c);
	return r < 0 || save_dirty(c) < 0 ? -1 : save_extents(c);
}

/* ---- ahead ---- */

static void stop_tracking(struct vmm_capture *c)
{
	if (c->track_fd >= 0)
		close(c->track_fd);
	c->track_fd = -1;
}

/* Memory is tracked once at a time: what tracked it last has to be closed. */
static void await_untracked(struct vmm_capture *c)
{
	if (c->untracking)
		pthread_join(c->untrack, NULL);
	c->untracking = false;
}

static int capture_ahead(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;
	struct stat st;

	stop_tracking(c);
	await_untracked(c);
	memset(c->dirty, 0, sizeof(c->dirty));
	if (fstat(c->data_fd, &st) < 0)
		return fail(c, "data");
	c->track_fd = vmm_scan_track(ram->base, ram->size);
	if (c->track_fd < 0)
		return fail(c, "tracking");
	c->ahead_dev = st.st_dev;
	c->ahead_ino = st.st_ino;
	/* Protected before they are read: what is written from now on is seen by the delta. */
	if (scan(c, VMM_SCAN_PROTECT, mark_dirty) < 0 || save_dirty(c) < 0) {
		stop_tracking(c);
		return -1;
	}
	for (size_t i = 0; i < VMM_RAM_GRANULES; i++)
		if (c->dirty[i])
			c->dirty[i] = SAVED;
	return 0;
}

/* ---- whole ---- */

/*
 * Granules that are not zero: of the VM's own, a layer's, and what the base holds. Its holes are not
 * read, which would fill them; and a granule is written whole, so that a base has no smaller ones.
 */
static int capture_whole(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;
	size_t granules = vmm_ram_granules(ram);

	memset(c->dirty, 0, sizeof(c->dirty));
	if (scan(c, VMM_SCAN_OWN, mark_dirty) < 0)
		return -1;
	for (size_t i = 0; i < granules; i++) {
		if (ram->base_fd >= 0 && (ram->owner[i] || !ram->hole[i]))
			c->dirty[i] = DIRTY;
		if (c->dirty[i] && is_zero_granule(ram, i))
			c->dirty[i] = 0;
	}
	return save_dirty(c);
}

/* ---- the thread ---- */

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void close_fds(struct vmm_capture *c)
{
	if (c->data_fd >= 0)
		close(c->data_fd);
	if (c->extents_fd >= 0)
		close(c->extents_fd);
	c->data_fd = c->extents_fd = -1;
}

/* Whether the data file is the one that was written ahead, and was left alone since. */
static bool was_written_ahead(const struct vmm_capture *c)
{
	struct stat st;

	return c->track_fd >= 0 && fstat(c->data_fd, &st) == 0 && st.st_dev == c->ahead_dev &&
	       st.st_ino == c->ahead_ino && (uint64_t)st.st_size == c->vmm->ram.size;
}

static void *run(void *arg)
{
	struct vmm_capture *c = arg;
	uint64_t start = now_us();
	bool was_ahead = was_written_ahead(c);

	/* A file that was written ahead has its size; setting it again may wait for a journal. */
	if (!was_ahead && ftruncate(c->data_fd, (off_t)c->vmm->ram.size) < 0)
		fail(c, "data");
	else if (c->kind == CAPTURE_WHOLE)
		capture_whole(c);
	else if (c->kind == CAPTURE_AHEAD)
		capture_ahead(c);
	else
		capture_delta(c, was_ahead);
	close_fds(c);
	vmm_lock(c->vmm);
	if (c->spoiled && !c->error && c->kind != CAPTURE_AHEAD) {
		errno = EBUSY;
		fail(c, "the VM ran meanwhile");
	}
	c->us = now_us() - start;
	c->state = CAPTURE_DONE;
	vmm_wake(c->vmm);
	vmm_unlock(c->vmm);
	return NULL;
}

static const char *refusal(const struct vmm *vmm, enum vmm_capture_kind kind)
{
	struct vsock_stats st;

	vsock_dev_stats(vmm->dev, &st);
	if (vmm->capture.state != CAPTURE_IDLE)
		return "a capture is running";
	if (st.running && kind != CAPTURE_AHEAD)
		return "the VM is running";
	if (!vmm->ram.size)
		return "the size of the memory is not known";
	if (!vmm->ram.base)
		return "the guest has not started its vsock device yet";
	if (kind != CAPTURE_WHOLE && vmm->ram.base_fd < 0)
		return "the VM was booted, there is no base for a delta";
	return NULL;
}

const char *vmm_capture_start(struct vmm *vmm, enum vmm_capture_kind kind, unsigned below,
			      int data_fd, int extents_fd)
{
	struct vmm_capture *c = &vmm->capture;
	const char *why = refusal(vmm, kind);
	int r;

	if (why) {
		close(data_fd);
		if (extents_fd >= 0)
			close(extents_fd);
		return why;
	}
	c->vmm = vmm;
	c->kind = kind;
	c->below = below;
	c->data_fd = data_fd;
	c->extents_fd = extents_fd;
	c->spoiled = false;
	c->error = 0;
	c->bytes = c->extents = c->us = 0;
	c->state = CAPTURE_RUNNING;
	r = vmm_thread(&c->thread, STACK_BYTES, "hutch-capture", run, c);
	if (r == 0)
		return NULL;
	c->state = CAPTURE_IDLE;
	close_fds(c);
	return "the thread cannot be started";
}

void vmm_capture_collect(struct vmm_capture *c)
{
	pthread_join(c->thread, NULL); /* it has let go of the lock, or is about to end */
	c->state = CAPTURE_IDLE;
}

static void *close_tracking(void *arg)
{
	close((int)(intptr_t)arg);
	return NULL;
}

/*
 * Closing takes some 50 ns a page that is protected, and the guest, which is about to go on, needs
 * the lock that is held here: so a thread does it.
 */
void vmm_capture_forget(struct vmm_capture *c)
{
	if (c->kind == CAPTURE_AHEAD || c->track_fd < 0)
		return;
	await_untracked(c);
	if (vmm_thread(&c->untrack, STACK_BYTES, "hutch-untrack", close_tracking,
		       (void *)(intptr_t)c->track_fd) == 0) {
		c->untracking = true;
		c->track_fd = -1;
	} else {
		stop_tracking(c);
	}
}

void vmm_capture_spoil(struct vmm_capture *c)
{
	c->spoiled = true;
}

void vmm_capture_end(struct vmm_capture *c)
{
	if (c->state != CAPTURE_IDLE)
		vmm_capture_collect(c);
	stop_tracking(c);
	await_untracked(c);
}
