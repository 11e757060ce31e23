/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All processes of one exec, whatever they did with setsid and double forks.
 *
 * Where the agent has a cgroup tree of its own, each exec has a cgroup (cgroup.c). Elsewhere its processes are
 * found by walking /proc (procwalk.c).
 */
#ifndef HUTCH_GUEST_TREE_H
#define HUTCH_GUEST_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol/error.h"

struct cgroup;
struct exec;

struct tree {
	struct cgroup *cg; /* NULL: there is none, or it was given back when it was empty */
	uint32_t tag;	   /* 0: there are cgroups; else it marks the processes, see procwalk.h */
	pid_t *victims;	   /* with a tag, during a kill: killed and not reaped yet */
	uint32_t nvictims;
	bool killing;
};

struct tree_limits {
	uint64_t memory_bytes, pids, cpu_percent; /* 0: none */
	bool apart; /* a cgroup that is not frozen with the others, and not kept */
};

/* Before the start. -1 with err: limits are asked for and cannot be set. */
int tree_prepare(struct tree *t, const struct tree_limits *limits, struct hutch_error *err);
/* For spawn: the cgroup's descriptor (-1: none) and the timer slack (0: leave). */
int tree_cgroup_fd(const struct tree *t);
unsigned long tree_timer_slack(const struct tree *t);
/* To every process, as far as they can be told apart. */
void tree_signal(struct exec *e, int sig);
/* SIGKILL to every process until none is left; then exec_tree_gone(e), possibly before it returns. */
void tree_kill(struct exec *e);
/* Do not wait for them any longer; exec_tree_gone is not called. */
void tree_give_up(struct exec *e);
/* Processes were reaped. */
void tree_reaped(void);
/* From cgroup.c: it is empty after cgroup_kill. */
void tree_killed(struct exec *e);
/* Usage of the whole tree since tree_prepare; false: not known, wait4's is to be used. */
bool tree_usage(const struct tree *t, uint64_t *user_us, uint64_t *system_us);
bool tree_oom_killed(const struct tree *t);
/* The result is final: an empty cgroup goes back now, another one when its last process left. */
void tree_settle(struct tree *t);
/* The exec is forgotten (or never started): its cgroup goes back when the last process left. */
void tree_release(struct tree *t);

#endif
