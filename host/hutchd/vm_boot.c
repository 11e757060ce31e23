/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a record to a running VM.
 *
 * A new one: accelerator -> VMM process -> QMP -> the agent's hello, dialled to vsock_521 -> identity -> running.
 * The first valid hello wins, its connection becomes the control connection, and the socket is removed: no process of
 * a user can run before the identity is given, so none can have said it. One deadline covers all of it.
 *
 * One of an earlier broker is running all the time. Its agent is dialled and has to be the one of the record and answer
 * a ping before VM_ADOPT_MS; no hello is taken and no identity given, for the guest was not reset.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <uuid.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"
#include "protocol/msg_exec.h"

#define HELLO_SOCKET  "vsock_521"
#define HELLO_PENDING 4u /* connections whose HELLO is awaited; more are closed */
#define ENTROPY_BYTES 64u

struct vm_boot {
	struct deferred deferred;
	struct vm *vm;
	struct template tpl;
	bool adopted;
	uint64_t begun_us, up_us, hello_us, timeout_ms;
	struct event deadline;
	struct accel_wait *accel;
	int listen_fd;
	struct event accept;
	struct link_list pending;   /* accepted, HELLO awaited */
	struct guest_link *control; /* the one that said hello; the VM's from running on */
	struct guest_waiter waiter; /* adopted: for the first link */
	struct guest_call *call;    /* identity, or the ping of an adopted one */
	char stage[16];
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct vm_boot, deferred));
}

static void close_listener(struct vm_boot *boot)
{
	if (boot->listen_fd < 0)
		return;
	event_del(&boot->accept);
	fd_close(&boot->listen_fd);
	unlinkat(boot->vm->rundir_fd, HELLO_SOCKET, 0);
	while (!TAILQ_EMPTY(&boot->pending.links))
		guest_link_close(TAILQ_FIRST(&boot->pending.links));
}

void vm_boot_abort(struct vm *vm)
{
	struct vm_boot *boot = vm->boot;

	if (!boot)
		return;
	vm->boot = NULL;
	event_del(&boot->deadline);
	if (boot->accel)
		accel_cancel(boot->accel);
	close_listener(boot);
	guest_pool_cancel(&boot->waiter);
	guest_call_cancel(boot->call);
	guest_link_close(boot->control);
	loop_defer(&vm->b->loop, &boot->deferred, destroy);
}

static void set_stage(struct vm_boot *boot, const char *stage)
{
	snprintf(boot->stage, sizeof(boot->stage), "%s", stage);
}

static uint64_t left_ms(const struct vm_boot *boot)
{
	uint64_t spent = (clock_us() - boot->begun_us) / 1000;

	return spent < boot->timeout_ms ? boot->timeout_ms - spent : 1;
}

static void fail(struct vm_boot *boot, enum hutch_error_kind kind, int errnum, const char *text)
{
	struct vm *vm = boot->vm;
	struct hutch_error err;

	if (boot->adopted) {
		vm_end(vm, text);
		return;
	}
	hutch_error_clear(&err);
	hutch_error_set(&err, kind, errnum, "VM %s did not come up: %s", vm->r.id, text);
	memcpy(err.stage, boot->stage, sizeof(boot->stage));
	vm_fail(vm, &err);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct vm_boot *boot = arg;
	char text[128];

	(void)fd;
	(void)what;
	snprintf(text, sizeof(text), "not ready after %llu ms, in stage %s",
		 (unsigned long long)boot->timeout_ms, boot->stage);
	fail(boot, HUTCH_E_BOOT_FAILED, ETIMEDOUT, text);
}

/* Running: the deadline is in the record before anybody is told. */
static void succeed(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;
	struct guest_link *control = boot->control;

	boot->control = NULL;
	if (!boot->adopted) {
		vm->r.total_us = clock_us() - boot->begun_us;
		vm_ttl_set(vm, vm->r.ttl_ms);
	}
	vm->r.step = STEP_RUNNING;
	if (vm_save(vm) < 0) {
		guest_link_close(control);
		fail(boot, HUTCH_E_IO, errno, "its record cannot be written");
		return;
	}
	vm_boot_abort(vm);
	if (vm->state != VM_RUNNING)
		vm_state_set(&vm->state, VM_RUNNING, vm->object);
	vm_heart_start(vm, control);
	guest_pool_open(&vm->pool, true);
	vm_notify_ready(vm);
}

