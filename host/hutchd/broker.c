/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's life: set-up in order, the loop, the end. */
#include "host/hutchd/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/hutchd/adopt.h"
#include "host/hutchd/client.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/listen.h"
#include "host/hutchd/log.h"
#include "host/hutchd/seal.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/verify.h"
#include "host/hutchd/vm.h"
#include "host/hutchd/warm_pool.h"
#include "host/hutchd/zygote.h"

#define UNFINISHED_MS 1000 /* at the end, for VMs that were still being created to be gone */
#define GIVE_UP_MS    200  /* for the last answers to be read */

bool broker_is_admin(const struct broker *b, uint32_t uid)
{
	for (unsigned i = 0; i < b->config->admin_count; i++)
		if (b->config->admin_uids[i] == uid)
			return true;
	return uid == 0;
}

/* Each VM takes about ten descriptors, each client one or two. */
static void raise_nofile(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &r) < 0)
			log_errno(LOG_LEVEL_WARN, "broker",
				  "cannot raise the limit of descriptors");
	}
}

static int fail(struct hutch_error *err, const char *what, const char *name)
{
	return hutch_error_set(err, HUTCH_E_IO, errno, "%s %s: %s", what, name, strerror(errno));
}

static int open_dirs(struct broker *b, struct hutch_error *err)
{
	const char *state = b->config->state;

	b->state_fd = dir_make_path(state);
	if (b->state_fd < 0)
		return fail(err, "cannot use the state directory", state);
	b->vms_fd = dir_make(b->state_fd, "vm");
	b->templates_fd = dir_make(b->state_fd, "templates");
	if (b->vms_fd < 0 || b->templates_fd < 0)
		return fail(err, "cannot make directories in", state);
	return 0;
}

static int read_boot_id(struct broker *b, struct hutch_error *err)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	size_t len = 0;
	char *text = file_read(AT_FDCWD, path, 128, &len);

	if (!text)
		return fail(err, "cannot read", path);
	snprintf(b->host_boot_id, sizeof(b->host_boot_id), "%.36s", text);
	free(text);
	return 0;
}

static int check_isolation(const struct broker *b, struct hutch_error *err)
{
	const struct jail_report *jail = launcher_jail(b->launcher);

	if (jail->level >= b->config->require_isolation)
		return 0;
	return hutch_error_set(err, HUTCH_E_INVALID, 0,
			       "isolation '%s' is required, but this host gives '%s'%s%s",
			       jail_level_name(b->config->require_isolation),
			       jail_level_name(jail->level), jail->reason[0] ? ": " : "",
			       jail->reason);
}

static int start_launcher(struct broker *b, struct hutch_error *err)
{
	const struct config *c = b->config;
	const struct launcher_config lc = {
		.template_dir = c->template_dir,
		.qemu = c->qemu[0] ? c->qemu : NULL,
		.vmm_library = c->vmm_library,
		.test_vmm = c->test_vmm[0] ? c->test_vmm : NULL,
		.first_uid = c->first_vm_uid,
		.uid_count = c->vm_uids,
		.cgroup = c->cgroup,
	};

	b->launcher = launcher_create(&lc, err);
	return b->launcher ? check_isolation(b, err) : -1;
}

void broker_give_up(struct broker *b)
{
	const struct timeval tv = {.tv_usec = GIVE_UP_MS * 1000};

	log_error("broker", "ends for want of a launcher");
	event_base_loopexit(b->loop.base, &tv);
}

/*
 * No VM can be started any more, and a launcher cannot be forked from here (later, the broker's own seccomp filter would
 * be passed on). What lives is served on; the first vm.create that fails for it ends the broker, for whoever looks
 * after it to start it again: one that was under way when the launcher died, or one that is refused later.
 */
static void on_launcher_lost(void *arg, bool start_failed)
{
	struct broker *b = arg;

	if (b->stopping)
		return;
	b->launcher_lost = true;
	log_error("broker",
		  "the launcher has died: no VM can be started until hutchd is started again");
	if (start_failed)
		broker_give_up(b);
}

static bool unfinished(const struct broker *b)
{
	const struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next)
		if (vm->state < VM_RUNNING || vm->state == VM_STOPPING || vm->kind != VM_USERS ||
		    vm->park || (vm->state == VM_PARKED && !vm_rests(vm)))
			return true;
	return false;
}

/* Running VMs are left for the next broker. Those whose creation is not finished have nobody to wait for them. */
static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	const struct timeval tv = {.tv_sec = UNFINISHED_MS / 1000};
	struct broker *b = arg;
	struct vm *vm, *next;

	(void)what;
	if (b->stopping) {
		event_base_loopbreak(b->loop.base);
		return;
	}
	log_info("broker", "ends on signal %d, leaving %u VMs", (int)sig, b->vm_count);
	b->stopping = true;
	listener_destroy(b->listener);
	b->listener = NULL;
	for (vm = TAILQ_FIRST(&b->vms); vm; vm = next) {
		next = TAILQ_NEXT(vm, next);
		if (vm->kind != VM_USERS || vm->state < VM_RUNNING)
			vm_end(vm, "the broker ends before it was ready");
	}
	event_base_loopexit(b->loop.base, &tv);
}

/* Runs after each pass of the loop while stopping. */
static int run_loop(struct broker *b)
{
	int rc = 0;

	while (rc == 0 && !event_base_got_break(b->loop.base) &&
	       !event_base_got_exit(b->loop.base) && !(b->stopping && !unfinished(b)))
		rc = event_base_loop(b->loop.base, EVLOOP_ONCE);
	return rc;
}

