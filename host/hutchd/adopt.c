/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an earlier broker left.
 *
 * A record at step running, capturing or paused whose process lives is adopted; one at parking, parked or waking is parked from here
 * on, without a process. Everything else is undone: a VM whose creation was not
 * finished (its creator is gone), one whose end had begun, one past its deadline, one that died meanwhile, and a directory
 * without a usable record. A process is killed only by pid and start time, or when it carries the VM's marker (sweep.h); where
 * the record has no pid yet, the run directory itself says whether one was started (vmm_claim).
 */
#include "host/hutchd/adopt.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/process.h"
#include "host/hutchd/sweep.h"
#include "host/hutchd/vm.h"

#define KILL_WAIT_MS 5000

/* Blocks until it is gone: the loop does not run yet. */
static void kill_process(const struct vmm_process *process, const char *object)
{
	int fd = process->pid > 0 ? process_open(process->pid, process->start_time) : -1;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd < 0)
		return;
	log_info(object, "killing its VMM, pid %ld", (long)process->pid);
	if (process_signal(fd, SIGKILL) < 0 || poll(&p, 1, KILL_WAIT_MS) != 1)
		log_errno(LOG_LEVEL_ERROR, object, "pid %ld does not die", (long)process->pid);
	fd_close(&fd);
}

/* End whatever runs in it, or is about to. */
static void end_processes(struct broker *b, const char *id, int rundir_fd, uint32_t start,
			  const struct vmm_process *known, const char *object)
{
	struct vmm_process process = *known;

	if (process.pid == 0 && vmm_claim(rundir_fd, start, &process) < 0)
		log_errno(LOG_LEVEL_WARN, object, "cannot tell whether a VMM was started");
	kill_process(&process, object);
	if (sweep_vm(id, process.pid, false, NULL, NULL) < 0)
		log_errno(LOG_LEVEL_ERROR, object, "cannot end its processes");
	vmm_tidy(b->launcher, id, rundir_fd);
}

/* The same, and remove it. r NULL: nothing is known of it. */
static void undo(struct broker *b, const char *id, int rundir_fd, const struct vm_record *r,
		 const char *why)
{
	const struct vmm_process none = {.pid = 0};
	char object[HUTCH_UUID_LEN + 4];

	snprintf(object, sizeof(object), "vm %s", id);
	log_info(object, "not adopted: %s", why);
	end_processes(b, id, rundir_fd, r ? r->start : 0, r ? &r->process : &none, object);
	if (tree_remove(b->vms_fd, id) < 0)
		log_errno(LOG_LEVEL_ERROR, object, "cannot remove its run directory");
}

/* Or on its way there, or from there. */
static bool is_parked(const struct vm_record *r)
{
	return r->step == STEP_PARKING || r->step == STEP_PARKED || r->step == STEP_WAKING;
}

/* A VMM that lives has lost: what was captured is what there is of the VM. */
static int adopt_parked(struct vm *vm, struct hutch_error *err)
{
	if (vm->r.step != STEP_PARKED)
		end_processes(vm->b, vm->r.id, vm->rundir_fd, vm->r.start, &vm->r.process,
			      vm->object);
	return vm_park_adopt(vm, err);
}

/* NULL: it is to be adopted. */
static const char *why_not(const struct broker *b, const struct vm_record *r, const char *id)
{
	if (strcmp(r->id, id) != 0)
		return "its record is another VM's";
	if (r->step == STEP_STOPPING)
		return "its end had begun";
	if (r->step < STEP_RUNNING)
		return "its creation was not finished";
	if (strcmp(r->host_boot_id, b->host_boot_id) != 0)
		return "the host was restarted";
	if (!is_parked(r) && !vmm_process_alive(&r->process))
		return "it ended while no broker lived";
	if (r->deadline_ms <= clock_boottime_ms())
		return "its TTL passed while no broker lived";
	return NULL;
}

/* Takes over fd. */
static void adopt_one(struct broker *b, const char *id, int fd)
{
	struct hutch_error err;
	struct vm_record r;
	const char *why;
	struct vm *vm;

	hutch_error_clear(&err);
	if (vm_record_load(&r, fd, &err) < 0) {
		undo(b, id, fd, NULL, err.message);
		fd_close(&fd);
		return;
	}
	why = why_not(b, &r, id);
	vm = why ? NULL : vm_new(b, &r, fd);
	if (!vm) {
		undo(b, id, fd, &r, why ? why : "out of memory");
		vm_record_free(&r);
		fd_close(&fd);
		return;
	}
	if ((is_parked(&vm->r) ? adopt_parked(vm, &err) : vm_adopt(vm, &err)) < 0) {
		undo(b, id, vm->rundir_fd, &vm->r, err.message);
		vm_free(vm);
		return;
	}
	log_info(vm->object, "adopting, pid %ld, %llu ms left", (long)vm->r.process.pid,
		 (unsigned long long)vm_ttl_left(vm));
}

static bool is_id(const char *name)
{
	uuid_t id;

	return strlen(name) == HUTCH_UUID_LEN && uuid_parse(name, id) == 0;
}

void adopt_all(struct broker *b)
{
	int copy = dir_open(b->vms_fd, ".");
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	const struct dirent *e;

	if (!dir) {
		log_errno(LOG_LEVEL_ERROR, "broker", "cannot read the VMs' directory");
		fd_close(&copy);
		return;
	}
	while ((e = readdir(dir)) != NULL) {
		int fd;

		if (e->d_name[0] == '.')
			continue;
		fd = is_id(e->d_name) ? dir_open(b->vms_fd, e->d_name) : -1;
		if (fd < 0)
			log_warn("broker", "left alone in the VMs' directory: %s", e->d_name);
		else
			adopt_one(b, e->d_name, fd);
	}
	closedir(dir);
	vm_ttl_rearm(b);
}
