/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the jail share: jail.c (what this host gives), jail_root.c (roots), jail_enter.c (a VMM's way in). */
#ifndef HUTCH_HOST_JAIL_PRIV_H
#define HUTCH_HOST_JAIL_PRIV_H

#include <linux/filter.h>
#include <sched.h>

#include "host/hutchd/jail.h"
#include "host/hutchd/seccomp.h"

#define JAIL_KVM "/dev/kvm"

enum { ROOT_PLAIN, ROOT_KVM, ROOTS };

struct jail {
	bool on, own_uid, in_userns, test;
	int roots[ROOTS]; /* mount namespaces; -1: none */
	uint32_t first_uid, uid_count;
	struct sock_fprog filter[SECCOMP_KINDS];
	struct jail_report report;
};

/*
 * jail_fork(j) with a pipe, *out, on which the child says how it went (struct jail_trouble): its end of it, or ours. 0 in the child; -1
 * with t, in which stage is the one of such a failure.
 */
struct jail_trouble;
pid_t jail_fork_helper(const struct jail *j, const char *stage, int *out, struct jail_trouble *t);

/* What a child of the launcher says of a step that failed, through a pipe; errnum 0: none did. */
struct jail_trouble {
	int errnum;
	char stage[48];
};
/* -1 unless all went well. A child that says nothing had trouble, too. */
int jail_read_trouble(int fd, struct jail_trouble *t);
/* Kill and reap it. */
void jail_end_child(pid_t pid);

/* Mount a detached tree at place; make one (all of) read-only; copy what is mounted at path. -1 with errno. */
int jail_mount(int tree, const char *place);
int jail_read_only(int tree, uint64_t more);
int jail_copy_tree(int dir, const char *path, unsigned flags);

bool jail_has_cap(unsigned cap);

/* Make a root: its mount namespace, a descriptor from JAIL_FD_MIN on, or -1 with t. */
int jail_make_root(const struct launcher_setup *setup, bool kvm, struct jail_trouble *t);

#endif
