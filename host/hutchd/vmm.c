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
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/cgroup.h"
#include "host/hutchd/console.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_job.h"
#include "host/hutchd/log.h"
#include "host/hutchd/process.h"
#include "host/hutchd/vmm_end.h"
#include "host/hutchd/vmm_priv.h"
#include "host/hutchd/vmm_restore.h"

#define SOCKET_BACKLOG 128
#define LOG_TAIL_BYTES 1024u

static const char *const state_names[] = {
	[VMM_SPAWNING] = "spawning",
	[VMM_CONNECTING] = "connecting",
	[VMM_UP] = "up",
	[VMM_REAPING] = "reaping",
	[VMM_OVER] = "over",
};

uint64_t vmm_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void vmm_set_state(struct vmm *v, enum vmm_state state)
{
	log_debug(v->config.id, "VMM %s -> %s", state_names[v->state], state_names[state]);
	v->state = state;
}

void vmm_kill_process(struct vmm *v)
{
	if (v->pidfd >= 0 && process_signal(v->pidfd, SIGKILL) < 0 && errno != ESRCH)
		log_errno(LOG_LEVEL_ERROR, v->config.id, "kill of VMM %ld", (long)v->process.pid);
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
	struct vmm_end how = {v->config.rundir_fd, v->shutdown, v->kill_asked, wait_status, v->oom};
	char reason[320];

	vmm_set_state(v, VMM_OVER);
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
		log_warn(v->config.id, "what the VMM left behind: %s: %s", reply->stage,
			 strerror(reply->errnum));
	else if (reply->killed > 0)
		log_info(v->config.id, "ended %u processes that the VMM left behind",
			 reply->killed);
	v->oom = reply->oom;
	finish(v, reply->wait_status);
}

/* rundir_fd -1: it has no cgroup. */
static struct launch_job *submit_reap(struct launcher *launcher, const char *id, int rundir_fd,
				      const struct vmm_process *process, launch_done_fn *done,
				      void *arg)
{
	struct launch_request req = {.op = LAUNCH_REAP};
	int cgroup = rundir_fd < 0 ? -1 : cgroup_vm_file(rundir_fd);
	struct launch_job *job;

	snprintf(req.reap.id, sizeof(req.reap.id), "%s", id);
	req.reap.pid = process->pid;
	req.reap.start_time = process->start_time;
	job = launcher_submit(launcher, &req, &cgroup, cgroup < 0 ? 0 : 1, done, arg);
	fd_close(&cgroup);
	return job;
}

void vmm_tidy(struct launcher *launcher, const char *id, int rundir_fd)
{
	struct launch_request req = {.op = LAUNCH_TIDY};
	int cgroup = cgroup_vm_file(rundir_fd);

	if (cgroup < 0)
		return;
	snprintf(req.reap.id, sizeof(req.reap.id), "%s", id);
	if (!launcher_submit(launcher, &req, &cgroup, 1, NULL, NULL))
		log_errno(LOG_LEVEL_WARN, id, "its cgroup is left for the next launcher");
	fd_close(&cgroup);
}

static void on_exit_event(evutil_socket_t fd, short what, void *arg)
{
	struct vmm *v = arg;

	(void)fd;
	(void)what;
	event_del(v->exit_event);
	event_del(v->limit_event);
	vmm_set_state(v, VMM_REAPING);
	if (v->qmp)
		qmp_drain(v->qmp); /* why it ended may be its last message */
	qmp_free(v->qmp);
	v->qmp = NULL;
	vmm_ops_abort(v->ops);
	vmm_disk_abort(v->disk_op);
	if (v->saving)
		vmm_saving_abort(v->saving);
	v->job = submit_reap(v->launcher, v->config.id, v->config.rundir_fd, &v->process, on_reaped,
			     v);
	if (v->job)
		return;
	log_errno(LOG_LEVEL_WARN, v->config.id, "its end could not be looked into");
	finish(v, LAUNCH_STATUS_UNKNOWN);
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
	v->spawn_us = vmm_now_us() - v->start_us;
	v->process = (struct vmm_process){(pid_t)reply->pid, reply->start_time};
	v->pidfd = pidfd;
	event_assign(v->exit_event, v->base, pidfd, EV_READ | EV_PERSIST, on_exit_event, v);
	event_add(v->exit_event, NULL);
	if (v->kill_asked)
		vmm_kill_process(v);
	vmm_connect_qmp(v);
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
	v->config.disk = NULL;
	v->config.fork_of = NULL;
	v->forked = config->fork_of != NULL;
	v->restored = config->restore;
	if (v->restored)
		v->config.leave_stopped = config->restore->stopped;
	v->base = base;
	v->launcher = launcher;
	v->cb = cb;
	v->arg = arg;
	v->pidfd = v->state_file.fd = v->load_fd = -1;
	v->start_us = vmm_now_us();
	v->exit_event = event_new(base, -1, 0, on_exit_event, v);
	v->limit_event = event_new(base, -1, 0, vmm_on_limit, v);
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
	s->start = c->start;
	s->flags = (c->tied ? LAUNCH_TIED : 0) | (c->forkable ? LAUNCH_ZYGOTE : 0) |
		   (c->fork_of ? LAUNCH_FORKED : 0);
	if (c->restore && c->fork_of) {
		s->flags |= LAUNCH_RELOAD;
		s->layers = (uint32_t)c->restore->nlayers;
	} else if (c->restore) {
		s->flags |= LAUNCH_RESTORE | (c->restore->stopped ? LAUNCH_STOPPED : 0);
		s->layers = (uint32_t)c->restore->nlayers;
	}
	if (c->disk) {
		s->disk_layers = (uint32_t)c->disk->nlayers + 1;
		s->disk_top = c->disk->top;
	}
	s->deadline_ms = c->deadline_ms;
}

