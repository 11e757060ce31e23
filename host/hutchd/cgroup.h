/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ceilings of the host's for a VMM: a cgroup for each, where this host lets us make them, which is found out by making
 * one when the launcher starts (cgroup_find.c, cgroup.c). How one VMM's is made and removed: cgroup_vm.c.
 */
#ifndef HUTCH_HOST_CGROUP_H
#define HUTCH_HOST_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum cgroup_kind {
	CGROUP_NONE, /* rlimits alone */
	CGROUP_V1,
	CGROUP_V2,
	CGROUP_KINDS
};
const char *cgroup_kind_name(uint32_t kind);

enum cgroup_controller { CGROUP_CPU, CGROUP_MEMORY, CGROUP_PIDS, CGROUP_IO, CGROUP_CONTROLLERS };
const char *cgroup_controller_name(unsigned controller);

struct cgroup_report {
	uint32_t kind;	  /* enum cgroup_kind */
	uint32_t has;	  /* bits, by enum cgroup_controller */
	char reason[160]; /* why it is not more; empty: nothing is missing */
};

/* What the configuration asks for. */
struct cgroup_wish {
	bool on;
	uint32_t cpu_percent; /* of one CPU, for each of the guest's; 0: no ceiling */
	uint32_t cpu_weight;  /* for each of the guest's CPUs; 100 is usual */
	uint32_t io_weight;
};
#define CGROUP_MAX_CPU_PERCENT 10000u
#define CGROUP_MAX_CPU_WEIGHT  10000u
#define CGROUP_MAX_IO_WEIGHT   1000u

/* What a VMM may have beside its guest's memory: its code and heap, and under TCG the translated code, which QEMU bounds. */
#define CGROUP_VMM_MIB	       512u
#define CGROUP_TRANSLATION_MIB 1024u
#define CGROUP_MAX_THREADS     512u

struct cgroups;

/* Where the kernel tells about them; other files in tests. */
struct cgroup_places {
	const char *own;    /* /proc/self/cgroup */
	const char *mounts; /* /proc/self/mountinfo */
	const char *disks;  /* /sys/block */
	const char *state;  /* the directory that VMMs write snapshots below */
};

/*
 * In the launcher, once. With v2, where it has to be, this process and the broker (its parent) are moved into a leaf of their
 * cgroup. What an earlier broker left there is removed. NULL only without memory.
 */
struct cgroups *cgroups_new(const struct cgroup_wish *wish, const struct cgroup_places *places);
const struct cgroup_report *cgroups_report(const struct cgroups *c);
void cgroups_free(struct cgroups *c);

struct cgroup_size {
	const char *id; /* the VM's; part of the cgroup's name */
	uint32_t memory_mib, vcpus;
	bool tcg;
};

/* A VMM's own, between its making and the VMM's start. */
struct cgroup_vm {
	int into;		       /* v2: the directory, for CLONE_INTO_CGROUP; else -1 */
	int tasks[CGROUP_CONTROLLERS]; /* v1: what the child writes itself to; -1: none */
	int locks[CGROUP_CONTROLLERS]; /* borrowed: no other launcher takes it for a leftover */
};

/* Its directories are named in <rundir>/cgroup before they are made (rundir -1: nowhere). -1 with errno: nothing is left. */
#define CGROUP_FILE "cgroup"
int cgroup_vm_make(const struct cgroups *c, const struct cgroup_size *size, int rundir,
		   struct cgroup_vm *out);
/* In the child, while it has one thread and before it gives up anything. */
int cgroup_vm_enter(const struct cgroup_vm *v);
/*
 * For another process that has one thread. With v1 nothing is done: it is to write "0" to each of tasks itself, as the kernel
 * moves others only after an RCU grace period, some 20 ms.
 */
int cgroup_vm_put(const struct cgroup_vm *v, pid_t pid);
/* The VMM runs, or nothing does; in the latter case it is to be unmade. errno is preserved. */
void cgroup_vm_close(struct cgroup_vm *v);
void cgroup_vm_unmake(const struct cgroups *c, const char *id);
/* The file that names them, to be handed to whoever may remove them; -1: there is none. */
int cgroup_vm_file(int rundir);
/*
 * Remove what the file names, once no process of the VM is left. *oom: the kernel ended something of it for want of memory.
 * -1 with errno.
 */
int cgroup_vm_remove(int file, const char *id, bool *oom);

#endif
