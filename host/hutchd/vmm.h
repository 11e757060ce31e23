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

#include "host/hutchd/launch_proto.h"
#include "host/hutchd/launcher.h"
#include "host/hutchd/template.h"
#include "host/hutchd/vmm_traits.h"
#include "protocol/error.h"
#include "protocol/limits.h"

struct vmm;

/*
 * A process named so that a recycled pid is not taken for it: start_time is field 22 of
 * /proc/PID/stat.
 */
struct vmm_process {
	pid_t pid; /* 0: none */
	uint64_t start_time;
};

/*
 * Guest memory that lies over a base: data holds pages at the offsets that they have in the guest's
 * RAM and is sparse elsewhere; extents says which count: an array of struct vmm_extent, ascending,
 * 4 KiB aligned. The in-VMM library checks it against the RAM.
 */
struct vmm_layer {
	int data_fd, extents_fd;
};
struct vmm_extent {
	uint64_t offset, length; /* bytes */
};

/*
 * Where a VM goes on from: a base (all of its RAM, holes are zeros), the layers over it, oldest
 * first, and the state of its devices (at most VMM_MAX_DEVICE_STATE bytes). All descriptors are
 * borrowed during vmm_start; those of memory must be open read-only (HUTCH_E_INVALID), since the
 * VMM gets them, and nobody may have their files open for writing (HUTCH_E_STATE): whoever got
 * into the VMM that wrote them could go on writing.
 */
#define VMM_MAX_LAYERS	     LAUNCH_MAX_LAYERS
#define VMM_MAX_DEVICE_STATE (1u << 20)
struct vmm_restore {
	int base_fd, device_fd;
	size_t nlayers;
	const struct vmm_layer *layers;
	bool stopped; /* stay stopped after the load; vmm_cont starts it */
};

/*
 * A writable disk: its base (raw), the overlays over it that are frozen, the lowest first, and the one that is the VM's own
 * (vmm_disk.h). All descriptors are borrowed during vmm_start, and as those of memory, but for the top's, which is open for
 * reading and writing.
 */
#define VMM_MAX_DISK_LAYERS (LAUNCH_MAX_DISK_LAYERS - 1)
struct vmm_disk {
	uint64_t bytes;
	int base_fd, top_fd;
	size_t nlayers;
	const int *layers;
	uint32_t top; /* its number */
};

struct vmm_config {
	char id[HUTCH_UUID_LEN + 1];
	int rundir_fd; /* borrowed; sockets vsock, qmp, ctl and console.log, vmm.log live there */
	const struct template *tpl; /* borrowed during vmm_start only */
	enum vmm_accel accel;	    /* KVM or TCG: resolved before */
	uint32_t memory_mib, vcpus, cid;
	uint32_t start;		 /* 0, or a number that no other start in this run directory has */
	uint32_t uid;		 /* its own, of the launcher's range; 0: the first one */
	uint64_t deadline_ms;	 /* dead-man's timer at the start; 0: none */
	uint64_t qmp_timeout_ms; /* for the VMM to answer QMP after the spawn */
	bool tied;		 /* it dies with the launcher: nobody could adopt it (probes) */
	const struct vmm_restore *restore; /* borrowed during vmm_start only; NULL: cold boot */
	const struct vmm_disk *disk;	   /* the same; NULL: none */
	bool forkable;			   /* others may be forked off it */
	struct vmm *
		fork_of; /* it is forked off this one, which is stopped and up, with what that has, or with the layers and devices of
				    restore, which must have the same base; disk is NULL */
	bool leave_stopped; /* vmm_adopt: one that is stopped stays so; else it is resumed */
};

struct vmm_callbacks {
	/* The VMM process exists: write it into the VM's record before anything else. */
	void (*spawned)(void *arg, const struct vmm_process *process);
	/*
	 * QMP answered and the version is known; the guest is running, or stopped if that was
	 * asked for. Restored: the load is complete. Not called when failed was.
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
 * behind). A run directory takes one VMM at a time, and a later one only under another number
 * (vmm_claim).
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
 * Stop the guest's CPUs and devices, and let them go on. Connections over its vsock device live on:
 * bytes wait in the sockets. done is called once, with err NULL when it is so; when the VMM ends
 * first, with an error before exited; after vmm_free, never. In any order with each other they are
 * carried out in the order of the calls. Only once up was called (HUTCH_E_STATE).
 */
typedef void vmm_done_fn(void *arg, const struct hutch_error *err);
void vmm_stop(struct vmm *v, vmm_done_fn *done, void *arg);
void vmm_cont(struct vmm *v, vmm_done_fn *done, void *arg);
/* Whether the guest was stopped when QMP last said so. */
bool vmm_is_stopped(const struct vmm *v);

/*
 * Save a VM that is stopped. data and extents are written by the VMM, which holds both until done
 * is called; device by this process. On failure what was written so far is of no use, and the VM is
 * unharmed. The errno of a failed write is in err->errnum (ENOSPC). done is called as that of
 * vmm_stop, and not before the VMM has let go of the descriptors, unless it does not answer. One
 * capture at a time, until done has returned.
 */
struct vmm_capture_to {
	int data_fd, extents_fd, device_fd; /* borrowed during the call; files, writable */
	bool flatten; /* a delta that stands for the layers from number `below` on as well */
	uint32_t below;
	bool whole; /* all memory that is not zero: a base. extents_fd is -1 then. Else what the VM
		       has written since its start or restore; only for one that was restored */
};
struct vmm_captured {
	uint64_t bytes;		       /* of memory that were written */
	uint64_t extents;	       /* 0 for a base */
	uint64_t device_us, memory_us; /* both run at once */
};
typedef void vmm_captured_fn(void *arg, const struct hutch_error *err,
			     const struct vmm_captured *captured);
void vmm_capture(struct vmm *v, const struct vmm_capture_to *to, vmm_captured_fn *done, void *arg);
/*
 * While the VM still runs, write to data what a vmm_capture without whole, into the same file,
 * would have to write while it stands still; that one then writes only what changed meanwhile. For
 * a VM that was restored. It may fail (before Linux 6.7 it does), and then nothing is gained and
 * nothing lost. It is a capture: one at a time.
 */
void vmm_capture_ahead(struct vmm *v, int data_fd, vmm_captured_fn *done, void *arg);

/*
 * Close the channels and forget it; the process is left as it is. One that was not told by spawned
 * yet is ended, since nobody could find it.
 */
void vmm_free(struct vmm *v);

/*
 * Nothing is left of a VM of an earlier broker but its run directory: what the launcher had made for it goes too. Before the
 * directory does.
 */
void vmm_tidy(struct launcher *launcher, const char *id, int rundir_fd);

/* Is this process alive and still the same one? */
bool vmm_process_alive(const struct vmm_process *p);

/*
 * Which process was started in this run directory, if the broker that asked for it died before it
 * wrote that down? The child names itself in <rundir>/vmm.pid before it becomes the VMM. 1: *out is
 * that process, dead or alive. 0: none was started under this number, and none can be any more (the
 * directory is marked). -1 with errno.
 */
int vmm_claim(int rundir_fd, uint32_t start, struct vmm_process *out);
/* That start is over, its process is gone: its file goes. */
void vmm_unclaim(int rundir_fd, uint32_t start);
#define VMM_PID_NAME 24u
void vmm_pid_name(char name[VMM_PID_NAME], uint32_t start);

#endif
