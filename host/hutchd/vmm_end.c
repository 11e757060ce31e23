/* SPDX-License-Identifier: Apache-2.0 */
/* Why a VMM ended: what it said over QMP, else what the kernel says, else that it is gone. */
#include "host/hutchd/vmm_end.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "host/hutchd/console.h"
#include "host/hutchd/launch_proto.h"

#define PANIC_BYTES 16384u /* a panic's text and trace */

static bool console_shows_panic(int rundir_fd)
{
	char tail[PANIC_BYTES];

	log_tail(rundir_fd, CONSOLE_LOG, tail, sizeof(tail));
	return strstr(tail, "Kernel panic - not syncing") != NULL;
}

/* Of QEMU's qapi/run-state.json, ShutdownCause. */
static const char *shutdown_reason(const struct vmm_end *end)
{
	static const struct {
		const char *cause, *reason;
	} reasons[] = {
		{"guest-shutdown", "the guest powered off"},
		{"guest-panic", "guest panic"},
		{"host-qmp-quit", "ended over QMP"},
		{"host-signal", "the VMM was asked to end by a signal"},
	};

	/* The kernel parameters make a panic a reset, and a reset ends the VMM. */
	if (strcmp(end->shutdown, "guest-reset") == 0)
		return console_shows_panic(end->rundir_fd) ? "guest panic" : "the guest rebooted";
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (strcmp(end->shutdown, reasons[i].cause) == 0)
			return reasons[i].reason;
	return NULL;
}

void vmm_describe_end(const struct vmm_end *end, char *out, size_t size)
{
	const char *reason = shutdown_reason(end);
	char line[256];

	if (reason) {
		snprintf(out, size, "%s", reason);
	} else if (end->oom && !end->killed) {
		snprintf(out, size, "the VMM took more memory than its ceiling");
	} else if (end->wait_status == LAUNCH_STATUS_UNKNOWN) {
		snprintf(out, size, "%s", end->killed ? "killed" : "the VMM process ended");
	} else if (WIFSIGNALED(end->wait_status)) {
		const char *name = sigabbrev_np(WTERMSIG(end->wait_status));

		snprintf(out, size, "killed by signal %d (SIG%s)", WTERMSIG(end->wait_status),
			 name ? name : "?");
	} else {
		log_last_line(end->rundir_fd, VMM_LOG, line, sizeof(line));
		snprintf(out, size, "exit status %d%s%s", WEXITSTATUS(end->wait_status),
			 line[0] ? ": " : "", line);
	}
}
