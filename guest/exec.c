/* SPDX-License-Identifier: Apache-2.0 */
/* Execs: the table, the states, kill and limits, records. Starting is in exec_start.c, output in exec_output.c. */
#include "guest/exec.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/attach.h"
#include "guest/exec_table.h"
#include "guest/limits.h"
#include "guest/log.h"
#include "guest/pty.h"

static const char *const state_names[] =
	{[EXEC_RUNNING] = "running", [EXEC_DRAINING] = "draining", [EXEC_ENDED] = "ended"};
_Static_assert(sizeof(state_names) / sizeof(*state_names) == EXEC_ENDED + 1, "a name per state");

static void set_state(struct exec *e, enum exec_state to)
{
	log_debug("exec %s: %s -> %s", e->id, state_names[e->state], state_names[to]);
	e->state = to;
}

/* Records */

static void drop_rings(struct exec *e)
{
	for (int s = 0; s < 2; s++)
		ring_drop(&e->out[s].ring);
}

static void forget(struct exec *e)
{
	if (e->forgotten)
		return;
	e->forgotten = true;
	loop_timer_clear(&e->limit);
	loop_timer_clear(&e->phase);
	loop_timer_clear(&e->orphan);
	loop_close(&e->in);
	loop_close(&e->out[0].src);
	loop_close(&e->out[1].src);
	drop_rings(e);
	if (e->tty_fd >= 0)
		close(e->tty_fd);
	e->tty_fd = -1;
	tree_release(&e->tree);
	exec_table_remove(e);
	loop_free_later(&e->garbage, e, free);
}

/*
 * Its result was received: the output is of no use any more. The record stays for exec.kill, which ends what
 * the command left behind, until it expires or its place or id is wanted.
 */
void exec_collected(uint64_t serial)
{
	struct exec *e = exec_table_record(serial);

	if (!e)
		return;
	e->collected = true;
	if (list_empty(&e->links))
		drop_rings(e);
}

static void maybe_forget(struct exec *e)
{
	if (e->state != EXEC_ENDED || !list_empty(&e->links))
		return;
	if (e->collected)
		drop_rings(e);
	if (e->expired && !e->killing)
		forget(e);
}

static void expire_due(struct exec *e)
{
	e->expired = true; /* goes with its last link, if it has any */
	maybe_forget(e);
}

bool exec_make_way(struct exec *e)
{
	if (e->state != EXEC_ENDED || !e->collected || !list_empty(&e->links) || e->killing)
		return false;
	forget(e);
	return true;
}

static bool drop_output(struct exec *e, void *arg)
{
	size_t *missing = arg;

	if (e->state == EXEC_ENDED && list_empty(&e->links)) {
		size_t held = (size_t)e->out[0].ring.cap + e->out[1].ring.cap;

		drop_rings(e);
		*missing -= held < *missing ? held : *missing;
	}
	return *missing > 0;
}

void exec_ring_pressure(size_t missing)
{
	exec_each_record(drop_output, &missing);
}

static void make_record(struct exec *e)
{
	set_state(e, EXEC_ENDED);
	exec_table_ended(e);
	tree_settle(&e->tree);
	loop_timer_clear(&e->orphan);
	loop_timer_after_ms(&e->phase, AGENT_RECORD_MS);
	exec_wake_links(e);
	while (exec_table_records() > AGENT_MAX_RECORDS) {
		struct exec *oldest = exec_table_oldest();

		if (!oldest)
			break; /* every one of them is being read */
		forget(oldest);
	}
}

void exec_check_done(struct exec *e)
{
	if (e->state == EXEC_DRAINING && !e->killing && exec_outputs_closed(e))
		make_record(e);
	else if (e->state == EXEC_ENDED)
		maybe_forget(e);
}

static bool copied(struct exec *e, void *arg)
{
	loop_timer_clear(&e->orphan);
	if (*(bool *)arg)
		return true;
	list_del(&e->by_key);
	e->key[0] = '\0';
	return true;
}

void exec_all_copied(bool keep_keys)
{
	exec_each(copied, &keep_keys);
}

void exec_forget_all(void)
{
	struct exec *e;

	while ((e = exec_table_any()))
		forget(e);
}

/* The end of the process */

static void note_usage(struct exec *e, const struct rusage *ru)
{
	e->user_us = (uint64_t)ru->ru_utime.tv_sec * 1000000u + (uint64_t)ru->ru_utime.tv_usec;
	e->system_us = (uint64_t)ru->ru_stime.tv_sec * 1000000u + (uint64_t)ru->ru_stime.tv_usec;
	e->max_rss_kib = (uint64_t)ru->ru_maxrss;
	tree_usage(&e->tree, &e->user_us, &e->system_us);
	e->oom_killed = tree_oom_killed(&e->tree);
}

