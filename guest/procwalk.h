/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding an exec's processes without cgroups.
 *
 * The agent is a sub-reaper, so an orphan of any of its execs becomes its own child. A process belongs to an
 * exec when it is the exec's first process or in its session, when a parent of it belongs, or when it is a
 * child of the agent and carries the exec's tag. The tag is the timer slack (prctl(2) PR_SET_TIMERSLACK),
 * which fork and execve hand on and hardly any program sets: SLACK_BASE + tag nanoseconds. Reading it from
 * another process needs CAP_SYS_NICE; without it, orphans that also left the session are not found.
 */
#ifndef HUTCH_GUEST_PROCWALK_H
#define HUTCH_GUEST_PROCWALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SLACK_BASE 50000u /* the kernel's default, ns */
#define SLACK_TAGS 65536u

struct proc {
	pid_t pid, ppid, sid;
	char state;	/* 'Z' and 'X': dead, only not reaped */
	uint64_t start; /* clock ticks after boot: tells a reused pid */
	bool member;
};

/* One /proc/PID/stat (proc(5)); the command name may hold anything. False: not such a text. */
bool proc_parse_stat(const char *text, struct proc *out);

struct proc_set {
	struct proc *v;
	size_t n, cap;
};

/*
 * The living processes of the exec with this first pid and tag. reaped: the first process was reaped, so that
 * its pid may be a stranger's now; its session then counts only together with the tag. -1: no memory or /proc.
 */
int procwalk_members(pid_t first, bool reaped, uint32_t tag, struct proc_set *out);
/* Signal p unless its pid was reused since it was read. 0, or -1 with errno. */
int procwalk_signal(const struct proc *p, int sig);
void proc_set_free(struct proc_set *s);

#endif
