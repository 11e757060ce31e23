/* SPDX-License-Identifier: Apache-2.0 */
#include "host/vsock/vmm_reload.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_scan.h"

#define FLUSH_CODE 64u	/* bytes of tb_flush that are looked at */
#define CONTEXT	   256u /* more than tb_ctx has */

/* QEMU's YankInstance; a load of devices counts as the end of a migration, which takes back what was registered. */
struct yank_instance {
	int type;
	char *unused;
};
#define YANK_MIGRATION 2

static struct {
	void (*invalidate)(uint64_t start, uint64_t end); /* ram_addr_t */
	uint64_t (*ram_addr)(void *host);
	bool (*yank_register)(const struct yank_instance *instance, void **errp);
	atomic_uint *flushes;
	atomic_bool pending;		   /* from the reload until it runs */
	uint8_t changed[VMM_RAM_GRANULES]; /* it may not be what it is to be */
} qemu;

/* What tb_flush loads of tb_ctx: mov disp32(%rip), %r32. */
static atomic_uint *find_flushes(const uint8_t *code, uint8_t *context)
{
	for (size_t i = 0; i + 6 <= FLUSH_CODE; i++) {
		uint8_t *at;
		int32_t disp;

		if (code[i] != 0x8b || (code[i + 1] & 0xc7) != 0x05)
			continue;
		memcpy(&disp, code + i + 2, sizeof(disp));
		at = (uint8_t *)(uintptr_t)((uintptr_t)(code + i + 6) + (uintptr_t)(intptr_t)disp);
		if (at > context && at < context + CONTEXT)
			return (atomic_uint *)(void *)at;
	}
	return NULL;
}

static bool find_qemu(void)
{
	static const char *const names[] = {"tb_invalidate_phys_range", "qemu_ram_addr_from_host",
					    "yank_register_instance", "tb_flush", "tb_ctx"};
	void *found[5];

	for (int i = 0; i < 5; i++) {
		found[i] = dlsym(RTLD_DEFAULT, names[i]);
		if (!found[i])
			return false;
	}
	memcpy(&qemu.invalidate, &found[0], sizeof(found[0]));
	memcpy(&qemu.ram_addr, &found[1], sizeof(found[1]));
	memcpy(&qemu.yank_register, &found[2], sizeof(found[2]));
	qemu.flushes = find_flushes(found[3], found[4]);
	return qemu.flushes != NULL;
}

/* Where [p, p + length) differs from what it is going to be. */
static void tell_changes(uint8_t *p, const uint8_t *to, size_t length)
{
	uint64_t at = qemu.ram_addr(p);
	size_t end;

	for (size_t from = 0; from < length; from = end) {
		bool differs = memcmp(p + from, to + from, VMM_RAM_PAGE) != 0;

		end = from + VMM_RAM_PAGE;
		while (differs && end < length && memcmp(p + end, to + end, VMM_RAM_PAGE) != 0)
			end += VMM_RAM_PAGE;
		if (differs)
			qemu.invalidate(at + from, at + end);
	}
}

static int reload_run(struct vmm_ram *ram, size_t first, size_t count)
{
	struct vmm_extent e = vmm_ram_extent(ram, first, count);
	void *to = vmm_ram_map_copy(ram, first, count);

	if (!to)
		return -1;
	tell_changes(ram->base + e.offset, to, e.length);
	munmap(to, e.length);
	return vmm_ram_map(ram, first, count);
}

static int mark_own(void *arg, const uint8_t *p, size_t len)
{
	vmm_ram_mark(arg, qemu.changed, p, len, 1);
	return 0;
}

/* What the zygote has of its own or from a layer, and what is to come from one. */
static int find_changed(struct vmm_ram *ram, size_t granules)
{
	for (size_t i = 0; i < granules; i++)
		qemu.changed[i] = ram->owner[i] != 0;
	memset(ram->owner, 0, sizeof(ram->owner));
	if (vmm_scan(ram->base, ram->size, VMM_SCAN_OWN, mark_own, ram) < 0)
		return -1;
	for (unsigned i = 0; i < ram->layers; i++)
		if (vmm_ram_take_layer(ram, i) < 0)
			return -1;
	for (size_t i = 0; i < granules; i++)
		qemu.changed[i] |= ram->owner[i] != 0;
	return 0;
}

int vmm_reload(struct vmm_ram *ram, const int *fds, unsigned layers)
{
	const struct yank_instance migration = {.type = YANK_MIGRATION};
	size_t granules = vmm_ram_granules(ram), end;

	memcpy(ram->layer_fds, fds, 2 * (size_t)layers * sizeof(*fds));
	ram->layers = layers;
	if (!find_qemu()) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (find_changed(ram, granules) < 0)
		return -1;
	for (size_t at = 0; at < granules; at = end) {
		end = at + 1;
		while (end < granules && qemu.changed[end] == qemu.changed[at] &&
		       vmm_ram_same_source(ram, at, end))
			end++;
		if (qemu.changed[at] && reload_run(ram, at, end - at) < 0)
			return -1;
	}
	vmm_ram_close_layers(ram);
	qemu.yank_register(&migration, NULL);
	atomic_store(&qemu.pending, true);
	return 0;
}

void vmm_reload_closing(void)
{
	if (atomic_load_explicit(&qemu.pending, memory_order_relaxed))
		atomic_fetch_add(qemu.flushes, 1);
}

void vmm_reload_over(void)
{
	atomic_store(&qemu.pending, false);
}