void exec_process_ended(struct exec *e, int status, const struct rusage *ru)
{
	exec_table_forget_pid(e);
	set_state(e, EXEC_DRAINING);
	e->ended_ns = loop_now();
	e->status = status;
	note_usage(e, ru);
	if (WIFEXITED(status) && !e->asked) /* SIGKILL came too late: it had left by itself */
		e->timed_out = e->canceled = false;
	loop_close(&e->in);
	exec_resume_input(e);
	if (e->tty_fd >= 0)
		close(e->tty_fd);
	e->tty_fd = -1;
	exec_outputs_process_ended(e);
	if (exec_outputs_closed(e))
		loop_timer_clear(&e->phase);
	else if (e->drain_ms)
		loop_timer_after_ms(&e->phase, e->drain_ms);
	else
		exec_outputs_give_up(e);
	if (e->killing)
		exec_kill(e, 0); /* its survivors get no more grace */
	else
		loop_timer_clear(&e->limit);
	exec_wake_links(e);
	exec_check_done(e);
}

static void start_result(const struct exec *e, struct exec_result *res)
{
	memset(res, 0, sizeof(*res));
	memcpy(res->id, e->id, sizeof(res->id));
	res->pid = (uint64_t)e->pid;
	res->started = true;
}

void exec_result(const struct exec *e, struct exec_result *res)
{
	start_result(e, res);
	if (WIFSIGNALED(e->status)) {
		res->signal = (uint32_t)WTERMSIG(e->status);
		res->exit_code = 128 + res->signal;
	} else {
		res->exit_code = (uint32_t)WEXITSTATUS(e->status);
	}
	res->timed_out = e->timed_out;
	res->oom_killed = e->oom_killed;
	res->canceled = e->canceled;
	res->stdout_bytes = e->out[0].written;
	res->stderr_bytes = e->out[1].written;
	res->stdout_truncated = e->out[0].written > e->out[0].ring.end;
	res->stderr_truncated = e->out[1].written > e->out[1].ring.end;
	res->duration_us = (e->ended_ns - e->started_ns) / 1000;
	res->user_us = e->user_us;
	res->system_us = e->system_us;
	res->max_rss_kib = e->max_rss_kib;
}

/* Kill, timeout, signals */

/* Has the process ended, though the reaper did not see it yet? Looks without reaping. */
static bool is_dead(const struct exec *e)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)e->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid;
}

void exec_kill(struct exec *e, uint32_t grace_ms)
{
	bool soft = grace_ms && e->state == EXEC_RUNNING;

	if (!e->killing && soft) {
		e->asked = true;
		tree_signal(e, SIGTERM);
	}
	e->killing = true;
	if (soft) {
		uint64_t at = loop_now() + (uint64_t)grace_ms * 1000000u;

		if (!e->limit.slot || e->limit.at_ns > at)
			loop_timer_set(&e->limit, at);
		return;
	}
	loop_timer_after_ms(&e->limit, AGENT_KILL_WAIT_MS);
	if (!e->tree.killing)
		tree_kill(e);
}

void exec_cancel(struct exec *e, uint32_t grace_ms)
{
	if (e->state == EXEC_RUNNING && !is_dead(e))
		e->canceled = true;
	exec_kill(e, grace_ms);
}

void exec_tree_gone(struct exec *e)
{
	/* The first process itself may be dead and not reaped yet: exec_process_ended comes, and ends it. */
	e->killing = false;
	e->oom_killed = e->oom_killed || tree_oom_killed(&e->tree);
	loop_timer_clear(&e->limit);
	exec_wake_links(e);
	exec_check_done(e);
}

static void limit_due(struct loop_timer *t)
{
	struct exec *e = container_of(t, struct exec, limit);

	if (e->tree.killing) {
		log_info("exec %s: a process does not die, no longer waited for", e->id);
		tree_give_up(e);
		exec_tree_gone(e);
	} else if (e->killing) {
		exec_kill(e, 0); /* the grace is over */
	} else if (!is_dead(e)) {
		e->timed_out = true;
		exec_kill(e, e->grace_ms);
	}
}

static void phase_due(struct loop_timer *t)
{
	struct exec *e = container_of(t, struct exec, phase);

	if (e->state == EXEC_RUNNING) {
		e->held = false;
		exec_outputs_open(e);
	} else if (e->state == EXEC_DRAINING) {
		exec_outputs_give_up(e);
	} else {
		expire_due(e);
	}
}

static void orphan_due(struct loop_timer *t)
{
	struct exec *e = container_of(t, struct exec, orphan);

	log_info("exec %s: its owner was lost and nobody came back, ended", e->id);
	exec_cancel(e, 0);
}

