/* SPDX-License-Identifier: Apache-2.0 */
/* VMM processes found by what a run directory or a record says of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_proto.h"
#include "host/hutchd/process.h"
#include "host/hutchd/vmm.h"

bool vmm_process_alive(const struct vmm_process *p)
{
	int fd = p->pid > 0 ? process_open(p->pid, p->start_time) : -1;
	bool alive = fd >= 0;

	fd_close(&fd);
	return alive;
}

void vmm_pid_name(char name[VMM_PID_NAME], uint32_t start)
{
	if (start == 0)
		snprintf(name, VMM_PID_NAME, VMM_PID_FILE);
	else
		snprintf(name, VMM_PID_NAME, VMM_PID_FILE ".%u", start);
}

void vmm_unclaim(int rundir_fd, uint32_t start)
{
	char name[VMM_PID_NAME];

	vmm_pid_name(name, start);
	unlinkat(rundir_fd, name, 0);
}

int vmm_claim(int rundir_fd, uint32_t start, struct vmm_process *out)
{
	char name[VMM_PID_NAME];
	/* In the file's own place: a child that comes later finds it taken and gives up. */
	unsigned long long start_time;
	char *text;
	size_t len;
	long pid;
	int n, fd;

	vmm_pid_name(name, start);
	fd = openat(rundir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd >= 0) {
		fd_close(&fd);
		return 0;
	}
	if (errno != EEXIST)
		return -1;
	text = file_read(rundir_fd, name, 128, &len);
	if (!text)
		return -1;
	n = sscanf(text, "%ld %llu", &pid, &start_time);
	free(text);
	if (n != 2)
		return 0; /* the mark of an earlier call */
	out->pid = (pid_t)pid;
	out->start_time = start_time;
	return 1;
}
