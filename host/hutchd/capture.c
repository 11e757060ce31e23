/* SPDX-License-Identifier: Apache-2.0 */
/* A VM stands still, and what it is at that instant is kept. */
#include "host/hutchd/capture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/hutchd/capture_disk.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/flatten.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm_identity.h"
#include "protocol/msg_exec.h"

#define FREEZE_MS  1000u
#define PREPARE_MS 5000u  /* for snapshot.prepare to be answered */
#define RESUME_MS  10000u /* for snapshot.resume */
/*
 * A template's VM may come to rest first: what its kernel still had to do (freeing, timers, notices) each VM that is made of it
 * would else do again, and translate the code for it.
 */
#define REST_MS 500
/* A zygote's, longer: what an idle kernel does every now and then is code as well, and a pool's VMs are idle until they are taken. */
#define ZYGOTE_REST_MS 3000

static void destroy(struct deferred *d)
{
	struct capture *c = container_of(d, struct capture, deferred);

	free(c->im);
	free(c);
}

static void close_files(struct capture *c)
{
	fd_close(&c->data_fd);
	fd_close(&c->extents_fd);
	fd_close(&c->device_fd);
}

void capture_end(struct capture *c)
{
	struct vm *vm = c->vm;

	if (vm->capture == c)
		vm->capture = NULL;
	event_del(&c->rest);
	event_del(&c->settle);
	if (c->by_idle)
		vm->calls--; /* nobody's use */
	else
		vm_unuse(vm);
	guest_pool_cancel(&c->waiter);
	guest_call_cancel(c->call);
	guest_link_close(c->link);
	c->link = NULL;
	close_files(c);
	if (c->dirfd >= 0 && vm->rundir_fd >= 0 && tree_remove(vm->rundir_fd, VM_CAPTURE_DIR) < 0)
		log_errno(LOG_LEVEL_ERROR, vm->object, "cannot remove " VM_CAPTURE_DIR);
	fd_close(&c->dirfd);
	loop_defer(&vm->b->loop, &c->deferred, destroy);
	/* It was paused by its idle policy while this went on, or this was that. */
	if (vm->state == VM_PAUSED && !vm->capture && vm_is_awaited(vm))
		vm_rouse(vm);
}

void capture_leave(struct capture *c)
{
	fd_close(&c->dirfd);
	capture_end(c);
}

/* Held and stopped: the record says paused, in every way that it is. */
static void stay_paused(struct capture *c)
{
	struct vm *vm = c->vm;

	vm->held = c->link;
	c->link = NULL;
	if (vm->kind == VM_USERS) /* nobody else's is adopted */
		vm->r.step = STEP_PAUSED;
	vm->r.asleep_by_idle = c->by_idle;
	vm->r.asleep_ms = clock_unix_ms();
	vm_state_set(&vm->state, VM_PAUSED, vm->object);
}

void capture_undo(struct capture *c)
{
	if (!c->was_paused) {
		stay_paused(c);
		vm_save(c->vm);
	}
	capture_end(c);
}

/* It is over, and done is called. */
static void finish(struct capture *c, const struct hutch_error *err)
{
	capture_done *done = c->done;

	if (!done)
		return;
	c->done = NULL;
	close_files(c);
	if (err) {
		struct hutch_error copy = *err;

		capture_end(c);
		done(c->arg, &copy, NULL);
	} else {
		done(c->arg, NULL, c);
	}
}

void capture_abort(struct vm *vm)
{
	struct capture *c = vm->capture;
	struct hutch_error err;

	if (!c)
		return;
	vm->capture = NULL;
	vm_died_error(vm, &err);
	finish(c, &err);
}

static void fail(struct capture *c, const struct hutch_error *err, const char *what)
{
	if (c->failure.kind)
		return;
	c->failure = *err;
	hutch_error_prefix(&c->failure, "VM %s: %s", c->vm->r.id, what);
	log_warn(c->vm->object, "%s: %s", what, err->message);
}

/* What the VM is from here on; the record is what a next broker goes by. */
static void settle(struct capture *c)
{
	struct vm *vm = c->vm;
	struct hutch_error err;

	hutch_error_clear(&err);
	if (c->mode == CAPTURE_PAUSE && !c->failure.kind)
		stay_paused(c);
	else if (vm->r.step == STEP_CAPTURING && (c->mode != CAPTURE_LAST || c->failure.kind))
		vm->r.step = STEP_RUNNING;
	vm_save(vm);
	if (!c->pause_us)
		c->pause_us = clock_us() - c->begun_us;
	capture_disk_settle(c);
	if (c->mode != CAPTURE_PAUSE && !c->failure.kind && capture_disk_link(c, &err) < 0)
		fail(c, &err, "its disk cannot be captured");
	if (c->disk.frozen)
		flatten_consider(vm);
	finish(c, c->failure.kind ? &c->failure : NULL);
}

