/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two logs in a VM's run directory: console.log (the guest's serial console) and vmm.log (the
 * VMM's stdout and stderr).
 *
 * The VMM appends to both files itself, so that nothing is lost when it, the broker, or both die,
 * and no reader can stall the guest. The in-VMM library bounds them: it frees the blocks at their
 * start (host/vsock/vmm_logs.h), so that a file holds its last 64 to 256 KiB behind a hole. Their
 * bytes are the guest's and are shown only through here.
 */
#ifndef HUTCH_HOST_CONSOLE_H
#define HUTCH_HOST_CONSOLE_H

#include <stddef.h>

#define CONSOLE_LOG "console.log"
#define VMM_LOG	    "vmm.log"

/*
 * The end of a log as text: at most size - 1 bytes, whole lines if there are any, without carriage
 * returns, trailing newlines and NULs; what is not printable ASCII, newline or UTF-8 is '?'.
 * Returns its length; 0 when there is nothing.
 */
size_t log_tail(int rundir_fd, const char *name, char *out, size_t size);
/* The last line of it that is not empty. */
size_t log_last_line(int rundir_fd, const char *name, char *out, size_t size);

#endif