static void on_identity(void *arg, const struct hutch_error *err, const uint8_t *payload,
			size_t len)
{
	struct vm_boot *boot = arg;
	char text[600];

	(void)payload;
	(void)len;
	boot->call = NULL;
	if (boot->vm->boot != boot)
		return;
	if (!err) {
		boot->vm->r.identity_us = clock_us() - boot->hello_us;
		succeed(boot);
		return;
	}
	snprintf(text, sizeof(text), "identity%s%s: %.500s", err->stage[0] ? ", stage " : "",
		 err->stage, err->message);
	fail(boot, HUTCH_E_BOOT_FAILED, err->errnum, text);
}

/* The VM's name where it is a host name label (RFC 1123), else one made of its id. */
static void host_name(const struct vm *vm, char *out, size_t size)
{
	const char *name = vm->r.name;
	size_t len = strlen(name);
	bool fits = len > 0 && len <= 63 && name[0] != '-' && name[len - 1] != '-';

	for (size_t i = 0; i < len && fits; i++)
		fits = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
		       (name[i] >= '0' && name[i] <= '9') || name[i] == '-';
	if (fits)
		snprintf(out, size, "%s", name);
	else
		snprintf(out, size, "vm-%.8s", vm->r.id);
}

static int fill_identity(struct agent_identity *id, const struct vm *vm, uint8_t *entropy)
{
	struct timespec now;
	uuid_t machine;

	if (getrandom(entropy, ENTROPY_BYTES, 0) != (ssize_t)ENTROPY_BYTES ||
	    clock_gettime(CLOCK_REALTIME, &now) < 0)
		return -1;
	*id = (struct agent_identity){.generation = vm->r.generation,
				      .entropy = entropy,
				      .entropy_len = ENTROPY_BYTES};
	id->realtime_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	host_name(vm, id->hostname, sizeof(id->hostname));
	uuid_generate_random(machine);
	for (size_t i = 0; i < sizeof(machine); i++)
		snprintf(id->machine_id + 2 * i, 3, "%02x", machine[i]);
	return 0;
}

static void give_identity(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;
	struct msg_call call = {.method = "agent.identity"};
	uint8_t entropy[ENTROPY_BYTES];
	struct agent_identity id;
	struct mp_buf params;

	set_stage(boot, "identity");
	vm->r.generation = 1;
	mp_buf_init(&params, 4096);
	if (fill_identity(&id, vm, entropy) == 0) {
		agent_identity_encode_params(&params, &id);
		call.params = params.data;
		call.params_len = params.len;
		if (!params.failed)
			boot->call = guest_call_start(&vm->pool, boot->control, &call, 0,
						      on_identity, boot);
	}
	mp_buf_free(&params);
	explicit_bzero(entropy, sizeof(entropy));
	if (!boot->call)
		fail(boot, HUTCH_E_INTERNAL, errno, "cannot make its identity");
}

static void on_hello(void *arg, struct guest_link *g)
{
	struct vm_boot *boot = arg;
	struct vm *vm = boot->vm;

	boot->hello_us = clock_us();
	vm->r.hello_us = boot->hello_us - boot->up_us;
	snprintf(vm->r.agent_name, sizeof(vm->r.agent_name), "%s", g->hello.name);
	snprintf(vm->r.agent_boot_id, sizeof(vm->r.agent_boot_id), "%s", g->hello.boot_id);
	log_info(vm->object, "hello from %s, boot %s", g->hello.name, g->hello.boot_id);
	guest_link_move(g, NULL);
	boot->control = g;
	close_listener(boot);
	give_identity(boot);
}

static void on_hello_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct vm_boot *boot = arg;

	log_info(boot->vm->object, "a connection to the hello port failed: %s", err->message);
	if (g == boot->control) {
		boot->control = NULL;
		fail(boot, HUTCH_E_BOOT_FAILED, err->errnum, err->message);
	}
}

static const struct link_owner hello_owner = {.ready = on_hello, .lost = on_hello_lost};

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct vm_boot *boot = arg;
	int conn = accept4((int)fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct guest_link *g;

	(void)what;
	if (conn < 0)
		return;
	if (boot->pending.count >= HELLO_PENDING) {
		fd_close(&conn);
		return;
	}
	g = guest_link_accept(&boot->vm->b->loop, conn, &hello_owner, boot);
	if (g)
		guest_link_move(g, &boot->pending);
}

