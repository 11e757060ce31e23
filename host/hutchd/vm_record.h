/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a VM outlives the broker: <state>/vm/<id>/record.json, written beside and renamed before each step is
 * taken, so that a broker that is killed at any instant leaves a record that says what to finish or undo.
 *
 *   step      meaning for adoption
 *   spawning  a VMM may have been started: end what there is
 *   booting   its process is in the record: end it, for its creator is gone
 *   running   adopt it
 *   capturing adopt it; it may be stopped and its agent held: let both go on, remove what was captured
 *   paused    adopt it as it is: stopped, its agent held
 *   parking   what is captured is whole: end its process, and take that
 *   parked    it has no process: it is what its image is
 *   waking    a process may have been started on the image, and nobody used it: end it; it is parked
 *   stopping  finish ending it
 *
 * It is not fsynced: it is for a broker's end, not the host's, which no VM outlives.
 */
#ifndef HUTCH_HOST_VM_RECORD_H
#define HUTCH_HOST_VM_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "host/hutchd/vmm.h"
#include "protocol/msg_vm.h"

#define VM_RECORD_FILE "record.json"

enum vm_step {
	STEP_SPAWNING,
	STEP_BOOTING,
	STEP_RUNNING,
	STEP_CAPTURING,
	STEP_PAUSED,
	STEP_PARKING,
	STEP_PARKED,
	STEP_WAKING,
	STEP_STOPPING,
	VM_STEPS
};
const char *vm_step_name(enum vm_step s);

enum vm_boot_mode { BOOT_COLD, BOOT_RESTORE, BOOT_FORK, BOOT_POOL, VM_BOOT_MODES };
const char *vm_boot_mode_name(enum vm_boot_mode m);

struct vm_record {
	char id[HUTCH_UUID_LEN + 1];
	char name[HUTCH_MAX_VM_NAME + 1]; /* empty: none */
	char key[HUTCH_MAX_KEY + 1];	  /* empty: none */
	uint64_t args_hash; /* of vm.create's parameters, to compare a repeated key's */
	uint32_t owner_uid;
	bool shared; /* with share_gid's members (share.h) */
	uint32_t share_gid;
	enum vm_step step;
	char template_name[HUTCH_MAX_TEMPLATE_NAME + 1];
	uint32_t memory_mib, vcpus, cid;
	uint32_t vmm_uid;		       /* the VMM's own; 0: it has none */
	uint32_t isolation, isolation_missing; /* as in struct jail_report, when it was started */
	uint32_t ceilings, ceilings_of;	       /* as in struct cgroup_report, when it was started */
	enum vm_boot_mode boot_mode;
	char cold_reason[256]; /* why no snapshot was used; empty: there was none, or it was */
	uint32_t disk_mib;     /* of the writable disk; 0: none */
	uint32_t disk_first, disk_top; /* numbers of the VM's own overlays (vm_disk.h) */
	uint32_t layers;	       /* of memory that it shares, above the base */
	char snapshot[HUTCH_MAX_SNAPSHOT_NAME + 1]; /* that its memory comes from; empty: none */
	uint32_t snapshot_uid;			    /* that one's owner */
	char parent[HUTCH_UUID_LEN + 1];	    /* that it was forked from; empty: none */
	bool secrets;
	char **metadata;     /* NULL-terminated pairs; owned; NULL: none */
	uint64_t created_ms; /* unix time */
	uint64_t ttl_ms;
	uint64_t deadline_ms;		       /* CLOCK_BOOTTIME; 0: not ready yet */
	char host_boot_id[HUTCH_UUID_LEN + 1]; /* that clock's */
	struct vmm_process process;
	enum vmm_accel accel; /* ACCEL_AUTO: not known yet */
	char accel_reason[256];
	char vmm_version[64];
	uint64_t spawn_us, qmp_us, hello_us, identity_us, total_us;
	char agent_name[HUTCH_MAX_PEER_NAME + 1];
	char agent_boot_id[HUTCH_UUID_LEN + 1];
	uint64_t generation;
	char machine_id[33]; /* as its agent was given it; empty: not kept */
	bool zygote;	     /* its VMM's process is a zygote's fork */
	uint32_t start;	     /* of its VMM, in the run directory: vmm_config */
	struct vm_idle idle; /* 0: never */
	uint64_t asleep_ms;  /* paused or parked: unix time */
	bool asleep_by_idle; /* by that, not by a caller */
};

/* -1 with errno. */
int vm_record_save(const struct vm_record *r, int rundir_fd);
/* -1 with err: HUTCH_E_IO, HUTCH_E_INVALID (names the member). On success free with vm_record_free. */
int vm_record_load(struct vm_record *r, int rundir_fd, struct hutch_error *err);
void vm_record_free(struct vm_record *r);
/* A copy of NULL-terminated pairs; NULL when memory is gone. */
char **vm_metadata_copy(char *const *pairs);
/* Text of at most 64 pairs that a record and a result can hold: UTF-8, not above 4 KiB in all. */
bool vm_metadata_valid(char *const *pairs);

#endif
