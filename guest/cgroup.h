/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cgroup (v2) per exec, from a directory that belongs to the agent.
 *
 * Below the directory: "agent" holds the agent itself, "exec" the execs' cgroups, so that one write to a
 * file of "exec" is about all user processes. Cgroups are kept and used again, since making one costs more than
 * running a short command; one that a command made children in is not. Usage is counted from when it was handed out.
 * One whose exec was forgotten while processes live on in it waits until they are gone.
 */
#ifndef HUTCH_GUEST_CGROUP_H
#define HUTCH_GUEST_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "guest/tree.h"

/* dir: a mounted and writable cgroup2 directory without processes of others. 0, or -1 with err: go without. */
int cgroup_init(const char *dir, struct hutch_error *err);
bool cgroup_ready(void);
/* Remove what cgroup_init made, as far as it is empty. */
void cgroup_exit(void);

/* An empty one with these limits; NULL with err (unsupported: the kernel lacks a controller). */
struct cgroup *cgroup_get(const struct tree_limits *limits, struct hutch_error *err);
void cgroup_put(struct cgroup *cg);
/* Put it as soon as it is empty, which may be now; *holder becomes NULL then. */
void cgroup_settle(struct cgroup *cg, struct cgroup **holder);
/* Have one in stock, since making it costs more than a short command; freeze and thaw it once. */
void cgroup_stock(void);
int cgroup_fd(const struct cgroup *cg);
/* CPU time since cgroup_get; false: it cannot be read. */
bool cgroup_usage(struct cgroup *cg, uint64_t *user_us, uint64_t *system_us);
bool cgroup_oom_killed(struct cgroup *cg);
void cgroup_signal(struct cgroup *cg, int sig);
/* Kill all in it; tree_killed(e) when none is left, possibly before it returns. */
void cgroup_kill(struct cgroup *cg, struct exec *e);
/* Do not call tree_killed. */
void cgroup_kill_forget(struct cgroup *cg);

/*
 * Freeze all execs' cgroups; frozen() when the kernel says that every process stands still, possibly before it
 * returns. -1 with errno: it cannot be done. cgroup_thaw in any case.
 */
int cgroup_freeze(void (*frozen)(void));
/* Was there any process to freeze? */
bool cgroup_freezes(void);
void cgroup_thaw(void);
/* Does any process live in an exec's cgroup? False where there are none. */
bool cgroup_busy(void);
bool cgroup_is_frozen(const struct cgroup *cg);

/* "KEY VALUE" lines, as in cpu.stat and cgroup.events: the value of key, or 0. */
uint64_t cgroup_parse_key(const char *text, const char *key);

#endif
