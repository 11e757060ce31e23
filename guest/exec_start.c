/* SPDX-License-Identifier: Apache-2.0 */
/* Starting an exec: descriptors, user, environment, the child; and what is said when it does not start. */
#include "guest/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/env.h"
#include "guest/exec_table.h"
#include "guest/limits.h"
#include "guest/log.h"
#include "guest/pty.h"
#include "guest/spawn.h"

#define ETC "/etc"

/* What lives only while an exec is started. The child's ends of the descriptors are closed after. */
struct starting {
	const struct exec_request *rq;
	struct exec *e;
	struct user user;
	struct env env;
	char cwd[4096];
	int child_fd[3]; /* -1: none, or not to be closed */
	struct spawn spawn;
};

/* One at a time; spawn_run ends before the next begins. */
static struct starting st;

/* User */

/* The agent's own entry changes rarely, and is asked for by every exec that names no user. */
static void own_user(struct user *u)
{
	static struct user cached;
	static struct stat seen;
	static bool valid;
	struct stat now = {0};

	if (stat(ETC "/passwd", &now) < 0)
		memset(&now, 0, sizeof(now));
	if (!valid || now.st_ino != seen.st_ino || now.st_dev != seen.st_dev ||
	    now.st_size != seen.st_size || now.st_ctim.tv_sec != seen.st_ctim.tv_sec ||
	    now.st_ctim.tv_nsec != seen.st_ctim.tv_nsec) {
		user_describe(ETC, geteuid(), &cached);
		seen = now;
		valid = true;
	}
	*u = cached;
}

static int find_user(struct hutch_error *err)
{
	const char *spec = st.rq->start->user;

	if (!spec) {
		own_user(&st.user);
		st.spawn.user = NULL;
		return 0;
	}
	if (user_lookup(ETC, spec, &st.user, err) < 0)
		return -1;
	st.spawn.user = &st.user;
	return 0;
}

/* Descriptors */

/* The agent's end does not block; the child's does. */
static int make_pipe(struct loop_source *ours, int *theirs, bool we_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -1;
	ours->fd = p[we_write];
	*theirs = p[!we_write];
	return fcntl(ours->fd, F_SETFL, O_NONBLOCK | (we_write ? O_WRONLY : 0));
}

static int open_pipes(void)
{
	struct exec *e = st.e;

	if (st.rq->stdin_open) {
		if (make_pipe(&e->in, &st.child_fd[0], true) < 0)
			return -1;
		st.spawn.stdin_fd = st.child_fd[0];
	} else {
		st.spawn.stdin_fd = agent.null_fd;
	}
	if (make_pipe(&e->out[0].src, &st.child_fd[1], false) < 0)
		return -1;
	st.spawn.stdout_fd = st.spawn.stderr_fd = st.child_fd[1];
	if (st.rq->start->merge_stderr)
		return 0;
	if (make_pipe(&e->out[1].src, &st.child_fd[2], false) < 0)
		return -1;
	st.spawn.stderr_fd = st.child_fd[2];
	return 0;
}

static int open_terminal(void)
{
	const struct exec_start *m = st.rq->start;
	struct exec *e = st.e;

	if (pty_open(&e->out[0].src.fd, &e->tty_fd, m->rows, m->cols,
		     st.spawn.user ? st.user.uid : (uid_t)-1) < 0)
		return -1;
	e->in.fd = fcntl(e->out[0].src.fd, F_DUPFD_CLOEXEC, 3);
	if (e->in.fd < 0)
		return -1;
	e->rows = m->rows;
	e->cols = m->cols;
	st.spawn.stdin_fd = st.spawn.stdout_fd = st.spawn.stderr_fd = e->tty_fd;
	st.spawn.tty = true;
	return 0;
}

static void close_child_fds(void)
{
	for (int i = 0; i < 3; i++) {
		if (st.child_fd[i] >= 0)
			close(st.child_fd[i]);
		st.child_fd[i] = -1;
	}
}

/* The command's directory: its HOME, when it has one and names no other; relative ones start there. */
static int set_cwd(struct hutch_error *err)
{
	const char *cwd = st.rq->start->cwd, *home = st.env.home ? st.env.home : "/";
	int n;

	st.spawn.cwd = st.cwd;
	st.spawn.cwd_optional = !cwd;
	if (cwd && cwd[0] != '/')
		n = snprintf(st.cwd, sizeof(st.cwd), "%s/%s", home, cwd);
	else
		n = snprintf(st.cwd, sizeof(st.cwd), "%s", cwd ? cwd : home);
	if (n >= (int)sizeof(st.cwd))
		return hutch_error_set(err, HUTCH_E_INVALID, ENAMETOOLONG,
				       "cwd is longer than %zu bytes", sizeof(st.cwd) - 1);
	return 0;
}