/* It may be held, and the connection that could tell it to go on is lost: its hello comes. */
static void look_for_agent(struct capture *c)
{
	struct vm *vm = c->vm;
	struct hutch_error err;

	hutch_error_clear(&err);
	vm_heart_stop(vm);
	if (vm_rejoin_start(vm, true, VM_ADOPT_MS, &err) < 0)
		vm_end(vm, err.message);
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	settle(arg);
}

/* What the guest has said meanwhile goes first: to settle, and what comes of it, takes some ms. */
static void maybe_on_again(struct capture *c)
{
	if (!c->continued || !c->resumed)
		return;
	guest_link_close(c->link);
	c->link = NULL;
	c->pause_us = clock_us() - c->begun_us;
	loop_timer(&c->settle, 0);
}

static void on_cont(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;
	struct capture *c = vm->capture;

	if (!c)
		return;
	if (err) {
		vm_end(vm, err->message); /* aborts c */
		return;
	}
	c->continued = true;
	maybe_on_again(c);
}

static void on_resumed(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct capture *c = arg;

	(void)payload;
	(void)len;
	c->call = NULL;
	if (c->vm->capture != c)
		return;
	if (err) {
		log_warn(c->vm->object, "snapshot.resume: %s", err->message);
		guest_link_close(c->link);
		c->link = NULL;
		look_for_agent(c);
		if (c->vm->capture != c)
			return;
	}
	c->resumed = true;
	maybe_on_again(c);
}

/* Both are on their way at once: the agent reads when it can. */
static void go_on(struct capture *c)
{
	struct vm *vm = c->vm;

	if (c->was_paused || (c->mode != CAPTURE_GO_ON && !c->failure.kind)) {
		settle(c);
		return;
	}
	vmm_cont(vm->vmm, on_cont, vm);
	if (c->link)
		c->call = vm_identity_resume(vm, c->link, RESUME_MS, on_resumed, c);
	if (c->call)
		return;
	look_for_agent(c);
	c->resumed = true;
}

static void saved(struct capture *c)
{
	if (--c->saving == 0)
		go_on(c);
}

static void on_captured(void *arg, const struct hutch_error *err, const struct vmm_captured *got)
{
	struct vm *vm = arg;
	struct capture *c = vm->capture;
	struct stat st;

	if (!c)
		return;
	if (err) {
		fail(c, err, "its memory cannot be captured");
	} else {
		/* With what was written ahead. */
		c->bytes = fstat(c->data_fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : got->bytes;
		log_info(vm->object,
			 "captured %llu KiB in %llu extents: memory %llu us, devices %llu us",
			 (unsigned long long)got->bytes >> 10, (unsigned long long)got->extents,
			 (unsigned long long)got->memory_us, (unsigned long long)got->device_us);
	}
	saved(c);
}

static void on_frozen(struct capture *c, const struct hutch_error *err)
{
	if (err)
		fail(c, err, "its disk cannot be frozen");
	saved(c);
}

static void save(struct capture *c)
{
	const struct vmm_capture_to to = {.data_fd = c->data_fd,
					  .extents_fd = c->extents_fd,
					  .device_fd = c->device_fd,
					  .flatten = c->flatten,
					  .below = c->below,
					  .whole = c->extents_fd < 0};

	c->saving = c->disk.wanted ? 2 : 1;
	if (c->mode == CAPTURE_PAUSE) {
		saved(c);
		return;
	}
	if (c->disk.wanted)
		capture_disk_freeze(c, on_frozen);
	vmm_capture(c->vm->vmm, &to, on_captured, c->vm);
}

static void on_stopped(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;
	struct capture *c = vm->capture;

	if (!c)
		return;
	if (err) {
		fail(c, err, "it cannot be stopped");
		go_on(c);
		return;
	}
	save(c);
}

static void on_rest_over(evutil_socket_t fd, short what, void *arg)
{
	struct capture *c = arg;

	(void)fd;
	(void)what;
	vmm_stop(c->vm->vmm, on_stopped, c->vm);
}

static void rest(struct capture *c)
{
	if (c->vm->kind == VM_TEMPLATE)
		loop_timer(&c->rest, REST_MS);
	else if (c->vm->kind == VM_ZYGOTE && c->mode == CAPTURE_PAUSE)
		loop_timer(&c->rest, ZYGOTE_REST_MS);
	else
		vmm_stop(c->vm->vmm, on_stopped, c->vm);
}

static void on_prepared(void *arg, const struct hutch_error *err, const uint8_t *payload,
			size_t len)
{
	struct capture *c = arg;

	(void)payload;
	(void)len;
	c->call = NULL;
	if (c->vm->capture != c)
		return;
	if (!err) {
		rest(c);
		return;
	}
	fail(c, err, "its agent cannot hold it");
	/* What the agent itself says leaves it as it was. */
	if (!c->link || c->link->state == LINK_DEAD) {
		c->link = NULL;
		look_for_agent(c);
	}
	if (c->vm->capture == c)
		settle(c);
}

static void on_link_ready(void *arg, struct guest_link *g)
{
	(void)arg;
	(void)g;
}

/* The call over it, or the next one, meets a dead link. */
static void on_link_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct vm *vm = arg;

	if (vm->held == g)
		vm->held = NULL;
	if (vm->capture && vm->capture->link == g)
		vm->capture->link = NULL;
	log_warn(vm->object, "the connection that holds its agent: %s", err->message);
}

