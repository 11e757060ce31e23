/* SPDX-License-Identifier: Apache-2.0 */
/* The VMM's two logs, kept small. */
#include "host/vsock/vmm_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A serial port under TCG takes some 300 KB/s, so that a flood overshoots by about 1.5 MB. */
#define PERIOD_S 5
#define BLOCK	 4096u

void vmm_log_cut(int fd, uint64_t *freed)
{
	struct stat st;
	uint64_t size, end;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	size = (uint64_t)st.st_size;
	if (size < *freed)
		*freed = 0; /* somebody emptied it */
	if (size - *freed <= VMM_LOG_MAX)
		return;
	end = (size - VMM_LOG_KEEP) & ~(uint64_t)(BLOCK - 1);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)*freed,
		      (off_t)(end - *freed)) == 0)
		*freed = end;
	else if (errno == EOPNOTSUPP && ftruncate(fd, 0) == 0)
		*freed = 0;
}

static void logs_fire(struct loop_source *src, uint32_t events)
{
	struct vmm_logs *logs = container_of(src, struct vmm_logs, timer);
	uint64_t expirations;

	(void)events;
	if (read(src->fd, &expirations, sizeof(expirations)) < 0)
		return;
	for (int i = 0; i < VMM_LOGS; i++)
		vmm_log_cut(logs->log[i].fd, &logs->log[i].freed);
}

int vmm_logs_open(struct vmm_logs *logs, struct loop *loop, const int fds[VMM_LOGS])
{
	const struct itimerspec period = {.it_value = {.tv_sec = PERIOD_S},
					  .it_interval = {.tv_sec = PERIOD_S}};

	logs->loop = loop;
	for (int i = 0; i < VMM_LOGS; i++) {
		logs->log[i].fd = fds[i];
		logs->log[i].freed = 0;
	}
	logs->timer = (struct loop_source){
		.fire = logs_fire,
		.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
	};
	if (logs->timer.fd < 0 || timerfd_settime(logs->timer.fd, 0, &period, NULL) < 0)
		return -1;
	return loop_add(loop, &logs->timer, EPOLLIN);
}

void vmm_logs_close(struct vmm_logs *logs)
{
	if (logs->timer.fd < 0)
		return;
	loop_del(logs->loop, &logs->timer);
	close(logs->timer.fd);
	logs->timer.fd = -1;
}
