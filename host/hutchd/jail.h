/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail that a VMM runs in, and what of it this host can give: found by trying, when the
 * launcher starts. How it is made: jail.c, jail_root.c, jail_enter.c.
 */
#ifndef HUTCH_HOST_JAIL_H
#define HUTCH_HOST_JAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct launcher_setup;

/* Each has what the one before has. */
enum jail_level {
	JAIL_NONE,    /* the test driver: no virtual machine at all */
	JAIL_SECCOMP, /* system call filters, no capability, no new privileges, rlimits */
	JAIL_SPACES,  /* namespaces and a root of its own, no network */
	JAIL_UID,     /* a uid of its own */
	JAIL_LEVELS
};
const char *jail_level_name(enum jail_level level);
/* -1: there is none of that name. */
int jail_level_parse(const char *name);

/* What is missing, as bits; jail_missing_name gives words for one of them. */
#define JAIL_NO_VM	  0x01u
#define JAIL_NO_FILTER	  0x02u
#define JAIL_NO_SPACES	  0x04u
#define JAIL_NO_ROOT	  0x08u
#define JAIL_NO_UID	  0x10u
#define JAIL_NO_CGROUP	  0x20u
#define JAIL_MISSING_BITS 6
const char *jail_missing_name(unsigned bit);

struct jail_report {
	uint32_t level; /* enum jail_level */
	uint32_t missing;
	char reason[160]; /* why it is not more; empty: nothing failed */
};

#define JAIL_MAX_THREADS 512u /* of a VMM with a uid of its own */
/* Where the directory of the one socket that the guest may dial is in a root. */
#define JAIL_DIAL_PLACE "/vm"

struct jail;

/*
 * In the launcher, once, while it has one thread. Moves the launcher into a mount and a network namespace of its own, and
 * into a user namespace where it is no root. NULL only without memory: a jail that cannot be had is one that does less.
 */
struct jail *jail_new(const struct launcher_setup *setup);
const struct jail_report *jail_report(const struct jail *j);
/* It was tried with the VMM, which does not start in it. */
void jail_give_up(struct jail *j, const char *why);

/*
 * fork(2) into new namespaces and a cgroup (v2's directory, -1: ours). NULL: no namespaces. A zygote has no PID namespace of its
 * own: its children are to be the launcher's, and to outlive it.
 */
pid_t jail_fork(const struct jail *j, int cgroup, bool zygote);

/* Whether zygotes can be had: VMMs have uids of their own, and filters. */
bool jail_has_zygotes(const struct jail *j);
/* Of what a zygote was forked into. */
const struct sock_fprog *jail_forked_filter(const struct jail *j);
/*
 * A child of a zygote, in namespaces of its own, gets what it cannot have by itself: its uid (mapped), its /proc, and the
 * directory of its dial socket at JAIL_DIAL_PLACE. -1 with errno and *stage.
 */
int jail_dress(const struct jail *j, pid_t pid, int pidfd, uint32_t uid, int rundir,
	       const char **stage);

struct jail_entry {
	int rundir;   /* -1: none (asking QEMU for its version) */
	uint32_t uid; /* 0: the first of the range, for what is not a user's VM */
	bool kvm;     /* it needs /dev/kvm */
	bool tied;    /* SIGKILL when the launcher ends */
	bool zygote;  /* it may fork itself */
	pid_t launcher;
};
/*
 * In the child that jail_fork made, just before the exec. -1 with errno and *stage: the child must end. Descriptors of the
 * jail are close-on-exec and above JAIL_FD_MIN.
 */
#define JAIL_FD_MIN 256
int jail_enter(const struct jail *j, const struct jail_entry *e, const char **stage);

#endif
