/* SPDX-License-Identifier: Apache-2.0 */
/* The dead-man's timer. */
#include "host/vsock/vmm_deadline.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "host/vsock/vmm.h"

static void deadline_fire(struct loop_source *src, uint32_t events)
{
	uint64_t expirations;

	(void)events;
	/*
	 * Renewed in the same pass, before this event was looked at: the timer has nothing to read.
	 */
	if (read(src->fd, &expirations, sizeof(expirations)) < 0)
		return;
	vmm_log("the deadline has passed, the VM ends");
	_exit(VMM_DEADLINE_EXIT);
}

int vmm_deadline_open(struct vmm_deadline *d, struct loop *loop)
{
	d->loop = loop;
	d->timer = (struct loop_source){
		.fire = deadline_fire,
		.fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK),
	};
	return d->timer.fd < 0 ? -1 : loop_add(loop, &d->timer, EPOLLIN);
}

void vmm_deadline_close(struct vmm_deadline *d)
{
	if (d->timer.fd < 0)
		return;
	loop_del(d->loop, &d->timer);
	close(d->timer.fd);
	d->timer.fd = -1;
}

int vmm_deadline_set(struct vmm_deadline *d, uint64_t ms)
{
	struct itimerspec its = {
		.it_value = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000},
	};

	if (ms > VMM_DEADLINE_MAX_MS) {
		errno = ERANGE;
		return -1;
	}
	return timerfd_settime(d->timer.fd, 0, &its, NULL);
}

uint64_t vmm_deadline_left(const struct vmm_deadline *d)
{
	struct itimerspec its;

	if (timerfd_gettime(d->timer.fd, &its) < 0)
		return 0;
	return (uint64_t)its.it_value.tv_sec * 1000 +
	       (uint64_t)(its.it_value.tv_nsec + 999999) / 1000000;
}
