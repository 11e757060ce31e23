/* SPDX-License-Identifier: Apache-2.0 */
/* All processes of one exec: by its cgroup, or by walking /proc; see tree.h. */
#include "guest/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "guest/cgroup.h"
#include "guest/exec.h"
#include "guest/exec_table.h"
#include "guest/log.h"
#include "guest/procwalk.h"

/* Looks at /proc in which a process may fork away from its SIGSTOP; then they are killed as they are. */
#define MAX_STOP_ROUNDS 64

static unsigned walking; /* trees that wait for victims to be reaped */

int tree_prepare(struct tree *t, const struct tree_limits *limits, struct hutch_error *err)
{
	static uint32_t last_tag;

	memset(t, 0, sizeof(*t));
	if (cgroup_ready()) {
		t->cg = cgroup_get(limits, err);
		return t->cg ? 0 : -1;
	}
	if (limits->memory_bytes || limits->pids || limits->cpu_percent)
		return hutch_error_set(
			err, HUTCH_E_UNSUPPORTED, 0,
			"limits on memory, pids and cpu need a cgroup, and this agent "
			"has none");
	last_tag = last_tag + 1 < SLACK_TAGS ? last_tag + 1 : 1;
	t->tag = last_tag;
	return 0;
}

int tree_cgroup_fd(const struct tree *t)
{
	return t->cg ? cgroup_fd(t->cg) : -1;
}

unsigned long tree_timer_slack(const struct tree *t)
{
	return t->tag ? SLACK_BASE + t->tag : 0;
}

static int members(const struct exec *e, struct proc_set *set)
{
	return procwalk_members(e->pid, e->state != EXEC_RUNNING, e->tree.tag, set);
}

void tree_signal(struct exec *e, int sig)
{
	struct proc_set set;

	if (e->tree.cg)
		cgroup_signal(e->tree.cg, sig);
	if (!e->tree.tag)
		return;
	if (members(e, &set) < 0) {
		log_error("exec %s: its processes cannot be listed", e->id);
		return;
	}
	for (size_t i = 0; i < set.n; i++)
		procwalk_signal(&set.v[i], sig);
	proc_set_free(&set);
}

/* Stop them all: look again until nobody new is there. */
static int stop_all(struct exec *e, struct proc_set *set)
{
	size_t before = 0;

	for (int round = 0; round < MAX_STOP_ROUNDS; round++) {
		if (round)
			proc_set_free(set);
		if (members(e, set) < 0)
			return -1;
		if (!set->n || (round && set->n <= before))
			break;
		before = set->n;
		for (size_t i = 0; i < set->n; i++)
			if (set->v[i].state != 'T')
				procwalk_signal(&set->v[i], SIGSTOP);
	}
	return 0;
}

static int keep_victims(struct tree *t, const struct proc_set *set)
{
	t->victims = calloc(set->n, sizeof(*t->victims));
	if (!t->victims)
		return -1;
	for (size_t i = 0; i < set->n; i++)
		t->victims[t->nvictims++] = set->v[i].pid;
	return 0;
}

/* Kill what there is. True: there is nothing left. */
static bool walk_kill(struct exec *e)
{
	struct proc_set set;

	free(e->tree.victims);
	e->tree.victims = NULL;
	e->tree.nvictims = 0;
	if (stop_all(e, &set) < 0) {
		log_error("exec %s: its processes cannot be listed", e->id);
		return true;
	}
	for (size_t i = 0; i < set.n; i++)
		procwalk_signal(&set.v[i], SIGKILL);
	if (set.n && keep_victims(&e->tree, &set) < 0)
		log_info("exec %s: no memory to wait for its processes", e->id);
	proc_set_free(&set);
	return !e->tree.nvictims;
}

static void walk_done(struct exec *e)
{
	e->tree.killing = false;
	walking--;
	exec_tree_gone(e);
}

void tree_killed(struct exec *e)
{
	e->tree.killing = false;
	exec_tree_gone(e);
}

void tree_kill(struct exec *e)
{
	e->tree.killing = true;
	if (e->tree.tag) {
		walking++;
		if (walk_kill(e))
			walk_done(e);
	} else if (e->tree.cg) {
		cgroup_kill(e->tree.cg, e);
	} else {
		tree_killed(e); /* it was empty before */
	}
}

void tree_give_up(struct exec *e)
{
	if (!e->tree.killing)
		return;
	e->tree.killing = false;
	if (e->tree.tag)
		walking--;
	else
		cgroup_kill_forget(e->tree.cg);
}

/* Those that are gone. Every death in a killed tree reaches the agent in the end, as it is the sub-reaper. */
static bool prune(struct tree *t)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < t->nvictims; i++)
		if (kill(t->victims[i], 0) == 0 || errno == EPERM)
			t->victims[left++] = t->victims[i];
	t->nvictims = left;
	return left == 0;
}

static bool reaped_one(struct exec *e, void *arg)
{
	struct exec **done = arg;

	if (e->tree.killing && e->tree.tag && prune(&e->tree) && walk_kill(e)) {
		*done = e;
		return false;
	}
	return true;
}

void tree_reaped(void)
{
	struct exec *done;

	while (walking) {
		done = NULL;
		exec_each(reaped_one, &done);
		if (!done)
			break;
		walk_done(done);
	}
}

bool tree_usage(const struct tree *t, uint64_t *user_us, uint64_t *system_us)
{
	return t->cg && cgroup_usage(t->cg, user_us, system_us);
}

bool tree_oom_killed(const struct tree *t)
{
	return t->cg && cgroup_oom_killed(t->cg);
}

void tree_settle(struct tree *t)
{
	if (t->cg)
		cgroup_settle(t->cg, &t->cg);
}

void tree_release(struct tree *t)
{
	free(t->victims);
	t->victims = NULL;
	t->nvictims = 0;
	if (t->killing && t->tag)
		walking--;
	t->killing = false;
	if (t->cg)
		cgroup_put(t->cg);
	t->cg = NULL;
}