static const char *const socket_names[] = {
	[SPAWN_FD_VSOCK] = "vsock",
	[SPAWN_FD_QMP] = "qmp",
	[SPAWN_FD_CTL] = "ctl",
};

static void remove_sockets(int rundir_fd)
{
	for (int i = SPAWN_FD_VSOCK; i < LAUNCH_SPAWN_FDS; i++)
		unlinkat(rundir_fd, socket_names[i], 0);
}

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

/* Of one that is forked off another. */
static int fork_fds(struct vmm *v, const struct vmm_config *c, int *fds, size_t *nfds,
		    struct hutch_error *err)
{
	const struct vmm_restore *r = c->restore;

	fds[SPAWN_FD_ZYGOTE] = c->fork_of->config.rundir_fd;
	*nfds = SPAWN_FD_FORK_LAYERS;
	if (!r)
		return 0;
	v->load_fd = fcntl(r->device_fd, F_DUPFD_CLOEXEC, 0);
	if (v->load_fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "device state: %s", strerror(errno));
	return vmm_restore_layers(r, fds, nfds, err);
}

/* What it goes on from, if anything. */
static int origin_fds(struct vmm *v, const struct vmm_config *c, int *fds, size_t *nfds,
		      int *device, struct hutch_error *err)
{
	if (c->fork_of)
		return fork_fds(v, c, fds, nfds, err);
	if (!c->restore)
		return 0;
	if (vmm_restore_fds(c->restore, fds, nfds, err) < 0)
		return -1;
	*device = fds[SPAWN_FD_DEVICE];
	return 0;
}

struct vmm *vmm_start(struct event_base *base, struct launcher *launcher,
		      const struct vmm_config *config, const struct vmm_callbacks *cb, void *arg,
		      struct hutch_error *err)
{
	struct launch_request req = {.op = LAUNCH_SPAWN};
	int fds[LAUNCH_MAX_FDS] = {[SPAWN_FD_RUNDIR] = config->rundir_fd};
	int device = -1; /* a pipe of ours */
	size_t nfds = LAUNCH_SPAWN_FDS;
	struct vmm *v = new_vmm(base, launcher, config, cb, arg);

	if (!v) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	if (config->start > 0)
		remove_sockets(config->rundir_fd); /* of the VMM before */
	if (origin_fds(v, config, fds, &nfds, &device, err) < 0 ||
	    (config->disk && vmm_disk_fds(config->disk, fds, &nfds, err) < 0) ||
	    bind_sockets(config->rundir_fd, fds, err) < 0) {
		fd_close(&device);
		vmm_free(v);
		return NULL;
	}
	fill_spawn(&req.spawn, config);
	v->job = launcher_submit(launcher, &req, fds, nfds, on_spawned, v);
	fd_close(&device);
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
		submit_reap(launcher, config->id, config->rundir_fd, process, NULL, NULL);
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
	vmm_connect_qmp(v);
	return v;
}

/* ---- what the broker asks of it ---- */

void vmm_kill(struct vmm *v)
{
	v->kill_asked = true;
	vmm_kill_process(v);
}

void vmm_renew(struct vmm *v, uint64_t deadline_ms)
{
	if (v->state == VMM_CONNECTING || v->state == VMM_UP)
		vmm_lease_renew(v->lease, deadline_ms);
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
	if (ending &&
	    !submit_reap(v->launcher, v->config.id, v->config.rundir_fd, &v->process, NULL, NULL))
		log_errno(LOG_LEVEL_WARN, v->config.id, "its end could not be looked into");
	qmp_free(v->qmp);
	vmm_ops_free(v->ops);
	vmm_disk_free(v->disk_op);
	vmm_saving_free(v->saving);
	fd_close(&v->state_file.fd);
	fd_close(&v->load_fd);
	vmm_lease_free(v->lease);
	if (v->exit_event)
		event_free(v->exit_event);
	if (v->limit_event)
		event_free(v->limit_event);
	fd_close(&v->pidfd);
	free(v);
}