static const struct link_owner link_owner = {.ready = on_link_ready, .lost = on_link_lost};

static void prepare(struct capture *c, struct guest_link *g)
{
	struct msg_call call = {.method = "snapshot.prepare"};
	struct hutch_error err;
	struct mp_buf params;

	guest_link_move(g, NULL);
	guest_link_set_owner(g, &link_owner, c->vm);
	c->link = g;
	c->begun_us = clock_us();
	mp_buf_init(&params, 256);
	agent_prepare_encode_params(&params, FREEZE_MS);
	call.params = params.data;
	call.params_len = params.len;
	if (!params.failed)
		c->call = guest_call_start(&c->vm->pool, g, &call, PREPARE_MS, on_prepared, c);
	mp_buf_free(&params);
	if (c->call)
		return;
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
	fail(c, &err, "it cannot be captured");
	settle(c);
}

static void on_link(struct guest_waiter *w, struct guest_link *g)
{
	prepare(container_of(w, struct capture, waiter), g);
}

static void on_no_link(struct guest_waiter *w, const struct hutch_error *err)
{
	struct capture *c = container_of(w, struct capture, waiter);

	if (c->vm->capture != c)
		return;
	fail(c, err, "its agent cannot be reached");
	settle(c);
}

static int check(struct vm *vm, enum capture_mode mode, struct hutch_error *err)
{
	if (vm->state != VM_RUNNING && (vm->state != VM_PAUSED || mode == CAPTURE_PAUSE))
		return hutch_error_set(err, HUTCH_E_STATE, 0, "VM %s is %s", vm->r.id,
				       vm_state_name(vm->state));
	if (vm->capture || vm->thaw || vm->rejoin || !vm->up)
		return hutch_error_set(err, HUTCH_E_BUSY, 0,
				       "VM %s: a fork, snapshot, pause or adoption is under way",
				       vm->r.id);
	return 0;
}

static void hold(struct capture *c)
{
	struct guest_link *g;

	c->waiter.got = on_link;
	c->waiter.failed = on_no_link;
	g = guest_pool_get(&c->vm->pool, &c->waiter);
	if (g)
		prepare(c, g);
}

/* Where it failed, all is written in the pause. */
static void on_ahead(void *arg, const struct hutch_error *err, const struct vmm_captured *got)
{
	struct vm *vm = arg;

	if (!vm->capture)
		return;
	if (err)
		log_debug(vm->object, "nothing written ahead: %s", err->message);
	else
		log_debug(vm->object, "wrote %llu KiB ahead", (unsigned long long)got->bytes >> 10);
	hold(vm->capture);
}

static void save_or_hold(struct capture *c)
{
	if (c->was_paused) {
		c->begun_us = clock_us();
		save(c);
	} else if (c->extents_fd >= 0 && c->mode == CAPTURE_GO_ON) {
		vmm_capture_ahead(c->vm->vmm, c->data_fd, on_ahead, c->vm);
	} else {
		hold(c);
	}
}

static void on_disk_ready(struct capture *c, const struct hutch_error *err)
{
	if (!err) {
		save_or_hold(c);
		return;
	}
	fail(c, err, "its disk cannot be frozen");
	settle(c);
}

static void begin(struct capture *c)
{
	if (c->disk.busy)
		capture_disk_prepare(c, on_disk_ready);
	else
		save_or_hold(c);
}

struct capture *capture_start(struct vm *vm, enum capture_mode mode, capture_done *done, void *arg,
			      struct hutch_error *err)
{
	struct capture *c;

	if (check(vm, mode, err) < 0)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	c->vm = vm;
	c->mode = mode;
	c->done = done;
	c->arg = arg;
	c->dirfd = c->data_fd = c->extents_fd = c->device_fd = -1;
	vm_use(vm);
	c->was_paused = vm->state == VM_PAUSED;
	event_assign(&c->rest, vm->b->loop.base, -1, 0, on_rest_over, c);
	event_assign(&c->settle, vm->b->loop.base, -1, 0, on_settle, c);
	if (vm->r.step == STEP_RUNNING)
		vm->r.step = STEP_CAPTURING;
	if ((mode != CAPTURE_PAUSE && capture_set_up(c, err) < 0) || vm_save(vm) < 0) {
		if (!err->kind)
			hutch_error_set(err, HUTCH_E_IO, errno, "VM %s: cannot write its record",
					vm->r.id);
		if (vm->r.step == STEP_CAPTURING)
			vm->r.step = STEP_RUNNING;
		capture_end(c);
		return NULL;
	}
	vm->capture = c;
	begin(c);
	return c;
}
