/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times to live. A deadline is a point on CLOCK_BOOTTIME (a suspended host counts, a set clock does not), kept in the
 * record; one timerfd is armed for the earliest of all. Behind it the VMM's own dead-man's timer runs VM_GRACE_MS longer, for
 * the case that no broker lives.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"

void vm_ttl_rearm(struct broker *b)
{
	struct itimerspec at = {.it_value = {0, 0}};
	uint64_t first = 0;
	const struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next) {
		if (vm->state >= VM_STOPPING || vm->r.deadline_ms == 0)
			continue;
		if (first == 0 || vm->r.deadline_ms < first)
			first = vm->r.deadline_ms;
	}
	at.it_value.tv_sec = (time_t)(first / 1000);
	at.it_value.tv_nsec = (long)(first % 1000) * 1000000;
	if (timerfd_settime(b->ttl_fd, TFD_TIMER_ABSTIME, &at, NULL) < 0)
		log_errno(LOG_LEVEL_ERROR, "broker", "cannot arm the TTL timer");
}

static void on_ttl(evutil_socket_t fd, short what, void *arg)
{
	struct broker *b = arg;
	uint64_t expirations, now = clock_boottime_ms();
	struct vm *vm, *next;
	char reason[64];

	(void)what;
	if (read((int)fd, &expirations, sizeof(expirations)) < 0)
		return;
	for (vm = TAILQ_FIRST(&b->vms); vm; vm = next) {
		next = TAILQ_NEXT(vm, next);
		if (vm->state >= VM_STOPPING || vm->r.deadline_ms == 0 || vm->r.deadline_ms > now)
			continue;
		snprintf(reason, sizeof(reason), "its ttl of %llu ms passed",
			 (unsigned long long)vm->r.ttl_ms);
		vm_end(vm, reason);
	}
	vm_ttl_rearm(b);
}

int vm_ttl_init(struct broker *b)
{
	b->ttl_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (b->ttl_fd < 0)
		return -1;
	event_assign(&b->ttl, b->loop.base, b->ttl_fd, EV_READ | EV_PERSIST, on_ttl, b);
	return event_add(&b->ttl, NULL);
}

void vm_ttl_free(struct broker *b)
{
	if (b->ttl_fd >= 0)
		event_del(&b->ttl);
	fd_close(&b->ttl_fd);
}

void vm_ttl_set(struct vm *vm, uint64_t ttl_ms)
{
	vm->r.ttl_ms = ttl_ms;
	vm->r.deadline_ms = clock_boottime_ms() + ttl_ms;
	if (vm->vmm)
		vmm_renew(vm->vmm, ttl_ms + VM_GRACE_MS);
	vm_ttl_rearm(vm->b);
}

uint64_t vm_ttl_left(const struct vm *vm)
{
	uint64_t now = clock_boottime_ms();

	return vm->r.deadline_ms > now ? vm->r.deadline_ms - now : 0;
}