static void on_first_pong(void *arg, const struct hutch_error *err, const uint8_t *payload,
			  size_t len)
{
	struct vm_boot *boot = arg;

	(void)payload;
	(void)len;
	boot->call = NULL;
	if (boot->vm->boot != boot)
		return;
	if (err) {
		fail(boot, HUTCH_E_BOOT_FAILED, err->errnum, err->message);
		return;
	}
	log_info(boot->vm->object, "adopted: the agent answers");
	succeed(boot);
}

/* An agent of another boot, or one without an identity, is not the one that the record is about. */
static void check_adopted(struct vm_boot *boot, struct guest_link *g)
{
	static const struct msg_call ping = {.method = "ping"};
	struct vm *vm = boot->vm;

	guest_link_move(g, NULL);
	guest_link_set_owner(g, &hello_owner, boot);
	boot->control = g;
	if (g->hello.generation != vm->r.generation ||
	    strcmp(g->hello.boot_id, vm->r.agent_boot_id) != 0) {
		fail(boot, HUTCH_E_BOOT_FAILED, 0, "another agent answers than the recorded one");
		return;
	}
	boot->call = guest_call_start(&vm->pool, g, &ping, 0, on_first_pong, boot);
	if (!boot->call)
		fail(boot, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a ping");
}

static void on_adopt_link(struct guest_waiter *w, struct guest_link *g)
{
	check_adopted(container_of(w, struct vm_boot, waiter), g);
}

static void dial_adopted(struct vm_boot *boot)
{
	struct guest_link *g = guest_pool_get(&boot->vm->pool, &boot->waiter);

	if (g)
		check_adopted(boot, g);
}

/* Until the deadline. */
static void on_adopt_no_link(struct guest_waiter *w, const struct hutch_error *err)
{
	struct vm_boot *boot = container_of(w, struct vm_boot, waiter);

	if (boot->vm->boot != boot || err->kind == HUTCH_E_VM_DIED)
		return;
	log_warn(boot->vm->object, "%s", err->message);
	dial_adopted(boot);
}

static void on_spawned(void *arg, const struct vmm_process *process)
{
	struct vm *vm = arg;

	vm->r.process = *process;
	if (vm->state >= VM_STOPPING)
		return;
	vm->r.step = STEP_BOOTING;
	log_info(vm->object, "VMM is pid %ld", (long)process->pid);
	if (vm_save(vm) < 0)
		fail(vm->boot, HUTCH_E_IO, errno, "its record cannot be written");
	else
		set_stage(vm->boot, "qmp");
}

static void on_up(void *arg, const char *version, uint64_t spawn_us, uint64_t qmp_us)
{
	struct vm *vm = arg;
	struct vm_boot *boot = vm->boot;

	if (vm->state >= VM_STOPPING || !boot || boot->adopted)
		return;
	vm_state_set(&vm->state, VM_BOOTING, vm->object);
	set_stage(boot, "hello");
	boot->up_us = clock_us();
	snprintf(vm->r.vmm_version, sizeof(vm->r.vmm_version), "%s", version);
	vm->r.spawn_us = spawn_us;
	vm->r.qmp_us = qmp_us;
	event_add(&boot->accept, NULL);
}

static void on_failed(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;
	struct hutch_error named = *err;

	if (vm->vmm)
		vmm_free(vm->vmm);
	vm->vmm = NULL;
	vm->r.process.pid = 0;
	if (vm->state >= VM_STOPPING) {
		vm_bury(vm);
		return;
	}
	if (!vm->boot || vm->boot->adopted) {
		vm_end(vm, err->message);
		return;
	}
	hutch_error_prefix(&named, "VM %s did not come up", vm->r.id);
	if (!named.stage[0])
		memcpy(named.stage, vm->boot->stage, sizeof(vm->boot->stage));
	vm_fail(vm, &named);
}

static void on_exited(void *arg, const char *reason)
{
	struct vm *vm = arg;
	char text[600];

	if (vm->boot && !vm->boot->adopted && vm->state < VM_STOPPING) {
		snprintf(text, sizeof(text), "%.500s", reason);
		vm->r.process.pid = 0;
		fail(vm->boot, HUTCH_E_BOOT_FAILED, 0, text);
	} else if (!vm->reason[0]) {
		snprintf(vm->reason, sizeof(vm->reason), "%.500s", reason);
	}
	vm_bury(vm);
}

static const struct vmm_callbacks vmm_cb = {.spawned = on_spawned,
					    .up = on_up,
					    .failed = on_failed,
					    .exited = on_exited};

static void fill_config(struct vmm_config *c, const struct vm *vm, uint64_t left)
{
	*c = (struct vmm_config){.rundir_fd = vm->rundir_fd,
				 .tpl = &vm->boot->tpl,
				 .accel = vm->r.accel,
				 .memory_mib = vm->r.memory_mib,
				 .vcpus = vm->r.vcpus,
				 .cid = vm->r.cid,
				 .deadline_ms = left + VM_GRACE_MS,
				 .qmp_timeout_ms = left};
	memcpy(c->id, vm->r.id, sizeof(c->id));
}

static void start_vmm(struct vm_boot *boot)
{
	struct vm *vm = boot->vm;
	struct vmm_config config;
	struct hutch_error err;

	hutch_error_clear(&err);
	set_stage(boot, "spawn");
	boot->listen_fd = unix_listen(vm->rundir_fd, HELLO_SOCKET, SOCK_STREAM, 16);
	if (boot->listen_fd < 0) {
		fail(boot, HUTCH_E_START_FAILED, errno, "cannot bind " HELLO_SOCKET);
		return;
	}
	event_assign(&boot->accept, vm->b->loop.base, boot->listen_fd, EV_READ | EV_PERSIST,
		     on_accept, boot);
	fill_config(&config, vm, left_ms(boot));
	vm->vmm = vmm_start(vm->b->loop.base, vm->b->launcher, &config, &vmm_cb, vm, &err);
	if (!vm->vmm)
		on_failed(vm, &err);
}

static void on_accel(void *arg, enum vmm_accel verdict, const char *reason)
{
	struct vm_boot *boot = arg;

	boot->accel = NULL;
	boot->vm->r.accel = verdict;
	snprintf(boot->vm->r.accel_reason, sizeof(boot->vm->r.accel_reason), "%.250s", reason);
	start_vmm(boot);
}

static struct vm_boot *boot_new(struct vm *vm, uint64_t timeout_ms, struct hutch_error *err)
{
	const struct timeval tv = {.tv_sec = (time_t)(timeout_ms / 1000),
				   .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000)};
	struct vm_boot *boot = calloc(1, sizeof(*boot));

	if (!boot) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a VM");
		return NULL;
	}
	boot->vm = vm;
	boot->begun_us = clock_us();
	boot->timeout_ms = timeout_ms;
	boot->listen_fd = -1;
	boot->waiter.got = on_adopt_link;
	boot->waiter.failed = on_adopt_no_link;
	link_list_init(&boot->pending);
	event_assign(&boot->deadline, vm->b->loop.base, -1, 0, on_deadline, boot);
	event_add(&boot->deadline, &tv);
	vm->boot = boot;
	return boot;
}