/* What went wrong, for the result */

static const char *failure_kind(const struct spawn *s)
{
	switch (s->failed) {
	case SPAWN_CHDIR:
		return "cwd";
	case SPAWN_GROUPS:
	case SPAWN_SETGID:
	case SPAWN_SETUID:
		return "user";
	case SPAWN_INTERPRETER:
		return "not_found";
	default:
		break;
	}
	switch (s->errnum) {
	case ENOENT:
	case ENOTDIR:
		return s->failed == SPAWN_EXEC ? "not_found" : "io";
	case EACCES:
	case EPERM:
		return "denied";
	case ENOEXEC:
		return "format";
	case E2BIG:
	case EAGAIN:
	case ENOMEM:
	case EMFILE:
	case ENFILE:
		return "limit";
	default:
		return "io";
	}
}

static void describe_failure(const struct spawn *s, const char *program, struct exec_result *res)
{
	const char *path = s->failed == SPAWN_CHDIR ? s->cwd : s->path[0] ? s->path : program;
	size_t size = sizeof(res->start_error.message);

	snprintf(res->start_error.kind, sizeof(res->start_error.kind), "%s", failure_kind(s));
	snprintf(res->start_error.stage, sizeof(res->start_error.stage), "%s",
		 spawn_stage_name(s->failed));
	snprintf(res->start_error.path, sizeof(res->start_error.path), "%.255s", path);
	res->start_error.errnum = s->errnum;
	if (s->failed == SPAWN_CHDIR)
		snprintf(res->start_error.message, size,
			 "the working directory \"%.200s\" cannot be entered: %s", path,
			 strerror(s->errnum));
	else if (s->failed == SPAWN_INTERPRETER)
		snprintf(res->start_error.message, size,
			 "\"%.200s\" is there, but the interpreter that it names is not", path);
	else if (s->failed == SPAWN_EXEC && s->search && s->errnum == ENOENT)
		snprintf(res->start_error.message, size,
			 "there is no program \"%.200s\" in the PATH \"%.200s\"", program,
			 s->search);
	else
		snprintf(res->start_error.message, size, "\"%.200s\" cannot be started: %s: %s",
			 path, spawn_stage_name(s->failed), strerror(s->errnum));
}

static void refused(const struct spawn *s, struct exec_result *res)
{
	memset(res, 0, sizeof(*res));
	memcpy(res->id, st.e->id, sizeof(res->id));
	describe_failure(s, st.rq->start->argv[0], res);
	res->exit_code = strcmp(res->start_error.kind, "not_found") == 0 ? 127 : 126;
}

/* Descriptors could not be had: told as the program's start error, like all that the system refuses. */
static void refused_stdio(struct exec_result *res)
{
	st.spawn.failed = st.rq->start->pty ? SPAWN_TTY : SPAWN_STDIO;
	st.spawn.errnum = errno;
	refused(&st.spawn, res);
}

/* The exec object */

/* As much of argv as there is room for, encoded once for exec.list. */
static void keep_argv(struct exec *e, const struct exec_start *m)
{
	struct mp_buf b;
	size_t n = m->argc;

	mp_buf_init(&b, sizeof(e->argv));
	for (;; n /= 2) {
		mp_array_begin(&b);
		for (size_t i = 0; i < n; i++)
			mp_put_strn(&b, m->argv[i], strnlen(m->argv[i], AGENT_ARGV_KEPT / 4));
		mp_array_end(&b);
		if (!b.failed || !n)
			break;
		mp_buf_reset(&b);
	}
	if (!b.failed) {
		memcpy(e->argv, b.data, b.len);
		e->argv_len = (uint16_t)b.len;
	}
	mp_buf_free(&b);
}

static void choose_id(struct exec *e, const char *wanted)
{
	static uint64_t serial, chosen;

	e->serial = ++serial;
	if (*wanted) {
		snprintf(e->id, sizeof(e->id), "%s", wanted);
		return;
	}
	do {
		snprintf(e->id, sizeof(e->id), "e%llu", (unsigned long long)++chosen);
	} while (exec_find(e->id));
}

