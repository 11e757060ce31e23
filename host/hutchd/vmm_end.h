/* SPDX-License-Identifier: Apache-2.0 */
/* Why a VMM ended, as a clause for people. */
#ifndef HUTCH_HOST_VMM_END_H
#define HUTCH_HOST_VMM_END_H

#include <stdbool.h>
#include <stddef.h>

struct vmm_end {
	int rundir_fd;
	const char *shutdown; /* the reason in QMP's SHUTDOWN event, or empty */
	bool killed;	      /* we killed it */
	int wait_status;      /* waitpid(2), or LAUNCH_STATUS_UNKNOWN */
	bool oom;	      /* the kernel ended it at its ceiling of memory */
};

void vmm_describe_end(const struct vmm_end *end, char *out, size_t size);

#endif
