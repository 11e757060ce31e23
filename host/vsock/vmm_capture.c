/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vsock/vmm_capture.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
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

/* ---- delta ---- */

static int mark_dirty(void *arg, const uint8_t *p, size_t len)
{
	struct vmm_capture *c = arg;
	const struct vmm_ram *ram = &c->vmm->ram;
	size_t first = (size_t)(p - ram->base) / ram->granule;
	size_t last = ((size_t)(p - ram->base) + len - 1) / ram->granule;

	memset(c->dirty + first, 1, last - first + 1);
	return 0;
}

static int save_extents(struct vmm_capture *c, const struct vmm_extent *e, size_t count)
{
	uint64_t offset = c->extents * sizeof(*e);

	if (write_at(c->extents_fd, e, count * sizeof(*e), offset) < 0)
		return fail(c, "extents");
	c->extents += count;
	return 0;
}

static int capture_delta(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;
	size_t granules = (size_t)((ram->size + ram->granule - 1) / ram->granule), end, n = 0;
	struct vmm_extent e[EXTENTS];

	memset(c->dirty, 0, sizeof(c->dirty));
	if (vmm_scan_own(ram->base, ram->size, true, mark_dirty, c) < 0)
		return fail(c, "pagemap");
	for (size_t at = 0; at < granules; at = end) {
		for (end = at + 1; end < granules && c->dirty[end] == c->dirty[at];)
			end++;
		if (!c->dirty[at])
			continue;
		e[n].offset = at * ram->granule;
		e[n].length = (end - at) * ram->granule;
		if (e[n].length > ram->size - e[n].offset)
			e[n].length = ram->size - e[n].offset;
		if (save(c, ram->base + e[n].offset, e[n].length) < 0)
			return -1;
		if (++n == EXTENTS) {
			if (save_extents(c, e, n) < 0)
				return -1;
			n = 0;
		}
	}
	return save_extents(c, e, n);
}

/* ---- whole ---- */

static bool is_zero(const uint8_t *page)
{
	const uint64_t *w = (const uint64_t *)(const void *)page;

	for (unsigned i = 0; i < VMM_RAM_PAGE / sizeof(*w); i += 8)
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] | w[i + 5] | w[i + 6] |
		    w[i + 7])
			return false;
	return true;
}

static int save_nonzero(void *arg, const uint8_t *p, size_t len)
{
	const uint8_t *end = p + len, *run;

	while (p < end) {
		for (; p < end && is_zero(p); p += VMM_RAM_PAGE)
			;
		for (run = p; p < end && !is_zero(p); p += VMM_RAM_PAGE)
			;
		if (p > run && save(arg, run, (size_t)(p - run)) < 0)
			return -1;
	}
	return 0;
}

/* What the base holds of [from, to): its holes are not read, which would fill them. */
static int save_base(struct vmm_capture *c, uint64_t from, uint64_t to)
{
	const struct vmm_ram *ram = &c->vmm->ram;

	while (from < to) {
		off_t data = lseek(ram->base_fd, (off_t)from, SEEK_DATA), hole;
		uint64_t end;

		if (data < 0 && errno == ENXIO)
			return 0;
		hole = data < 0 ? -1 : lseek(ram->base_fd, data, SEEK_HOLE);
		if (hole < 0)
			return fail(c, "base");
		if ((uint64_t)data >= to)
			return 0;
		from = (uint64_t)data & ~(uint64_t)(VMM_RAM_PAGE - 1);
		end = ((uint64_t)hole + VMM_RAM_PAGE - 1) & ~(uint64_t)(VMM_RAM_PAGE - 1);
		if (end > to)
			end = to;
		if (save_nonzero(c, ram->base + from, end - from) < 0)
			return -1;
		from = end;
	}
	return 0;
}

/* A granule is the VM's own, a layer's, or the base's. */
static int capture_restored(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;
	size_t granules = (size_t)((ram->size + ram->granule - 1) / ram->granule), end;

	memset(c->dirty, 0, sizeof(c->dirty));
	if (vmm_scan_own(ram->base, ram->size, true, mark_dirty, c) < 0)
		return fail(c, "pagemap");
	for (size_t i = 0; i < granules; i++)
		c->dirty[i] |= ram->owner[i] != 0;
	for (size_t at = 0; at < granules; at = end) {
		uint64_t from = at * ram->granule, to;

		for (end = at + 1; end < granules && c->dirty[end] == c->dirty[at];)
			end++;
		to = end * ram->granule < ram->size ? end * ram->granule : ram->size;
		if ((c->dirty[at] ? save_nonzero(c, ram->base + from, to - from)
				  : save_base(c, from, to)) < 0)
			return -1;
	}
	return 0;
}

static int capture_whole(struct vmm_capture *c)
{
	const struct vmm_ram *ram = &c->vmm->ram;

	if (ram->base_fd >= 0)
		return capture_restored(c);
	if (vmm_scan_own(ram->base, ram->size, true, save_nonzero, c) < 0)
		return c->error ? -1 : fail(c, "pagemap");
	return 0;
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

static void *run(void *arg)
{
	struct vmm_capture *c = arg;
	uint64_t start = now_us();

	if (ftruncate(c->data_fd, (off_t)c->vmm->ram.size) < 0)
		fail(c, "data");
	else if (c->whole)
		capture_whole(c);
	else
		capture_delta(c);
	close_fds(c);
	vmm_lock(c->vmm);
	if (c->spoiled && !c->error) {
		errno = EBUSY;
		fail(c, "the VM ran meanwhile");
	}
	c->us = now_us() - start;
	c->state = CAPTURE_DONE;
	vmm_wake(c->vmm);
	vmm_unlock(c->vmm);
	return NULL;
}

static const char *refusal(const struct vmm *vmm, bool whole)
{
	struct vsock_stats st;

	vsock_dev_stats(vmm->dev, &st);
	if (vmm->capture.state != CAPTURE_IDLE)
		return "a capture is running";
	if (st.running)
		return "the VM is running";
	if (!vmm->ram.size)
		return "the size of the memory is not known";
	if (!vmm->ram.base)
		return "the guest has not started its vsock device yet";
	if (!whole && vmm->ram.base_fd < 0)
		return "the VM was booted, there is no base for a delta";
	return NULL;
}

const char *vmm_capture_start(struct vmm *vmm, bool whole, int data_fd, int extents_fd)
{
	struct vmm_capture *c = &vmm->capture;
	const char *why = refusal(vmm, whole);
	int r;

	if (why) {
		close(data_fd);
		if (extents_fd >= 0)
			close(extents_fd);
		return why;
	}
	c->vmm = vmm;
	c->whole = whole;
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

void vmm_capture_spoil(struct vmm_capture *c)
{
	c->spoiled = true;
}

void vmm_capture_end(struct vmm_capture *c)
{
	if (c->state != CAPTURE_IDLE)
		vmm_capture_collect(c);
}
