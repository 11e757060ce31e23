/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VM: its record, its VMM process, its connections to the agent, and who waits for it. Made by vm_create or by
 * adoption; ends through vm_end, whatever the cause; stays as a tombstone for VM_TOMB_MS.
 */
#ifndef HUTCH_HOST_VM_H
#define HUTCH_HOST_VM_H

#include "host/hutchd/broker.h"
#include "host/hutchd/guest_call.h"
#include "host/hutchd/guest_pool.h"
#include "host/hutchd/vm_origin.h"
#include "host/hutchd/vm_record.h"
#include "host/hutchd/vm_state.h"
#include "host/hutchd/vmm.h"
#include "protocol/msg_vm.h"

#define VM_TOMB_MS	     (10u * 60 * 1000)
#define VM_TOMBS	     1024u /* the oldest go first */
#define VM_GRACE_MS	     3000u /* the dead-man's timer runs this much longer than the TTL */
#define VM_WAKE_MS	     60000u
#define VM_ADOPT_MS	     30000u /* an adopted VM's agent has to answer within this */
#define VM_HEARTBEAT_S	     10
#define VM_HEARTBEATS_MISSED 3u /* in a row: the agent is called silent */

struct vm_boot;
struct vm_park;
struct vm_rejoin;
struct vm_thaw;
struct vm_waiter;
struct capture;

enum vm_kind {
	VM_USERS,    /* somebody's */
	VM_TEMPLATE, /* being booted for template.snapshot */
	VM_POOLED,   /* waits to be taken */
	VM_ZYGOTE,   /* others are forked off its VMM (zygote.h) */
};

struct vm {
	TAILQ_ENTRY(vm) next;
	struct vm *id_next, *name_next;
	struct deferred deferred;
	struct broker *b;
	struct vm_record r;
	enum vm_state state;
	char object[HUTCH_UUID_LEN + 4]; /* "vm <id>" */
	int rundir_fd;
	struct vmm *vmm;
	bool up;	    /* its VMM answers */
	uint32_t disk_seen; /* what its VMM says about disk_top */
	bool disk_grows;    /* it is larger than what its image had: its guest is to be told */
	bool disk_unsure; /* the record's disk_top may be one too few: a broker died as it was frozen */
	enum vm_kind kind;	  /* all but VM_USERS are seen by nobody, and end with the broker */
	bool pool_ready;	  /* VM_POOLED: it can be taken */
	uint64_t image_made_ms;	  /* image::created_ms of what it goes on from */
	struct vm_boot *boot;	  /* a new one, or one that wakes, until it is running */
	struct vm_park *park;	  /* it is being captured to be parked */
	struct vm_rejoin *rejoin; /* one that runs, until its agent was found again */
	struct capture *capture;  /* a fork, snapshot or pause of it is under way */
	struct vm_thaw *thaw;	  /* paused, and being resumed */
	bool thaw_wanted;	  /* paused, adopted: to be resumed as soon as it is up */
	struct guest_link *held;  /* paused: what holds its agent; NULL: it was lost */
	struct guest_pool pool;
	TAILQ_HEAD(, vm_waiter) waiters;
	char reason[512]; /* why it ends or ended; empty: it does not */
	struct hutch_error *
		failure; /* what those get who wait for it to run (again), when it does not; owned */
	struct event tomb;

	/* The control connection and the heartbeat over it (vm_heart.c). */
	struct guest_link *control;
	struct guest_waiter control_waiter;
	struct guest_call *ping;
	struct event heart;
	unsigned missed;
	bool silent; /* the agent missed VM_HEARTBEATS_MISSED */

	/* Its idle policy (vm_idle.c). */
	struct event idle_timer;
	uint64_t used_ms; /* CLOCK_BOOTTIME, when it was last seen in use */
	unsigned calls;	  /* that need its guest and are open */
	struct guest_call *idle_ask;
};

/* Embedded in whoever waits for a VM; done is called once. */
struct vm_waiter {
	TAILQ_ENTRY(vm_waiter) next;
	struct vm *vm;	/* NULL: does not wait */
	bool for_ready; /* until it runs (again) */
	bool for_park;	/* until it is parked; with neither, until it is dead */
	/* err: not for_ready or for_park, it does not and will not. */
	void (*done)(struct vm_waiter *w, const struct hutch_error *err);
};

/*
 * Check, allocate, write the record and begin to boot; the VM is in the list at once. NULL with err: HUTCH_E_NOT_FOUND
 * no such template, HUTCH_E_EXISTS the name is taken, HUTCH_E_BUSY too many VMs.
 */
