/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog of a cold boot. A guest's kernel can hang before it says anything: one that loses its only timer spins, or sleeps
 * for ever. What a boot has used of the CPU tells that from a busy host, whatever the clock says: it is looked at every 10 s,
 * and a VMM that used more than any boot needs, or next to nothing since the last look, is ended and started again. Once: a
 * second hang is told at the deadline.
 *
 * And the other start of a VMM in the same boot: of one that was to be forked off a zygote, and was not.
 */
#include <errno.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/process.h"
#include "host/hutchd/vm_boot_priv.h"
#include "host/hutchd/zygote.h"

#define LOOK_S	 10
#define MOST_MS	 30000u /* ten times what a boot takes under emulation */
#define LEAST_MS 50u

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	struct vm_boot *boot = arg;
	struct vm *vm = boot->vm;
	struct process_stat st;
	uint64_t since;

	(void)fd;
	(void)what;
	if (boot->control || process_read(vm->r.process.pid, &st) < 0)
		return;
	since = st.cpu_ms - boot->seen_cpu_ms;
	boot->seen_cpu_ms = st.cpu_ms;
	if (st.cpu_ms < MOST_MS && since >= LEAST_MS) {
		loop_timer(&boot->watch, LOOK_S * 1000);
		return;
	}
	log_warn(
		vm->object,
		"its boot hangs: no hello after %llu ms of CPU time, %llu of them in the last %u s; it is started again",
		(unsigned long long)st.cpu_ms, (unsigned long long)since, LOOK_S);
	boot->again = true;
	vmm_kill(vm->vmm);
}

void vm_boot_watch(struct vm_boot *boot)
{
	const struct vm *vm = boot->vm;

	/* What a first boot wrote to its own disk would be there in the second. */
	if (boot->origin.im || boot->watched || vm->r.disk_mib)
		return;
	boot->watched = true;
	boot->seen_cpu_ms = 0;
	event_assign(&boot->watch, vm->b->loop.base, -1, 0, on_look, boot);
	loop_timer(&boot->watch, LOOK_S * 1000);
}

void vm_boot_unwatch(struct vm_boot *boot)
{
	if (boot->watched)
		event_del(&boot->watch);
}

/* With another VMM, in the same boot. */
static void start_again(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;

	hello_close(&boot->port);
	vm_forget_vmm(vm);
	vm_next_start(vm);
	if (!boot->wakes && vm->state != VM_STARTING)
		vm_state_set(&vm->state, VM_STARTING, vm->object);
	if (vm_save(vm) < 0)
		vm_boot_fail(boot, HUTCH_E_IO, errno, "its record cannot be written");
	else
		vm_boot_spawn(boot);
}

bool vm_boot_again(struct vm *vm)
{
	struct vm_boot *boot = vm->boot;

	if (!boot || !boot->again || vm->state >= VM_STOPPING)
		return false;
	boot->again = false;
	start_again(boot);
	return true;
}

bool vm_boot_unforked(struct vm *vm, const char *why)
{
	struct vm_boot *boot = vm->boot;

	if (!boot || !vm->r.zygote || boot->control || vm->state >= VM_STOPPING)
		return false;
	boot->restores = true;
	zygote_failed(vm->b, vm, why);
	if (!boot->wakes)
		vm->r.generation = boot->origin.im->generation + 1;
	start_again(boot);
	return true;
}