int exec_resize(struct exec *e, uint32_t rows, uint32_t cols, struct hutch_error *err)
{
	if (!e->pty)
		return hutch_error_set(err, HUTCH_E_STATE, 0, "exec \"%s\" has no terminal", e->id);
	if (e->out[0].src.fd < 0)
		return hutch_error_set(err, HUTCH_E_STATE, 0, "exec \"%s\" has ended", e->id);
	if (pty_resize(e->out[0].src.fd, rows, cols) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno,
				       "the terminal of exec \"%s\" cannot be resized", e->id);
	e->rows = rows;
	e->cols = cols;
	return 0;
}

int exec_signal(struct exec *e, int sig, bool tree, struct hutch_error *err)
{
	if (tree) { /* also to the survivors of one that ended */
		tree_signal(e, sig);
		return 0;
	}
	if (e->state != EXEC_RUNNING)
		return hutch_error_set(err, HUTCH_E_STATE, 0, "exec \"%s\" has ended", e->id);
	if (kill(-e->pid, sig) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno,
				       "signal %d cannot be sent to exec \"%s\"", sig, e->id);
	return 0;
}

/* Input */

/* Nobody reads it any more. */
static void input_closed(struct exec *e)
{
	loop_close(&e->in);
	attach_stdin_closed(e);
	exec_resume_input(e);
}

void exec_resume_input(struct exec *e)
{
	list_for_each(it, &e->links) {
		struct exec_link *l = container_of(it, struct exec_link, link);

		if (l->waits_input) {
			l->waits_input = false;
			conn_resume(container_of(l, struct conn, x));
		}
	}
}

static void input_ready(struct loop_source *src, uint32_t events)
{
	struct exec *e = container_of(src, struct exec, in);

	if (events & (EPOLLERR | EPOLLHUP)) {
		input_closed(e);
		return;
	}
	loop_watch(src, EPOLLERR);
	exec_resume_input(e);
}

void exec_input_wait(struct exec_link *l)
{
	l->waits_input = true;
	loop_watch(&l->exec->in, EPOLLOUT | EPOLLERR);
}

size_t exec_input(struct exec *e, const uint8_t *p, size_t n)
{
	ssize_t put;

	if (e->in.fd < 0 || !n)
		return n;
	do {
		put = write(e->in.fd, p, n);
	} while (put < 0 && errno == EINTR);
	if (put > 0) {
		e->in_line = !pty_ends_line(p[put - 1]);
		return (size_t)put;
	}
	if (put == 0 || errno == EAGAIN)
		return 0;
	input_closed(e);
	return n;
}

bool exec_input_end(struct exec *e)
{
	bool line_mode = false;
	uint8_t eof;
	int c;

	if (!e->pty || e->in.fd < 0) {
		loop_close(&e->in);
		exec_resume_input(e);
		return true;
	}
	c = pty_eof_char(e->in.fd, &line_mode);
	if (c < 0)
		return true;
	eof = (uint8_t)c;
	if (line_mode && e->in_line) { /* the first hands over the half line */
		if (exec_input(e, &eof, 1) == 0)
			return false;
		e->in_line = false;
	}
	return exec_input(e, &eof, 1) == 1;
}

/* Links */

void exec_wake_links(struct exec *e)
{
	list_for_each(it, &e->links)
		conn_wake(container_of(container_of(it, struct exec_link, link), struct conn, x));
}

void exec_link(struct exec *e, struct exec_link *l)
{
	l->exec = e;
	list_add_tail(&e->links, &l->link);
}

void exec_set_owner(struct exec *e, struct exec_link *l)
{
	if (e->owner)
		e->owner->owner = false;
	e->owner = l;
	l->owner = true;
	loop_timer_clear(&e->orphan);
	exec_reader_moved(e);
}

void exec_unlink(struct exec_link *l, bool lost)
{
	struct exec *e = l->exec;

	if (!e)
		return;
	list_del(&l->link);
	l->exec = NULL;
	if (e->owner == l) {
		e->owner = NULL;
		if (lost && e->state == EXEC_RUNNING)
			loop_timer_after_ms(&e->orphan, AGENT_ORPHAN_MS);
		exec_reader_moved(e);
	}
	l->owner = false;
	maybe_forget(e);
}

void exec_init(struct exec *e)
{
	memset(e, 0, sizeof(*e));
	list_init(&e->links);
	list_init(&e->link);
	list_init(&e->by_id);
	list_init(&e->by_key);
	list_init(&e->by_pid);
	loop_source_init(&e->in, -1, input_ready);
	e->tty_fd = -1;
	e->limit.due = limit_due;
	e->phase.due = phase_due;
	e->orphan.due = orphan_due;
	for (int s = 0; s < 2; s++) {
		loop_source_init(&e->out[s].src, -1, exec_output_ready);
		e->out[s].exec = e;
	}
}
