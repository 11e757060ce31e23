/* SPDX-License-Identifier: Apache-2.0 */
/* vm.*: each handler decodes, acts, and answers now or through a struct vm_call that waits for the VM. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/api.h"
#include "host/hutchd/log.h"
#include "host/hutchd/share.h"
#include "protocol/msg_exec.h"
#include "protocol/msg_vm.h"

/* A call that is answered when a VM is ready or dead. */
struct vm_call {
	struct deferred deferred;
	struct client *client;
	struct vm *vm;
	struct vm_waiter waiter;
	struct event timer;
	bool takes_vm_along; /* vm.create without a key: the VM ends with a client that goes */
	bool empty_result;   /* vm.kill: {}; else vm.info's map */
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct vm_call, deferred));
}

static void retire(struct vm_call *v)
{
	vm_unwait(&v->waiter);
	event_del(&v->timer);
	loop_defer(&v->client->b->loop, &v->deferred, destroy);
}

static void reply_info(struct client *c, const struct vm *vm)
{
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	api_put_vm(&b, vm, false);
	client_reply_buf(c, &b);
}

static void answer(struct client *c, const struct vm *vm, bool empty)
{
	if (empty)
		client_reply_empty(c);
	else
		reply_info(c, vm);
}

static void on_vm_done(struct vm_waiter *w, const struct hutch_error *err)
{
	struct vm_call *v = container_of(w, struct vm_call, waiter);

	retire(v);
	if (err)
		client_error(v->client, err);
	else
		answer(v->client, v->vm, v->empty_result);
}

static void on_vm_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct vm_call *v = arg;
	struct hutch_error err;

	(void)fd;
	(void)what;
	retire(v);
	hutch_error_clear(&err);
	hutch_error_set(&err, HUTCH_E_TIMEOUT, ETIMEDOUT, "VM %s is still %s", v->vm->r.id,
			vm_state_name(v->vm->state));
	client_error(v->client, &err);
}

static void on_client_gone(void *call)
{
	struct vm_call *v = call;

	retire(v);
	if (v->takes_vm_along)
		vm_end(v->vm, "the client that asked for it went away");
}

static const struct call_ops vm_call_ops = {.gone = on_client_gone};

/* Answer c once vm is ready, or dead. */
static void wait_for(struct client *c, struct vm *vm, const struct vm_call *kind,
		     uint64_t timeout_ms)
{
	struct vm_call *v = malloc(sizeof(*v));
	struct hutch_error err;

	if (!v) {
		hutch_error_clear(&err);
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a call");
		client_error(c, &err);
		return;
	}
	*v = *kind;
	v->client = c;
	v->vm = vm;
	v->waiter.done = on_vm_done;
	event_assign(&v->timer, c->b->loop.base, -1, 0, on_vm_timeout, v);
	if (!vm_wait(vm, &v->waiter)) {
		free(v);
		answer(c, vm, kind->empty_result);
		return;
	}
	if (timeout_ms)
		loop_timer(&v->timer, timeout_ms);
	client_begin(c, &vm_call_ops, v);
}

void api_wait_running(struct client *c, struct vm *vm)
{
	const struct vm_call kind = {.waiter = {.for_ready = true}, .empty_result = true};

	wait_for(c, vm, &kind, 0);
}

void api_wait_parked(struct client *c, struct vm *vm)
{
	const struct vm_call kind = {.waiter = {.for_park = true}, .empty_result = true};

	wait_for(c, vm, &kind, 0);
}

/* Of the arguments as they are meant, not as they were spelled (FNV-1a, 64 bits). */
static uint64_t args_hash(const struct vm_create *args)
{
	uint64_t h = 14695981039346656037u;
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_CALL);
	vm_create_encode_params(&b, args);
	for (size_t i = 0; i < b.len; i++)
		h = (h ^ b.data[i]) * 1099511628211u;
	mp_buf_free(&b);
	return h;
}

/* The VM that an earlier call with this key made, if its arguments were these. */
static int find_by_key(struct client *c, const struct msg_call *call, uint64_t hash, struct vm **vm,
		       struct hutch_error *err)
{
	*vm = call->key[0] ? vm_find_key(c->b, c->uid, call->key) : NULL;
	if (*vm && (*vm)->r.args_hash != hash)
		return hutch_error_set(err, HUTCH_E_EXISTS, 0,
				       "key '%s' was used with other arguments, for VM %s",
				       call->key, (*vm)->r.id);
	return 0;
}

/* The configuration's TTL where the call names none. */
static void default_ttl(struct client *c, struct vm_create *args, struct hutch_error *err)
{
	struct mp_reader r;

	mp_reader_init(&r, &args->doc, &args->doc.root, "vm.create", err);
	if (!mp_find(&r, "ttl_ms"))
		args->ttl_ms = c->b->config->default_ttl_ms;
}

static struct vm *create(struct client *c, const struct vm_create *args, const char *key,
			 uint64_t hash, struct hutch_error *err)
{
	struct vm *vm;
	gid_t group;

	if (!args->share_group[0])
		return vm_create(c->b, c->uid, args, NULL, key, hash, err);
	if (share_resolve(c, args->share_group, &group, err) < 0)
		return NULL;
	vm = vm_create(c->b, c->uid, args, &group, key, hash, err);
	if (vm)
		log_info(vm->object, "shared with group %u by %s", (unsigned)group, c->object);
	return vm;
}

