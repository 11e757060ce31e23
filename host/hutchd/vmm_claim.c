/* SPDX-License-Identifier: Apache-2.0 */
/* VMM processes found by what a run directory or a record says of them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

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

int vmm_claim(int rundir_fd, struct vmm_process *out)
{
	/* In the file's own place: a child that comes later finds it taken and gives up. */
	int fd = openat(rundir_fd, VMM_PID_FILE,
			O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	unsigned long long start;
	char *text;
	size_t len;
	long pid;
	int n;

	if (fd >= 0) {
		fd_close(&fd);
		return 0;
	}
	if (errno != EEXIST)
		return -1;
	text = file_read(rundir_fd, VMM_PID_FILE, 128, &len);
	if (!text)
		return -1;
	n = sscanf(text, "%ld %llu", &pid, &start);
	free(text);
	if (n != 2)
		return 0; /* the mark of an earlier call */
	out->pid = (pid_t)pid;
	out->start_time = start;
	return 1;
}
