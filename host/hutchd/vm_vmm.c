/* SPDX-License-Identifier: Apache-2.0 */
/* What a VM's VMM tells, handed on to the part of the VM that waits for it. */
#include <stdio.h>

#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"
#include "host/hutchd/vm_jail.h"
#include "host/hutchd/vmm_disk.h"

void vm_forget_vmm(struct vm *vm)
{
	if (vm->vmm)
		vmm_free(vm->vmm);
	vm->vmm = NULL;
	if (vm->r.process.pid > 0)
		vmm_unclaim(vm->rundir_fd, vm->r.start);
	vm->r.process = (struct vmm_process){.pid = 0};
	vm->up = vm->silent = false;
	vm->missed = 0;
}

void vm_next_start(struct vm *vm)
{
	vm->r.start++;
	vm->r.vmm_uid = 0;
	vm_jail_fill(&vm->r, vm->b);
}

static void on_spawned(void *arg, const struct vmm_process *process)
{
	struct vm *vm = arg;

	vm->r.process = *process;
	if (vm->state >= VM_STOPPING)
		return;
	log_info(vm->object, "VMM is pid %ld", (long)process->pid);
	if (vm->boot)
		vm_boot_spawned(vm);
}

static void on_up(void *arg, const char *version, uint64_t spawn_us, uint64_t qmp_us)
{
	struct vm *vm = arg;

	struct hutch_error err;

	vm->up = true;
	/* It has opened what it was given, and needs no second descriptor to it. */
	if (vm->r.disk_mib)
		vmm_disk_settle(vm->vmm, vm->r.disk_top);
	hutch_error_clear(&err);
	if (vm->thaw_wanted && vm->state == VM_PAUSED && vm_thaw_start(vm, &err) < 0)
		vm_end(vm, err.message);
	if (vm->state >= VM_STOPPING || !vm->boot)
		return;
	snprintf(vm->r.vmm_version, sizeof(vm->r.vmm_version), "%s", version);
	vm->r.spawn_us = spawn_us;
	vm->r.qmp_us = qmp_us;
	vm_boot_up(vm);
}

/* Of one that was to be parked, or was woken and did not come up. */
static void on_parked_gone(struct vm *vm, const struct hutch_error *err)
{
	if (vm_boot_unforked(vm, err->message))
		return;
	if (vm->boot)
		vm_boot_failed(vm, err);
	else
		vm_park_rest(vm);
}

static void on_failed(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (vm->vmm)
		vmm_free(vm->vmm);
	vm->vmm = NULL;
	if (vm->state == VM_PARKED) {
		on_parked_gone(vm, err);
		return;
	}
	vm->r.process.pid = 0;
	if (vm->state >= VM_STOPPING)
		vm_bury(vm);
	else if (vm_boot_unforked(vm, err->message))
		return;
	else if (vm->boot)
		vm_boot_failed(vm, err);
	else
		vm_end(vm, err->message);
}

static void on_exited(void *arg, const char *reason)
{
	struct vm *vm = arg;
	struct hutch_error err;

	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_BOOT_FAILED, 0, "%.500s", reason);
	if (vm->state == VM_PARKED) {
		vmm_free(vm->vmm);
		vm->vmm = NULL;
		on_parked_gone(vm, &err);
		return;
	}
	if (vm_boot_again(vm) || vm_boot_unforked(vm, reason))
		return;
	if (vm->boot && vm->state < VM_STOPPING) {
		vm->r.process.pid = 0;
		vm_boot_failed(vm, &err);
	} else if (!vm->reason[0]) {
		snprintf(vm->reason, sizeof(vm->reason), "%.500s", reason);
	}
	vm_bury(vm);
}

const struct vmm_callbacks vm_vmm_callbacks = {.spawned = on_spawned,
					       .up = on_up,
					       .failed = on_failed,
					       .exited = on_exited};