struct vm *vm_create(struct broker *b, uint32_t owner, const struct vm_create *args,
		     const gid_t *share, const char *key, uint64_t args_hash,
		     struct hutch_error *err);
/* The same for a VM that goes on from origin, or for the broker's own use. origin is taken over in any case. */
struct vm_spec {
	enum vm_kind kind;
	uint32_t owner;
	const struct template *tpl;
	const char *name, *key; /* empty: none */
	uint64_t args_hash;
	uint32_t memory_mib, vcpus, disk_mib; /* 0: as what it is made of has them */
	uint64_t ttl_ms, timeout_ms;
	char *const *metadata; /* NULL: none */
	bool secrets;
	struct vm_idle idle;
	const gid_t *share; /* NULL: with nobody */
	const char *cold_reason;
	const struct vm *parent; /* it is a fork of this one; NULL: it is none */
};
/* -1 with err: the broker ends, or has no launcher. */
int vm_check_start(struct broker *b, struct hutch_error *err);
struct vm *vm_make(struct broker *b, const struct vm_spec *spec, struct vm_origin *origin,
		   struct hutch_error *err);
/* One of the broker's own that goes on from its template's snapshot: VM_POOLED, VM_ZYGOTE. Its TTL is the longest. */
struct vm *vm_make_hidden(struct broker *b, enum vm_kind kind, const struct template *tpl,
			  uint64_t timeout_ms, struct vm_origin *origin, struct hutch_error *err);
/* A VM of a pool becomes that of whom spec says, and goes on to running. -1 with err: it has to be ended. */
int vm_give(struct vm *vm, const struct vm_spec *spec, struct hutch_error *err);
/* A VM of an earlier broker, in state starting and listed. Takes over r's metadata and, on success, rundir_fd. */
struct vm *vm_new(struct broker *b, struct vm_record *r, int rundir_fd);
void vm_free(struct vm *vm); /* not while anyone waits or a process lives */

/*
 * End it: no call begins, those that run fail with vm_died, the process is killed; when it is gone, all that the VM had is removed and
 * the waiters are told. Harmless when it ends already.
 */
void vm_end(struct vm *vm, const char *reason);
/* The same for one that did not come up: err is what its creators get, the console's tail is added. */
void vm_fail(struct vm *vm, const struct hutch_error *err);
/* The process is gone (or never was): the second half of vm_end. */
void vm_bury(struct vm *vm);

/* Wait for it; false when there is nothing to wait for any more (see vm_ready_error). */
bool vm_wait(struct vm *vm, struct vm_waiter *w);
void vm_unwait(struct vm_waiter *w);
void vm_notify_ready(struct vm *vm);
void vm_notify_parked(struct vm *vm);
/* It will not: err is what they are told. */
void vm_notify_not_ready(struct vm *vm, const struct hutch_error *err);
void vm_notify_not_parked(struct vm *vm, const struct hutch_error *err);
/* Does anybody wait for it to run? */
bool vm_is_awaited(const struct vm *vm);
/* vm_died, with the reason. */
void vm_died_error(const struct vm *vm, struct hutch_error *err);

/*
 * By id, or by name: the caller's own living one first, then for an admin another owner's (if only one has
 * that name), then the caller's last dead one. NULL with HUTCH_E_NOT_FOUND.
 */
struct vm *vm_find(struct broker *b, uint32_t uid, const char *id_or_name, struct hutch_error *err);
struct vm *vm_find_key(struct broker *b, uint32_t owner, const char *key);
/* Whosever it is; dead ones that are kept as well. */
struct vm *vm_find_id(struct broker *b, const char *id);
/* That owner's of that name: one that lives, or the last one that is dead. */
struct vm *vm_find_name(struct broker *b, uint32_t owner, const char *name, bool dead);
bool vm_visible(const struct vm *vm, uint32_t uid);
void vm_table_add(struct vm *vm);
void vm_table_remove(struct vm *vm);

/* It was ready once, and lives. */
bool vm_was_ready(const struct vm *vm);

/* Write the record; a failure is logged and returned. */
int vm_save(struct vm *vm);

/* vm_end.c: whatever is under way for it or through its guest is dropped; its pool and waiters are not told. */
void vm_abort_all(struct vm *vm);
/* vm_vmm.c: its VMM is gone, and the run directory is free for another. */
void vm_forget_vmm(struct vm *vm);
/* A number that no earlier start in its run directory had, and what the host gives a VMM now. Not saved. */
void vm_next_start(struct vm *vm);
/* vm_boot.c: from the record to running. origin is taken over on success. */
int vm_boot_start(struct vm *vm, const struct template *tpl, struct vm_origin *origin,
		  uint64_t timeout_ms, struct hutch_error *err);