static int watch_signals(struct broker *b)
{
	signal(SIGPIPE, SIG_IGN);
	event_assign(&b->sigterm, b->loop.base, SIGTERM, EV_SIGNAL | EV_PERSIST, on_signal, b);
	event_assign(&b->sigint, b->loop.base, SIGINT, EV_SIGNAL | EV_PERSIST, on_signal, b);
	return event_add(&b->sigterm, NULL) < 0 || event_add(&b->sigint, NULL) < 0 ? -1 : 0;
}

/*
 * In this order: locks before anything is touched; the launcher forked while there is neither loop nor VM; the seal before
 * there is a second thread or anything of a guest's or client's is read; adoption before the socket, so that whoever
 * connects sees every VM.
 */
static int set_up(struct broker *b, struct hutch_error *err)
{
	const struct config *c = b->config;
	int fd;

	if (open_dirs(b, err) < 0 || read_boot_id(b, err) < 0 ||
	    claim_take(&b->claim, b->state_fd, c->state, c->socket, err) < 0 ||
	    start_launcher(b, err) < 0)
		return -1;
	if (loop_init(&b->loop) < 0 || watch_signals(b) < 0 || vm_ttl_init(b) < 0)
		return fail(err, "cannot set up", "the event loop");
	launcher_attach(b->launcher, b->loop.base, on_launcher_lost, b);
	b->accel = accel_create(b->loop.base, b->launcher, b->state_fd, c->accel);
	if (!b->accel)
		return fail(err, "cannot set up", "the accelerator check");
	if (seal(c->has_group ? &c->group : NULL, err) < 0)
		return -1;
	b->worker = worker_new(&b->loop);
	b->flattener = worker_new(&b->loop);
	b->verified = verified_load(b->state_fd, b->host_boot_id);
	if (!b->worker || !b->flattener || !b->verified)
		return fail(err, "cannot set up", "the worker threads");
	if (snapshots_open(b, err) < 0)
		return -1;
	adopt_all(b);
	if (warm_pools_start(b) < 0)
		return fail(err, "cannot set up", "the pools");
	zygotes_start(b);
	fd = claim_listen(&b->claim, c->socket, c->has_group, c->group, err);
	if (fd < 0)
		return -1;
	b->listener = listener_create(b, fd);
	return b->listener ? 0 : fail(err, "cannot listen on", c->socket);
}

static void tell_ready(const struct config *c)
{
	if (c->ready_fd >= 0 && write_all(c->ready_fd, "\n", 1) < 0)
		log_errno(LOG_LEVEL_WARN, "broker", "cannot write to --ready-fd %d", c->ready_fd);
	if (c->ready_fd > 2)
		close(c->ready_fd);
}

/* The socket goes first, so that nobody connects to what is ending; VMs are left as they are. */
static void tear_down(struct broker *b)
{
	struct vm *vm, *next;

	listener_destroy(b->listener);
	b->stopping = true;
	while (!TAILQ_EMPTY(&b->clients))
		client_close(TAILQ_FIRST(&b->clients));
	zygotes_forget(b);
	for (vm = TAILQ_FIRST(&b->vms); vm; vm = next) {
		next = TAILQ_NEXT(vm, next);
		vm_free(vm);
	}
	while (!TAILQ_EMPTY(&b->tombs))
		vm_free(TAILQ_FIRST(&b->tombs));
	worker_free(b->flattener);
	worker_free(b->worker);
	verified_free(b->verified);
	if (b->accel)
		accel_destroy(b->accel);
	if (b->launcher)
		launcher_destroy(b->launcher);
	claim_release(&b->claim);
	if (b->loop.base) {
		warm_pools_free(b);
		vm_ttl_free(b);
		event_del(&b->sigterm);
		event_del(&b->sigint);
		loop_free(&b->loop);
	}
	fd_close(&b->snapshots_fd);
	fd_close(&b->templates_fd);
	fd_close(&b->vms_fd);
	fd_close(&b->state_fd);
}

int broker_run(const struct config *config)
{
	struct broker *b = calloc(1, sizeof(*b));
	struct hutch_error err;
	int status = 1;

	if (!b)
		return 1;
	b->config = config;
	b->state_fd = b->vms_fd = b->templates_fd = b->snapshots_fd = b->ttl_fd = -1;
	b->claim = (struct claim){.state_lock = -1, .socket_lock = -1, .dir_fd = -1};
	b->uid = geteuid();
	b->started_us = clock_us();
	TAILQ_INIT(&b->vms);
	TAILQ_INIT(&b->tombs);
	TAILQ_INIT(&b->clients);
	TAILQ_INIT(&b->pools);
	TAILQ_INIT(&b->zygotes);
	TAILQ_INIT(&b->flattens);
	raise_nofile();
	hutch_error_clear(&err);
	if (set_up(b, &err) < 0) {
		log_error("broker", "%s", err.message);
	} else {
		log_info("broker",
			 "hutchd/" HUTCH_VERSION
			 " serves %s, driver %s %s, isolation %s, %u VMs adopted",
			 config->socket, launcher_driver(b->launcher),
			 launcher_vmm_version(b->launcher),
			 jail_level_name(launcher_jail(b->launcher)->level), b->vm_count);
		tell_ready(config);
		if (run_loop(b) == 0 && b->stopping)
			status = 0;
	}
	tear_down(b);
	free(b);
	return status;
}
