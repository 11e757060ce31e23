/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VMM process, from its start or adoption to its end.
 *
 *   SPAWNING    the launcher was asked to start it
 *   CONNECTING  the process lives; QMP: greeting, qmp_capabilities, query-status (and cont when
 *               it was adopted and is stopped)
 *   UP          up was called
 *   REAPING     the process is dead; the launcher is asked how it ended, and ends what it left
 *   OVER        failed or exited was called
 *
 * There is one way to the end: the pidfd becomes readable. What goes wrong while CONNECTING is
 * noted in failure and the process killed; the rest is the same as for a death of its own.
 */
#include "host/hutchd/vmm.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/console.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_job.h"
#include "host/hutchd/log.h"
#include "host/hutchd/process.h"
#include "host/hutchd/qmp.h"
#include "host/hutchd/vmm_end.h"
#include "host/hutchd/vmm_lease.h"
#include "host/hutchd/vmm_ops.h"
#include "host/hutchd/vmm_restore.h"
#include "host/hutchd/vmm_saving.h"

#define SOCKET_BACKLOG	  128
#define QMP_COMMAND_MS	  10000u
#define EXIT_AFTER_EOF_MS 500u /* a VMM that closes QMP is about to end; how it ends says more */
#define LOG_TAIL_BYTES	  1024u

enum vmm_state { VMM_SPAWNING, VMM_CONNECTING, VMM_UP, VMM_REAPING, VMM_OVER };

static const char *const state_names[] = {
	[VMM_SPAWNING] = "spawning",
	[VMM_CONNECTING] = "connecting",
	[VMM_UP] = "up",
	[VMM_REAPING] = "reaping",
	[VMM_OVER] = "over",
};