void api_vm_create(struct client *c, const struct msg_call *call, struct vm *unused)
{
	const struct vm_call kind = {.waiter = {.for_ready = true},
				     .takes_vm_along = !call->key[0]};
	struct hutch_error err;
	struct vm_create args;
	struct vm *vm = NULL;
	uint64_t hash;

	(void)unused;
	hutch_error_clear(&err);
	if (vm_create_decode(&args, call->params, call->params_len, &err) == 0) {
		default_ttl(c, &args, &err);
		hash = args_hash(&args);
		if (find_by_key(c, call, hash, &vm, &err) == 0 && !vm)
			vm = create(c, &args, call->key, hash, &err);
	}
	vm_create_free(&args);
	if (err.kind || !vm) /* without a VM there is an error */
		client_error(c, &err);
	else if (vm_was_ready(vm))
		reply_info(c, vm); /* by its key, and asleep perhaps */
	else
		wait_for(c, vm, &kind, 0);
}

void api_vm_info(struct client *c, const struct msg_call *call, struct vm *vm)
{
	(void)call;
	reply_info(c, vm);
}

void api_vm_wait(struct client *c, const struct msg_call *call, struct vm *vm)
{
	const struct vm_call kind = {.empty_result = false};
	struct hutch_error err;
	uint64_t timeout_ms = 0;

	hutch_error_clear(&err);
	if (msg_timeout_decode(&timeout_ms, call->params, call->params_len, &err) < 0)
		client_error(c, &err);
	else
		wait_for(c, vm, &kind, timeout_ms);
}

void api_vm_set_ttl(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;
	uint64_t ttl_ms = 0;
	struct mp_buf b;

	hutch_error_clear(&err);
	if (vm_set_ttl_decode(&ttl_ms, call->params, call->params_len, &err) < 0) {
		client_error(c, &err);
		return;
	}
	if (!vm_was_ready(vm)) {
		hutch_error_set(&err, HUTCH_E_STATE, 0, "VM %s is %s: its TTL cannot be set",
				vm->r.id, vm_state_name(vm->state));
		client_error(c, &err);
		return;
	}
	vm_ttl_set(vm, ttl_ms);
	vm_save(vm);
	log_info(vm->object, "TTL set to %llu ms by %s", (unsigned long long)ttl_ms, c->object);
	mp_buf_init(&b, 256);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_uint(&b, "expires_in_ms", vm_ttl_left(vm));
	mp_map_end(&b);
	client_reply_buf(c, &b);
}

/* vm.kill {all}: one waiter for each VM, answered when the last is gone. */
struct kill_all {
	struct deferred deferred;
	struct client *client; /* NULL: gone */
	unsigned killed, left;
	struct kill_one {
		struct vm_waiter waiter;
		struct kill_all *all;
	} * each;
};

static void destroy_all(struct deferred *d)
{
	struct kill_all *k = container_of(d, struct kill_all, deferred);

	free(k->each);
	free(k);
}

static void finish_all(struct kill_all *k)
{
	struct client *c = k->client;
	struct mp_buf b;

	loop_defer(&c->b->loop, &k->deferred, destroy_all);
	mp_buf_init(&b, 256);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_uint(&b, "killed", k->killed);
	mp_map_end(&b);
	client_reply_buf(c, &b);
}

static void on_one_dead(struct vm_waiter *w, const struct hutch_error *err)
{
	struct kill_all *k = container_of(w, struct kill_one, waiter)->all;

	(void)err;
	if (--k->left == 0)
		finish_all(k);
}

/* The VMs end all the same. */
static void on_all_gone(void *call)
{
	struct kill_all *k = call;

	for (unsigned i = 0; i < k->killed; i++)
		vm_unwait(&k->each[i].waiter);
	loop_defer(&k->client->b->loop, &k->deferred, destroy_all);
}

static const struct call_ops kill_all_ops = {.gone = on_all_gone};

static void kill_all(struct client *c)
{
	struct kill_all *k = calloc(1, sizeof(*k));
	struct hutch_error err;
	struct vm *vm, *next;

	if (k)
		k->each = calloc(c->b->vm_count + 1, sizeof(*k->each));
	if (!k || !k->each) {
		free(k);
		hutch_error_clear(&err);
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for vm.kill");
		client_error(c, &err);
		return;
	}
	k->client = c;
	k->left = 1;
	client_begin(c, &kill_all_ops, k);
	for (vm = TAILQ_FIRST(&c->b->vms); vm; vm = next) {
		struct kill_one *one = &k->each[k->killed];

		next = TAILQ_NEXT(vm, next);
		if (vm->r.owner_uid != c->uid || vm->kind != VM_USERS)
			continue;
		one->all = k;
		one->waiter.done = on_one_dead;
		vm_wait(vm, &one->waiter);
		k->killed++;
		k->left++;
		vm_end(vm, "killed");
	}
	if (--k->left == 0)
		finish_all(k);
}

void api_vm_kill(struct client *c, const struct msg_call *call, struct vm *vm)
{
	const struct vm_call kind = {.empty_result = true};
	struct hutch_error err;
	bool all = false;

	hutch_error_clear(&err);
	if (vm_kill_decode(&all, call->params, call->params_len, &err) == 0 && !all && !vm)
		hutch_error_set(&err, HUTCH_E_INVALID, 0, "vm.kill: 'vm' is missing");
	if (err.kind) {
		client_error(c, &err);
	} else if (all) {
		kill_all(c);
	} else {
		vm_end(vm, "killed");
		wait_for(c, vm, &kind, 0);
	}
}