static struct exec *new_exec(const struct exec_request *rq)
{
	const struct exec_start *m = rq->start;
	struct exec *e = malloc(sizeof(*e));

	if (!e)
		return NULL;
	exec_init(e);
	choose_id(e, rq->id);
	snprintf(e->key, sizeof(e->key), "%s", rq->key);
	e->params_hash = rq->params_hash;
	e->detach = m->detach;
	e->resumable = m->resumable;
	e->pty = m->pty;
	e->output_limit = m->output_limit;
	e->grace_ms = m->grace_ms;
	e->drain_ms = m->drain_ms;
	keep_argv(e, m);
	return e;
}

/* It never ran. */
static void discard(struct exec *e)
{
	loop_close(&e->in);
	loop_close(&e->out[0].src);
	loop_close(&e->out[1].src);
	if (e->tty_fd >= 0)
		close(e->tty_fd);
	tree_release(&e->tree);
	free(e);
}

static void hold(struct exec *e)
{
	uint64_t now = loop_now(), ns = (now - e->started_ns) * AGENT_HOLD_STARTS;

	if (ns < AGENT_HOLD_MIN_MS * 1000000u)
		ns = AGENT_HOLD_MIN_MS * 1000000u;
	if (ns > AGENT_HOLD_MAX_MS * 1000000u)
		ns = AGENT_HOLD_MAX_MS * 1000000u;
	loop_timer_set(&e->phase, now + ns);
}

static void running(struct exec *e)
{
	const struct exec_start *m = st.rq->start;

	e->pid = st.spawn.pid;
	exec_table_add(e);
	log_debug("exec %s: started as pid %d", e->id, (int)e->pid);
	if (m->timeout_ms)
		loop_timer_set(&e->limit, e->started_ns + m->timeout_ms * 1000000u);
	if (e->in.fd >= 0)
		loop_watch(&e->in, EPOLLERR);
	e->held = !e->pty && !st.rq->stdin_open;
	if (e->held)
		hold(e);
	else
		exec_outputs_open(e);
}

static int prepare(struct hutch_error *err)
{
	const struct exec_start *m = st.rq->start;
	const struct tree_limits limits = {
		.memory_bytes = m->memory_bytes,
		.pids = m->pids,
		.cpu_percent = m->cpu_percent,
		.apart = st.rq->apart,
	};

	if (find_user(err) < 0)
		return -1;
	if (env_build(&st.env, m, &st.user) < 0)
		return hutch_error_set(err, HUTCH_E_BUSY, ENOMEM, "no memory for the environment");
	if (set_cwd(err) < 0)
		return -1;
	return tree_prepare(&st.e->tree, &limits, err);
}

static int run(void)
{
	const struct exec_start *m = st.rq->start;
	struct spawn *s = &st.spawn;

	s->argv = m->argv;
	s->envp = st.env.vec;
	s->search = strchr(m->argv[0], '/') ? NULL : st.env.path;
	s->cgroup_fd = tree_cgroup_fd(&st.e->tree);
	s->timer_slack = tree_timer_slack(&st.e->tree);
	st.e->started_ns = loop_now();
	return spawn_run(s);
}

int exec_start(const struct exec_request *rq, struct exec **out, struct exec_result *res,
	       struct hutch_error *err)
{
	int ret = -1;

	if (exec_living() >= AGENT_MAX_EXECS)
		return hutch_error_set(err, HUTCH_E_BUSY, 0, "%u execs are running, no more can be",
				       AGENT_MAX_EXECS);
	memset(&st.spawn, 0, offsetof(struct spawn, path));
	st.env = (struct env){0};
	st.rq = rq;
	st.child_fd[0] = st.child_fd[1] = st.child_fd[2] = -1;
	st.e = new_exec(rq);
	if (!st.e)
		return hutch_error_set(err, HUTCH_E_BUSY, ENOMEM, "no memory for an exec");
	if (prepare(err) == 0) {
		ret = 1;
		if ((rq->start->pty ? open_terminal() : open_pipes()) < 0)
			refused_stdio(res);
		else if (run() < 0)
			refused(&st.spawn, res);
		else
			ret = 0;
	}
	close_child_fds();
	env_free(&st.env);
	if (ret == 0) {
		*out = st.e;
		running(st.e);
	} else {
		discard(st.e);
	}
	st.e = NULL;
	return ret;
}