struct vmm {
	struct vmm_config config; /* without tpl */
	struct event_base *base;
	struct launcher *launcher;
	const struct vmm_callbacks *cb;
	void *arg;
	enum vmm_state state;
	bool adopted, was_up;
	bool restored, loading; /* loading: its device state, and the guest is not there yet */
	bool kill_asked;	/* vmm_kill was called */
	bool qmp_closed;	/* CONNECTING: it closed QMP, and has a moment to end by itself */
	struct vmm_process process;
	int pidfd;
	struct event *exit_event;  /* pidfd readable */
	struct event *limit_event; /* CONNECTING: qmp_timeout_ms */
	struct launch_job *job;	   /* SPAWNING, REAPING */
	struct qmp *qmp;
	bool stopped; /* the guest, as QMP last said */
	struct vmm_ops *ops;
	struct vmm_saving *saving; /* a capture that is under way */
	struct vmm_state_file state_file;
	vmm_captured_fn *captured;
	void *captured_arg;
	bool *freed; /* set by vmm_free, while a callback runs that may call it */
	struct vmm_lease *lease;
	char version[64];
	char shutdown[32];	    /* QMP's SHUTDOWN reason; empty: there was none */
	struct hutch_error failure; /* why it never came up, or HUTCH_OK */
	uint64_t start_us, spawn_us;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void set_state(struct vmm *v, enum vmm_state state)
{
	log_debug(v->config.id, "VMM %s -> %s", state_names[v->state], state_names[state]);
	v->state = state;
}

/* ---- its end ---- */

/* The failure that was noted, or the early end itself; then the tail of vmm.log. */
static void tell_failed(struct vmm *v, const struct vmm_end *how)
{
	struct hutch_error err = v->failure;
	char end[320], tail[LOG_TAIL_BYTES], message[sizeof(err.message)];

	if (err.kind == HUTCH_OK) {
		vmm_describe_end(how, end, sizeof(end));
		hutch_error_set(&err, HUTCH_E_START_FAILED, 0, "the VMM ended at once: %s", end);
		snprintf(err.stage, sizeof(err.stage), "qmp");
	}
	if (log_tail(v->config.rundir_fd, VMM_LOG, tail, sizeof(tail)) > 0) {
		snprintf(message, sizeof(message), "%.*s; vmm.log ends with:\n%s", 900, err.message,
			 tail);
		memcpy(err.message, message, sizeof(err.message));
	}
	v->cb->failed(v->arg, &err);
}

static void finish(struct vmm *v, int wait_status)
{
	struct vmm_end how = {v->config.rundir_fd, v->shutdown, v->kill_asked, wait_status};
	char reason[320];

	set_state(v, VMM_OVER);
	if (!v->was_up && !(v->kill_asked && v->failure.kind == HUTCH_OK)) {
		tell_failed(v, &how);
		return;
	}
	vmm_describe_end(&how, reason, sizeof(reason));
	v->cb->exited(v->arg, reason);
}

static void on_reaped(void *arg, const struct launch_reply *reply, int pidfd)
{
	struct vmm *v = arg;

	(void)pidfd; /* a REAP has none */
	v->job = NULL;
	if (reply->errnum)
		log_warn(v->config.id, "processes that the VMM left behind: %s: %s", reply->stage,
			 strerror(reply->errnum));
	else if (reply->killed > 0)
		log_info(v->config.id, "ended %u processes that the VMM left behind",
			 reply->killed);
	finish(v, reply->wait_status);
}

static struct launch_job *submit_reap(struct launcher *launcher, const char *id,
				      const struct vmm_process *process, launch_done_fn *done,
				      void *arg)
{
	struct launch_request req = {.op = LAUNCH_REAP};

	snprintf(req.reap.id, sizeof(req.reap.id), "%s", id);
	req.reap.pid = process->pid;
	req.reap.start_time = process->start_time;
	return launcher_submit(launcher, &req, NULL, 0, done, arg);
}

static void on_exit_event(evutil_socket_t fd, short what, void *arg)
{
	struct vmm *v = arg;

	(void)fd;
	(void)what;
	event_del(v->exit_event);
	event_del(v->limit_event);
	set_state(v, VMM_REAPING);
	if (v->qmp)
		qmp_drain(v->qmp); /* why it ended may be its last message */
	qmp_free(v->qmp);
	v->qmp = NULL;
	vmm_ops_abort(v->ops);
	if (v->saving)
		vmm_saving_abort(v->saving);
	v->job = submit_reap(v->launcher, v->config.id, &v->process, on_reaped, v);
	if (v->job)
		return;
	log_errno(LOG_LEVEL_WARN, v->config.id, "its end could not be looked into");
	finish(v, LAUNCH_STATUS_UNKNOWN);
}

/* ---- from the process to up ---- */

static void kill_process(struct vmm *v)
{
	if (v->pidfd >= 0 && process_signal(v->pidfd, SIGKILL) < 0 && errno != ESRCH)
		log_errno(LOG_LEVEL_ERROR, v->config.id, "kill of VMM %ld", (long)v->process.pid);
}

/* It will not come up. Only the first reason counts, and none after vmm_kill. */
static void fail(struct vmm *v, const char *stage, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void fail(struct vmm *v, const char *stage, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (v->failure.kind == HUTCH_OK && !v->kill_asked) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		hutch_error_set(&v->failure, HUTCH_E_START_FAILED, 0, "%s", text);
		snprintf(v->failure.stage, sizeof(v->failure.stage), "%s", stage);
	}
	kill_process(v);
}

static void set_limit(struct vmm *v, uint64_t ms)
{
	struct timeval tv = {.tv_sec = (time_t)(ms / 1000),
			     .tv_usec = (suseconds_t)(ms % 1000) * 1000};

	event_add(v->limit_event, &tv);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct vmm *v = arg;

	(void)fd;
	(void)what;
	if (v->qmp_closed)
		fail(v, "qmp", "the VMM closed its QMP socket");
	else
		fail(v, "qmp", "the VMM did not answer QMP within %" PRIu64 " ms",
		     v->config.qmp_timeout_ms);
}

static void command(struct vmm *v, const char *name, qmp_done_fn *done)
{
	if (qmp_command(v->qmp, name, NULL, QMP_COMMAND_MS, done, v) < 0)
		fail(v, "qmp", "QMP command %s: %s", name, strerror(errno));
}

static void command_failed(struct vmm *v, const char *name, const char *error)
{
	if (!v->qmp_closed)
		fail(v, "qmp", "QMP command %s failed: %s", name, error);
}

static void come_up(struct vmm *v)
{
	event_del(v->limit_event);
	set_state(v, VMM_UP);
	v->was_up = true;
	v->cb->up(v->arg, v->version, v->spawn_us, now_us() - v->start_us - v->spawn_us);
}

static void on_continued(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;

	if (!value)
		command_failed(v, "cont", error);
	else
		come_up(v);
}

static void on_status(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;
	const char *status = json_string_value(json_object_get(value, "status"));

	if (!value) {
		command_failed(v, "query-status", error);
	} else if (json_is_true(json_object_get(value, "running"))) {
		come_up(v);
	} else if (v->restored && status && strcmp(status, "inmigrate") == 0) {
		v->loading = true; /* a MIGRATION event follows */
	} else if (v->config.leave_stopped && status && strcmp(status, "paused") == 0) {
		v->stopped = true;
		come_up(v);
	} else if (v->adopted && status && strcmp(status, "paused") == 0) {
		/* An earlier broker stopped it for a moment and did not live to resume it. */
		log_info(v->config.id, "was stopped, is resumed");
		command(v, "cont", on_continued);
	} else {
		fail(v, "qmp", "the guest is not running, but %.40s", status ? status : "nothing");
	}
}

static void on_capabilities(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;

	if (!value)
		command_failed(v, "qmp_capabilities", error);
	else
		command(v, "query-status", on_status);
}

static void on_greeting(void *arg, const char *version)
{
	struct vmm *v = arg;

	if (v->version[0])
		return; /* once is enough */
	snprintf(v->version, sizeof(v->version), "%s", version);
	command(v, "qmp_capabilities", on_capabilities);
}

/* A load that fails ends QEMU, which says why in its log. */
static void on_load_event(struct vmm *v, const char *status)
{
	if (!v->loading || !status || strcmp(status, "completed") != 0)
		return;
	v->loading = false;
	command(v, "query-status", on_status);
}

static void on_qmp_event(void *arg, const char *name, const json_t *data)
{
	struct vmm *v = arg;
	const char *reason = json_string_value(json_object_get(data, "reason"));

	log_debug(v->config.id, "QMP event %s%s%s", name, reason ? " " : "", reason ? reason : "");
	if (strcmp(name, "SHUTDOWN") == 0 && reason)
		snprintf(v->shutdown, sizeof(v->shutdown), "%s", reason);
	else if (strcmp(name, "GUEST_PANICKED") == 0)
		snprintf(v->shutdown, sizeof(v->shutdown), "guest-panic");
	else if (strcmp(name, "MIGRATION") == 0)
		on_load_event(v, json_string_value(json_object_get(data, "status")));
	else if (strcmp(name, "STOP") == 0)
		v->stopped = true;
	else if (strcmp(name, "RESUME") == 0)
		v->stopped = false;
}

static void on_qmp_lost(void *arg, const char *why, bool broken)
{
	struct vmm *v = arg;

	if (v->state == VMM_REAPING)
		return;
	if (broken) {
		/*
		 * Whatever speaks there is no QEMU in good health; nothing that it says can be
		 * relied on.
		 */
		log_warn(v->config.id, "QMP: %s; the VMM is killed", why);
		fail(v, "qmp", "QMP: %s", why);
	} else if (v->state == VMM_CONNECTING) {
		v->qmp_closed = true;
		set_limit(v, EXIT_AFTER_EOF_MS);
	} else {
		log_debug(v->config.id, "QMP: %s", why);
	}
}

static const struct qmp_callbacks qmp_callbacks = {
	.greeting = on_greeting,
	.event = on_qmp_event,
	.lost = on_qmp_lost,
};

static void connect_qmp(struct vmm *v)
{
	set_state(v, VMM_CONNECTING);
	v->qmp = qmp_connect(v->base, v->config.rundir_fd, "qmp", &qmp_callbacks, v);
	if (v->qmp) {
		set_limit(v, v->config.qmp_timeout_ms);
	} else if (errno == ECONNREFUSED) {
		/* Nobody listens any more: it has ended, which is told in a moment. */
		v->qmp_closed = true;
		set_limit(v, EXIT_AFTER_EOF_MS);
	} else {
		fail(v, "qmp", "connect to the VMM's QMP socket: %s", strerror(errno));
	}
}

/* ---- start ---- */

static void spawn_failed(struct vmm *v, const struct launch_reply *r)
{
	bool missing = strcmp(r->stage, "exec") == 0 && r->errnum == ENOENT;
	struct hutch_error *e = &v->failure;

	hutch_error_set(e, HUTCH_E_START_FAILED, r->errnum,
			"the VMM could not be started: %s%s%s: %s%s", r->stage,
			r->path[0] ? " " : "", r->path, strerror(r->errnum),
			missing ? " (is QEMU installed?)" : "");
	snprintf(e->stage, sizeof(e->stage), "%s", r->stage);
	snprintf(e->path, sizeof(e->path), "%.*s", (int)sizeof(e->path) - 1, r->path);
	finish(v, LAUNCH_STATUS_UNKNOWN);
}

static void on_spawned(void *arg, const struct launch_reply *reply, int pidfd)
{
	struct vmm *v = arg;

	v->job = NULL;
	if (reply->errnum) {
		spawn_failed(v, reply);
		return;
	}
	v->spawn_us = now_us() - v->start_us;
	v->process = (struct vmm_process){(pid_t)reply->pid, reply->start_time};
	v->pidfd = pidfd;
	event_assign(v->exit_event, v->base, pidfd, EV_READ | EV_PERSIST, on_exit_event, v);
	event_add(v->exit_event, NULL);
	if (v->kill_asked)
		kill_process(v);
	connect_qmp(v);
	v->cb->spawned(v->arg, &v->process);
}

static struct vmm *new_vmm(struct event_base *base, struct launcher *launcher,
			   const struct vmm_config *config, const struct vmm_callbacks *cb,
			   void *arg)
{
	struct vmm *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	v->config = *config;
	v->config.tpl = NULL;
	v->config.restore = NULL;
	v->restored = config->restore;
	if (v->restored)
		v->config.leave_stopped = config->restore->stopped;
	v->base = base;
	v->launcher = launcher;
	v->cb = cb;
	v->arg = arg;
	v->pidfd = v->state_file.fd = -1;
	v->start_us = now_us();
	v->exit_event = event_new(base, -1, 0, on_exit_event, v);
	v->limit_event = event_new(base, -1, 0, on_limit, v);
	v->lease = vmm_lease_new(base, config->rundir_fd, v->config.id);
	v->ops = vmm_ops_new(base);
	if (!v->exit_event || !v->limit_event || !v->lease || !v->ops) {
		vmm_free(v);
		return NULL;
	}
	return v;
}

static void fill_spawn(struct launch_spawn *s, const struct vmm_config *c)
{
	snprintf(s->id, sizeof(s->id), "%s", c->id);
	snprintf(s->template_name, sizeof(s->template_name), "%s", c->tpl->name);
	snprintf(s->kernel, sizeof(s->kernel), "%s", c->tpl->kernel);
	snprintf(s->initramfs, sizeof(s->initramfs), "%s", c->tpl->initramfs);
	snprintf(s->root, sizeof(s->root), "%s", c->tpl->root);
	snprintf(s->cmdline, sizeof(s->cmdline), "%s", c->tpl->cmdline);
	s->accel = c->accel == ACCEL_KVM ? LAUNCH_KVM : LAUNCH_TCG;
	s->memory_mib = c->memory_mib;
	s->vcpus = c->vcpus;
	s->cid = c->cid;
	s->uid = c->uid;
	s->flags = c->tied ? LAUNCH_TIED : 0;
	if (c->restore) {
		s->flags |= LAUNCH_RESTORE | (c->restore->stopped ? LAUNCH_STOPPED : 0);
		s->layers = (uint32_t)c->restore->nlayers;
	}
	s->deadline_ms = c->deadline_ms;
}

static const char *const socket_names[] = {
	[SPAWN_FD_VSOCK] = "vsock",
	[SPAWN_FD_QMP] = "qmp",
	[SPAWN_FD_CTL] = "ctl",
};

/* The VMM's listening sockets. On failure none is left. */
static int bind_sockets(int rundir_fd, int *fds, struct hutch_error *err)
{
	for (int i = SPAWN_FD_VSOCK; i < LAUNCH_SPAWN_FDS; i++) {
		fds[i] = unix_listen(rundir_fd, socket_names[i], SOCK_STREAM, SOCKET_BACKLOG);
		if (fds[i] >= 0)
			continue;
		hutch_error_set(err, HUTCH_E_START_FAILED, errno, "the VM's socket %s: %s",
				socket_names[i], strerror(errno));
		while (--i >= SPAWN_FD_VSOCK) {
			fd_close(&fds[i]);
			unlinkat(rundir_fd, socket_names[i], 0);
		}
		return -1;
	}
	return 0;
}

static void close_sockets(int rundir_fd, int *fds, bool also_remove)
{
	for (int i = SPAWN_FD_VSOCK; i < LAUNCH_SPAWN_FDS; i++) {
		fd_close(&fds[i]);
		if (also_remove)
			unlinkat(rundir_fd, socket_names[i], 0);
	}
}

struct vmm *vmm_start(struct event_base *base, struct launcher *launcher,
		      const struct vmm_config *config, const struct vmm_callbacks *cb, void *arg,
		      struct hutch_error *err)
{
	struct launch_request req = {.op = LAUNCH_SPAWN};
	int fds[LAUNCH_MAX_FDS] = {[SPAWN_FD_RUNDIR] = config->rundir_fd, [SPAWN_FD_DEVICE] = -1};
	size_t nfds = LAUNCH_SPAWN_FDS;
	struct vmm *v = new_vmm(base, launcher, config, cb, arg);