int vm_boot_start(struct vm *vm, const struct template *tpl, uint64_t timeout_ms,
		  struct hutch_error *err)
{
	struct vm_boot *boot;

	if (vm_save(vm) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno,
				       "cannot write the record of VM %s: %s", vm->r.id,
				       strerror(errno));
	boot = boot_new(vm, timeout_ms, err);
	if (!boot)
		return -1;
	boot->tpl = *tpl;
	set_stage(boot, "accel");
	boot->accel = accel_resolve(vm->b->accel, tpl, on_accel, boot);
	if (boot->accel)
		return 0;
	return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM,
			       "cannot find out the accelerator for VM %s", vm->r.id);
}

int vm_boot_adopt(struct vm *vm, struct hutch_error *err)
{
	struct vmm_config config;
	struct vm_boot *boot = boot_new(vm, VM_ADOPT_MS, err);

	if (!boot)
		return -1;
	boot->adopted = true;
	set_stage(boot, "adopt");
	fill_config(&config, vm, VM_ADOPT_MS);
	config.tpl = NULL;
	vm->vmm = vmm_adopt(vm->b->loop.base, vm->b->launcher, &config, &vm->r.process, &vmm_cb, vm,
			    err);
	if (!vm->vmm)
		return -1;
	vm_state_set(&vm->state, VM_RUNNING, vm->object);
	guest_pool_open(&vm->pool, false);
	dial_adopted(boot);
	return 0;
}