/* It waits in its pool, and is now somebody's. */
void vm_boot_give(struct vm *vm, uint64_t timeout_ms);
/* A parked one: from its image to running, or back to parked (vm_wake_failed). origin is taken over. */
void vm_boot_wake(struct vm *vm, const struct template *tpl, struct vm_origin *origin,
		  struct hutch_error *err);
void vm_boot_spawned(struct vm *vm);
void vm_boot_up(struct vm *vm);
/* The VMM could not be started, or has ended. */
/* It was to be forked off a zygote and was not: it is restored. False: it was not to be. */
bool vm_boot_unforked(struct vm *vm, const char *why);
bool vm_boot_again(
	struct vm *vm); /* its VMM ended: was that the watchdog's, and is it started again? */
void vm_boot_failed(struct vm *vm, const struct hutch_error *err);
int vm_boot_adopt(struct vm *vm, struct hutch_error *err);
void vm_boot_abort(struct vm *vm); /* drop what the boot holds */

/* vm_vmm.c: what its VMM tells. */
extern const struct vmm_callbacks vm_vmm_callbacks;

/*
 * vm_rejoin.c: the agent of a VM that was running before is found again: dialled, compared with the record, pinged. held: it may be
 * held (snapshot.prepare), its connection lost; its hello is then awaited too, and it is told to go on. Ends in running, with
 * waiters told; where there is no answer within timeout_ms, the VM is ended.
 */
int vm_rejoin_start(struct vm *vm, bool held, uint64_t timeout_ms, struct hutch_error *err);
void vm_rejoin_abort(struct vm *vm);
/* Take over the living VMM of the record: running (or paused) at once. -1: it is gone. */
int vm_adopt(struct vm *vm, struct hutch_error *err);

/* It runs again: the record's step, and that it is not asleep any more. -1: it could not be written. */
int vm_set_running(struct vm *vm);

/* vm_park.c: it is captured, and its VMM ended; for_park waiters are told. -1 with err: it stays what it is. by_idle: only if nobody
   comes meanwhile. */
int vm_park(struct vm *vm, bool by_idle, struct hutch_error *err);
/* Its VMM is gone: it is parked. */
void vm_park_rest(struct vm *vm);
/* One of an earlier broker, at whatever step of parking or waking, whose process is gone. -1 with err: its image is not there. */
int vm_park_adopt(struct vm *vm, struct hutch_error *err);
/* The image takes its place, if it has not yet. -1, logged. */
int vm_park_settle(struct vm *vm);
/* Parked, without a VMM. */
bool vm_rests(const struct vm *vm);

/* vm_wake.c: parked, being parked, or paused by its idle policy: a call that needs its guest has to wait (rouse.h). */
bool vm_is_asleep(const struct vm *vm);
/* Let it run; for_ready waiters are told, perhaps at once, or why not. */
void vm_rouse(struct vm *vm);
/* From vm_boot.c: it is parked again as soon as its VMM is gone. */
void vm_wake_failed(struct vm *vm, const struct hutch_error *err);

/* vm_thaw.c: from paused to running; waiters are told. Harmless when it is on its way. -1 with err. */
int vm_thaw_start(struct vm *vm, struct hutch_error *err);
void vm_thaw_abort(struct vm *vm);

/* vm_heart.c */
void vm_heart_init(struct vm *vm);
/* Take over an idle link as the control connection and begin the heartbeat. */
void vm_heart_start(struct vm *vm, struct guest_link *control);
void vm_heart_stop(struct vm *vm);

/* vm_idle.c: pause and park a VM that nobody uses */
void vm_idle_init(struct vm *vm);
/* It is in use at this moment: the times begin anew. Also when it begins to run, and when the policy is another. */
void vm_idle_begin(struct vm *vm);
void vm_idle_stop(struct vm *vm);
/* A call that needs its guest begins and ends. */
void vm_use(struct vm *vm);
void vm_unuse(struct vm *vm);

/* vm_ttl.c: the deadlines of all VMs behind one timer on CLOCK_BOOTTIME. */
int vm_ttl_init(struct broker *b);
void vm_ttl_free(struct broker *b);
/* ttl_ms from now; renews the dead-man's timer; the caller saves the record. */
void vm_ttl_set(struct vm *vm, uint64_t ttl_ms);
uint64_t vm_ttl_left(const struct vm *vm); /* ms; 0: passed or not begun */
void vm_ttl_rearm(struct broker *b);

#endif