	if (!v) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	if ((config->restore && vmm_restore_fds(config->restore, fds, &nfds, err) < 0) ||
	    bind_sockets(config->rundir_fd, fds, err) < 0) {
		fd_close(&fds[SPAWN_FD_DEVICE]);
		vmm_free(v);
		return NULL;
	}
	fill_spawn(&req.spawn, config);
	v->job = launcher_submit(launcher, &req, fds, nfds, on_spawned, v);
	fd_close(&fds[SPAWN_FD_DEVICE]);
	if (!v->job) {
		hutch_error_set(err, HUTCH_E_START_FAILED, errno,
				"the launcher cannot be asked: %s", strerror(errno));
		close_sockets(config->rundir_fd, fds, true);
		vmm_free(v);
		return NULL;
	}
	close_sockets(config->rundir_fd, fds, false);
	return v;
}

struct vmm *vmm_adopt(struct event_base *base, struct launcher *launcher,
		      const struct vmm_config *config, const struct vmm_process *process,
		      const struct vmm_callbacks *cb, void *arg, struct hutch_error *err)
{
	struct vmm *v;
	int pidfd = process_open(process->pid, process->start_time);

	if (pidfd < 0) {
		hutch_error_set(err, errno == ESRCH ? HUTCH_E_NOT_FOUND : HUTCH_E_IO, errno,
				"VMM process %ld: %s", (long)process->pid,
				errno == ESRCH ? "it is gone" : strerror(errno));
		/* What it left behind goes too. */
		submit_reap(launcher, config->id, process, NULL, NULL);
		return NULL;
	}
	v = new_vmm(base, launcher, config, cb, arg);
	if (!v) {
		fd_close(&pidfd);
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	v->adopted = true;
	v->process = *process;
	v->pidfd = pidfd;
	event_assign(v->exit_event, base, pidfd, EV_READ | EV_PERSIST, on_exit_event, v);
	event_add(v->exit_event, NULL);
	connect_qmp(v);
	return v;
}

/* ---- what the broker asks of it ---- */

void vmm_kill(struct vmm *v)
{
	v->kill_asked = true;
	kill_process(v);
}

void vmm_renew(struct vmm *v, uint64_t deadline_ms)
{
	if (v->state == VMM_CONNECTING || v->state == VMM_UP)
		vmm_lease_renew(v->lease, deadline_ms);
}

/* Without memory even for the answer the VMM is ended, which answers as well. */
static void run_op(struct vmm *v, const char *name, vmm_done_fn *done, void *arg)
{
	if (vmm_ops_command(v->ops, v->state == VMM_UP ? v->qmp : NULL, name, done, arg))
		return;
	log_error(v->config.id, "out of memory for %s; the VMM is ended", name);
	kill_process(v);
}

void vmm_stop(struct vmm *v, vmm_done_fn *done, void *arg)
{
	run_op(v, "stop", done, arg);
}

void vmm_cont(struct vmm *v, vmm_done_fn *done, void *arg)
{
	run_op(v, "cont", done, arg);
}

bool vmm_is_stopped(const struct vmm *v)
{
	return v->stopped;
}

static void on_saved(void *arg, const struct hutch_error *err, const struct vmm_captured *captured)
{
	struct vmm *v = arg;
	bool freed = false;
	int used = v->state_file.used;

	v->state_file.used = 0;
	v->saving = NULL;
	v->freed = &freed;
	v->captured(v->captured_arg, err, captured);
	if (freed)
		return;
	v->freed = NULL;
	/* After what the callback has asked for: a guest that waits to go on comes first. */
	if (v->qmp && used)
		vmm_saving_tidy(v->qmp, used);
}

static struct qmp *begin_capture(struct vmm *v, vmm_captured_fn *done, void *arg)
{
	if (v->saving) {
		log_error(v->config.id, "a capture was asked for while one is under way");
		abort();
	}
	v->captured = done;
	v->captured_arg = arg;
	return v->state == VMM_UP ? v->qmp : NULL;
}

static void check_capture(struct vmm *v)
{
	if (v->saving)
		return;
	log_error(v->config.id, "out of memory for a capture; the VMM is ended");
	kill_process(v);
}

void vmm_capture(struct vmm *v, const struct vmm_capture_to *to, vmm_captured_fn *done, void *arg)
{
	struct qmp *q = begin_capture(v, done, arg);

	v->saving = vmm_saving_start(v->base, v->config.rundir_fd, q, to, to->data_fd,
				     &v->state_file, on_saved, v);
	check_capture(v);
}

void vmm_capture_ahead(struct vmm *v, int data_fd, vmm_captured_fn *done, void *arg)
{
	struct qmp *q = begin_capture(v, done, arg);

	v->saving = vmm_saving_start(v->base, v->config.rundir_fd, q, NULL, data_fd, &v->state_file,
				     on_saved, v);
	check_capture(v);
}

struct vmm_process vmm_get_process(const struct vmm *v)
{
	return v->process;
}

size_t vmm_console_tail(const struct vmm *v, char *out, size_t size)
{
	return log_tail(v->config.rundir_fd, CONSOLE_LOG, out, size);
}

void vmm_free(struct vmm *v)
{
	bool ending;

	if (!v)
		return;
	if (v->freed)
		*v->freed = true;
	/* Killed, and its end not looked into yet: nobody else will. */
	ending = (v->kill_asked || v->failure.kind != HUTCH_OK) &&
		 (v->state == VMM_CONNECTING || v->state == VMM_UP);
	if (v->job)
		launch_job_abandon(v->job);
	if (ending && !submit_reap(v->launcher, v->config.id, &v->process, NULL, NULL))
		log_errno(LOG_LEVEL_WARN, v->config.id, "its end could not be looked into");
	qmp_free(v->qmp);
	vmm_ops_free(v->ops);
	vmm_saving_free(v->saving);
	fd_close(&v->state_file.fd);
	vmm_lease_free(v->lease);
	if (v->exit_event)
		event_free(v->exit_event);
	if (v->limit_event)
		event_free(v->limit_event);
	fd_close(&v->pidfd);
	free(v);
}
