/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VMM process and its channels, as the broker sees it: spawned through the launcher or adopted
 * from a record, watched through a pidfd, talked to over QMP and the in-VMM library's control
 * socket.
 *
 * Everything is asynchronous on one event_base. Callbacks run from the loop, never from inside a
 * call of this header, and never after vmm_free. A callback may call vmm_free on its own vmm.
 */
#ifndef HUTCH_HOST_VMM_H
#define HUTCH_HOST_VMM_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/hutchd/launcher.h"
#include "host/hutchd/template.h"
#include "protocol/error.h"
#include "protocol/limits.h"

struct vmm;

enum vmm_accel { ACCEL_AUTO = 0, ACCEL_KVM, ACCEL_TCG };
const char *vmm_accel_name(enum vmm_accel a); /* "auto", "kvm", "tcg" */

/*
 * A process named so that a recycled pid is not taken for it: start_time is field 22 of
 * /proc/PID/stat.
 */
struct vmm_process {
	pid_t pid; /* 0: none */
	uint64_t start_time;
};

struct vmm_config {
	char id[HUTCH_UUID_LEN + 1];
	int rundir_fd; /* borrowed; sockets vsock, qmp, ctl and console.log, vmm.log live there */
	const struct template *tpl; /* borrowed during vmm_start only */
	enum vmm_accel accel;	    /* KVM or TCG: resolved before */
	uint32_t memory_mib, vcpus, cid;
	uint64_t deadline_ms;	 /* dead-man's timer at the start; 0: none */
	uint64_t qmp_timeout_ms; /* for the VMM to answer QMP after the spawn */
	bool tied;		 /* it dies with the launcher: nobody could adopt it (probes) */
};

struct vmm_callbacks {
	/* The VMM process exists: write it into the VM's record before anything else. */
	void (*spawned)(void *arg, const struct vmm_process *process);
	/*
	 * QMP answered and the version is known; the guest is running. Not called when failed was.
	 */
	void (*up)(void *arg, const char *version, uint64_t spawn_us, uint64_t qmp_us);
	/*
	 * It could not be spawned, or did not answer QMP in time. The message ends with the tail of
	 * vmm.log. The process, if any, was killed and is gone when this is called. Terminal: only
	 * vmm_free may follow.
	 */
	void (*failed)(void *arg, const struct hutch_error *err);
	/*
	 * The process is gone, asked for or not. reason is a clause: "the guest powered off",
	 * "killed by signal 9", "exit status 1: <last line of vmm.log>", "guest panic". Terminal.
	 */
	void (*exited)(void *arg, const char *reason);
};

/*
 * Bind the sockets and ask the launcher. NULL with err when even that failed (nothing is left
 * behind). A run directory takes one VMM in its life (vmm_claim).
 */
struct vmm *vmm_start(struct event_base *base, struct launcher *launcher,
		      const struct vmm_config *config, const struct vmm_callbacks *cb, void *arg,
		      struct hutch_error *err);

/*
 * Take over a VMM of an earlier broker. NULL with HUTCH_E_NOT_FOUND when that process is gone (or
 * is another one by now). up is called when QMP answered; failed when it does not within
 * qmp_timeout_ms (the process is then killed). tpl, accel, memory, vcpus are not used.
 */
struct vmm *vmm_adopt(struct event_base *base, struct launcher *launcher,
		      const struct vmm_config *config, const struct vmm_process *process,
		      const struct vmm_callbacks *cb, void *arg, struct hutch_error *err);

/* SIGKILL through the pidfd; exited follows. Harmless when it is gone. */
void vmm_kill(struct vmm *v);
/*
 * Renew the dead-man's timer over the control socket. Failures are logged: the pidfd tells of a
 * death.
 */
void vmm_renew(struct vmm *v, uint64_t deadline_ms);
struct vmm_process vmm_get_process(const struct vmm *v);
/*
 * Last lines of the guest's console, at most size - 1 bytes, control characters but newline
 * replaced.
 */
size_t vmm_console_tail(const struct vmm *v, char *out, size_t size);
/*
 * Close the channels and forget it; the process is left as it is. One that was not told by spawned
 * yet is ended, since nobody could find it.
 */
void vmm_free(struct vmm *v);

/* Is this process alive and still the same one? */
bool vmm_process_alive(const struct vmm_process *p);

/*
 * Which process was started in this run directory, if the broker that asked for it died before it
 * wrote that down? The child names itself in <rundir>/vmm.pid before it becomes the VMM. 1: *out is
 * that process, dead or alive. 0: none was started, and none can be any more (the directory is
 * marked). -1 with errno.
 */
int vmm_claim(int rundir_fd, struct vmm_process *out);

#endif
