/* SPDX-License-Identifier: Apache-2.0 */
/* One VM: making, finding, waiting for and ending it. */
#include "host/hutchd/vm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid.h>

#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm_jail.h"
#include "host/hutchd/warm_pool.h"

#define FIRST_CID    3u /* 0-2 are the hypervisor, loopback and the host: vsock(7) */
#define LAST_CID     0x7fffffffu
#define CONSOLE_TAIL 1200u

/* FNV-1a */
static unsigned bucket(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h % VM_BUCKETS;
}

static void table_add(struct vm *vm)
{
	struct vm **at = &vm->b->by_id[bucket(vm->r.id)];

	vm->id_next = *at;
	*at = vm;
	if (!vm->r.name[0])
		return;
	at = &vm->b->by_name[bucket(vm->r.name)];
	vm->name_next = *at;
	*at = vm;
}

static void table_remove(struct vm *vm)
{
	struct vm **at = &vm->b->by_id[bucket(vm->r.id)];

	while (*at && *at != vm)
		at = &(*at)->id_next;
	if (*at)
		*at = vm->id_next;
	if (!vm->r.name[0])
		return;
	at = &vm->b->by_name[bucket(vm->r.name)];
	while (*at && *at != vm)
		at = &(*at)->name_next;
	if (*at)
		*at = vm->name_next;
}

bool vm_visible(const struct vm *vm, uint32_t uid)
{
	return vm->kind == VM_USERS && (vm->r.owner_uid == uid || broker_is_admin(vm->b, uid));
}

/* Living VM of that owner with that name. */
static struct vm *find_own_name(struct broker *b, uint32_t owner, const char *name, bool dead)
{
	for (struct vm *vm = b->by_name[bucket(name)]; vm; vm = vm->name_next)
		if (vm->r.owner_uid == owner && (vm->state == VM_DEAD) == dead &&
		    strcmp(vm->r.name, name) == 0)
			return vm; /* the last one made stands first */
	return NULL;
}

/* An admin's look at the others' names; *many when more than one has it. */
static struct vm *find_any_name(struct broker *b, const char *name, bool *many)
{
	struct vm *found = NULL;

	for (struct vm *vm = b->by_name[bucket(name)]; vm; vm = vm->name_next) {
		if (vm->state == VM_DEAD || strcmp(vm->r.name, name) != 0)
			continue;
		*many = found != NULL;
		if (*many)
			return NULL;
		found = vm;
	}
	return found;
}

struct vm *vm_find(struct broker *b, uint32_t uid, const char *id_or_name, struct hutch_error *err)
{
	bool many = false;
	struct vm *vm;

	for (vm = b->by_id[bucket(id_or_name)]; vm; vm = vm->id_next)
		if (strcmp(vm->r.id, id_or_name) == 0)
			break;
	if (vm && vm_visible(vm, uid))
		return vm;
	vm = find_own_name(b, uid, id_or_name, false);
	if (!vm && broker_is_admin(b, uid))
		vm = find_any_name(b, id_or_name, &many);
	if (!vm && !many)
		vm = find_own_name(b, uid, id_or_name, true);
	if (vm)
		return vm;
	if (many)
		hutch_error_set(err, HUTCH_E_INVALID, 0,
				"more than one VM is named '%s': use the id", id_or_name);
	else
		hutch_error_set(err, HUTCH_E_NOT_FOUND, 0, "there is no VM '%s'", id_or_name);
	return NULL;
}

static struct vm *find_key_in(const struct vm_list *list, uint32_t owner, const char *key)
{
	struct vm *vm;

	TAILQ_FOREACH(vm, list, next)
		if (vm->r.owner_uid == owner && strcmp(vm->r.key, key) == 0)
			return vm;
	return NULL;
}

struct vm *vm_find_key(struct broker *b, uint32_t owner, const char *key)
{
	struct vm *vm = find_key_in(&b->vms, owner, key);

	return vm ? vm : find_key_in(&b->tombs, owner, key);
}

static bool cid_used(const struct broker *b, uint32_t cid)
{
	const struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next)
		if (vm->r.cid == cid)
			return true;
	return false;
}

/* Round the whole range before one is used again, and never one that a living VM has. */
static uint32_t cid_take(struct broker *b)
{
	uint32_t cid;

	do {
		if (b->next_cid < FIRST_CID || b->next_cid > LAST_CID)
			b->next_cid = FIRST_CID;
		cid = b->next_cid++;
	} while (cid_used(b, cid));
	return cid;
}

int vm_save(struct vm *vm)
{
	int rc = vm_record_save(&vm->r, vm->rundir_fd);

	if (rc < 0)
		log_errno(LOG_LEVEL_ERROR, vm->object, "cannot write its record (step %s)",
			  vm_step_name(vm->r.step));
	return rc;
}

struct vm *vm_new(struct broker *b, struct vm_record *r, int rundir_fd)
{
	struct vm *vm = calloc(1, sizeof(*vm));

	if (!vm)
		return NULL;
	vm->b = b;
	vm->r = *r;
	r->metadata = NULL;
	vm->state = VM_STARTING;
	vm->rundir_fd = rundir_fd;
	snprintf(vm->object, sizeof(vm->object), "vm %s", vm->r.id);
	TAILQ_INIT(&vm->waiters);
	guest_pool_init(&vm->pool, &b->loop, rundir_fd, vm->object);
	vm_heart_init(vm);
	TAILQ_INSERT_TAIL(&b->vms, vm, next);
	b->vm_count++;
	table_add(vm);
	return vm;
}

static void destroy(struct deferred *d)
{
	struct vm *vm = container_of(d, struct vm, deferred);

	vm_record_free(&vm->r);
	free(vm->failure);
	free(vm);
}

void vm_free(struct vm *vm)
{
	struct broker *b = vm->b;
	struct hutch_error err;

	table_remove(vm);
	vm_died_error(vm, &err);
	guest_pool_end(&vm->pool, &err);
	if (vm->state == VM_DEAD) {
		event_del(&vm->tomb);
		TAILQ_REMOVE(&b->tombs, vm, next);
		b->tomb_count--;
	} else {
		vm_boot_abort(vm);
		vm_rejoin_abort(vm);
		vm_thaw_abort(vm);
		capture_abort(vm);
		guest_link_close(vm->held);
		vm_heart_stop(vm);
		TAILQ_REMOVE(&b->vms, vm, next);
		b->vm_count--;
	}
	if (vm->vmm)
		vmm_free(vm->vmm);
	fd_close(&vm->rundir_fd);
	loop_defer(&b->loop, &vm->deferred, destroy);
}

/* Where it comes from; the sizes of a VM that goes on from an image are that one's. */
static void fill_origin(struct vm_record *r, const struct vm_spec *spec,
			const struct vm_origin *origin)
{
	const struct image *im = origin->im;

	if (!im)
		return;
	r->boot_mode = spec->parent ? BOOT_FORK : BOOT_RESTORE;
	r->memory_mib = im->traits.memory_mib;
	r->vcpus = im->traits.vcpus;
	if (spec->parent) {
		snprintf(r->parent, sizeof(r->parent), "%s", spec->parent->r.id);
		snprintf(r->snapshot, sizeof(r->snapshot), "%s", spec->parent->r.snapshot);
		snprintf(r->accel_reason, sizeof(r->accel_reason), "%s",
			 spec->parent->r.accel_reason);
		r->accel = spec->parent->r.accel;
		r->snapshot_uid = spec->parent->r.snapshot_uid;
	} else {
		snprintf(r->snapshot, sizeof(r->snapshot), "%s", im->name);
		r->snapshot_uid = im->owner_uid;
	}
}

static int fill_record(struct vm_record *r, struct broker *b, const struct vm_spec *spec,
		       const struct vm_origin *origin)
{
	const struct template *tpl = spec->tpl;
	uuid_t id;

	*r = (struct vm_record){
		.args_hash = spec->args_hash,
		.owner_uid = spec->owner,
		.step = STEP_SPAWNING,
		.memory_mib = spec->memory_mib ? spec->memory_mib : tpl->memory_mib,
		.vcpus = spec->vcpus ? spec->vcpus : tpl->vcpus,
		.cid = cid_take(b),
		.created_ms = clock_unix_ms(),
		.ttl_ms = spec->ttl_ms,
		.secrets = spec->secrets,
		.generation = 1,
	};
	uuid_generate_random(id);
	uuid_unparse_lower(id, r->id);
	vm_jail_fill(r, b);
	snprintf(r->name, sizeof(r->name), "%s", spec->name);
	snprintf(r->key, sizeof(r->key), "%s", spec->key);
	snprintf(r->template_name, sizeof(r->template_name), "%s", tpl->name);
	snprintf(r->cold_reason, sizeof(r->cold_reason), "%s", spec->cold_reason);
	memcpy(r->host_boot_id, b->host_boot_id, sizeof(r->host_boot_id));
	fill_origin(r, spec, origin);
	if (!spec->metadata || !spec->metadata[0])
		return 0;
	r->metadata = vm_metadata_copy(spec->metadata);
	return r->metadata ? 0 : -1;
}

static int check_spec(struct broker *b, const struct vm_spec *spec, struct hutch_error *err)
{
	const struct vm *other;

	if (b->stopping)
		return hutch_error_set(err, HUTCH_E_BUSY, 0, "the broker is stopping");
	if (b->launcher_lost) {
		broker_give_up(b);
		return hutch_error_set(err, HUTCH_E_START_FAILED, 0,
				       "the launcher has died; hutchd ends, to be started again");
	}
	if (!vm_metadata_valid(spec->metadata))
		return hutch_error_set(err, HUTCH_E_INVALID, 0, "the metadata is not UTF-8");
	other = spec->name[0] ? find_own_name(b, spec->owner, spec->name, false) : NULL;
	if (other)
		return hutch_error_set(err, HUTCH_E_EXISTS, 0, "the name '%s' is taken by VM %s",
				       spec->name, other->r.id);
	return 0;
}

static struct vm *make(struct broker *b, const struct vm_spec *spec, struct vm_origin *origin,
		       struct hutch_error *err)
{
	struct vm_record r = {.metadata = NULL};
	struct vm *vm = NULL;
	int fd = -1;

	if (fill_record(&r, b, spec, origin) < 0)
		goto no_memory;
	if (limits_check_vm(b, spec->owner, r.memory_mib, r.vcpus, true, err) < 0 ||
	    limits_take_create(b, spec->owner, err) < 0)
		goto fail;
	fd = dir_make(b->vms_fd, r.id);
	if (fd < 0) {
		hutch_error_set(err, HUTCH_E_IO, errno,
				"cannot make the run directory of VM %s: %s", r.id,
				strerror(errno));
		goto fail;
	}
	vm = vm_new(b, &r, fd);
	if (!vm)
		goto no_memory;
	vm->kind = spec->kind;
	log_info(vm->object,
		 "created for uid %u: template %s, %s%s%s, %u MiB, %u vcpus, cid %u%s%s",
		 (unsigned)spec->owner, vm->r.template_name, vm_boot_mode_name(vm->r.boot_mode),
		 vm->r.parent[0] || vm->r.snapshot[0] ? " of " : "",
		 vm->r.parent[0] ? vm->r.parent : vm->r.snapshot, vm->r.memory_mib, vm->r.vcpus,
		 vm->r.cid, vm->r.name[0] ? ", name " : "", vm->r.name);
	if (vm_boot_start(vm, spec->tpl, origin, spec->timeout_ms, err) < 0) {
		tree_remove(b->vms_fd, vm->r.id);
		vm_free(vm);
		return NULL;
	}
	return vm;

no_memory:
	hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a VM");
fail:
	if (fd >= 0)
		tree_remove(b->vms_fd, r.id);
	fd_close(&fd);
	vm_record_free(&r);
	return NULL;
}

struct vm *vm_make(struct broker *b, const struct vm_spec *spec, struct vm_origin *origin,
		   struct hutch_error *err)
{
	struct vm *vm = check_spec(b, spec, err) < 0 ? NULL : make(b, spec, origin, err);

	vm_origin_free(origin);
	return vm;
}

struct vm *vm_create(struct broker *b, uint32_t owner, const struct vm_create *args,
		     const char *key, uint64_t args_hash, struct hutch_error *err)
{
	char cold_reason[256];
	struct template tpl;
	struct vm_spec spec = {.owner = owner,
			       .tpl = &tpl,
			       .name = args->name,
			       .key = key,
			       .args_hash = args_hash,
			       .memory_mib = args->memory_mib,
			       .vcpus = args->vcpus,
			       .ttl_ms = args->ttl_ms,
			       .timeout_ms = args->timeout_ms,
			       .metadata = args->metadata,
			       .secrets = args->secrets,
			       .cold_reason = cold_reason};
	struct vm_origin origin;

	/* First what costs nothing. */
	if (check_spec(b, &spec, err) < 0 ||
	    vm_origin_find(b, owner, args, &origin, &tpl, cold_reason, sizeof(cold_reason), err) <
		    0)
		return NULL;
	if (origin.im && origin.optional) {
		struct vm *vm = NULL;

		if (limits_check_vm(b, owner, origin.im->traits.memory_mib, origin.im->traits.vcpus,
				    false, err) == 0)
			vm = warm_pool_take(b, &spec, origin.im, err);
		if (vm || err->kind) {
			vm_origin_free(&origin);
			return vm;
		}
	}
	return vm_make(b, &spec, &origin, err);
}

int vm_give(struct vm *vm, const struct vm_spec *spec, struct hutch_error *err)
{
	struct vm_record *r = &vm->r;

	if (spec->metadata && spec->metadata[0]) {
		r->metadata = vm_metadata_copy(spec->metadata);
		if (!r->metadata)
			return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM,
					       "out of memory for a VM");
	}
	table_remove(vm);
	snprintf(r->name, sizeof(r->name), "%s", spec->name);
	snprintf(r->key, sizeof(r->key), "%s", spec->key);
	r->args_hash = spec->args_hash;
	r->owner_uid = spec->owner;
	r->ttl_ms = spec->ttl_ms;
	r->created_ms = clock_unix_ms();
	r->secrets |= spec->secrets;
	r->boot_mode = BOOT_POOL;
	vm->kind = VM_USERS;
	table_add(vm);
	log_info(vm->object, "taken from the pool for uid %u%s%s", (unsigned)spec->owner,
		 r->name[0] ? ", name " : "", r->name);
	vm_boot_give(vm, spec->timeout_ms);
	return 0;
}

void vm_died_error(const struct vm *vm, struct hutch_error *err)
{
	hutch_error_clear(err);
	hutch_error_set(err, HUTCH_E_VM_DIED, 0, "VM %s ended: %s", vm->r.id,
			vm->reason[0] ? vm->reason : "unknown");
}

/* Nobody gets anything from it any more. */
static void close_guest_side(struct vm *vm)
{
	struct hutch_error err;

	vm_boot_abort(vm);
	vm_rejoin_abort(vm);
	vm_thaw_abort(vm);
	capture_abort(vm);
	guest_link_close(vm->held);
	vm->held = NULL;
	vm_heart_stop(vm);
	vm_died_error(vm, &err);
	guest_pool_end(&vm->pool, &err);
}

void vm_end(struct vm *vm, const char *reason)
{
	if (vm->state >= VM_STOPPING)
		return;
	snprintf(vm->reason, sizeof(vm->reason), "%.500s", reason);
	log_info(vm->object, "ends: %s", vm->reason);
	vm_state_set(&vm->state, VM_STOPPING, vm->object);
	if (vm->kind == VM_POOLED)
		warm_pool_lost(vm);
	vm->r.step = STEP_STOPPING;
	vm_save(vm);
	close_guest_side(vm);
	if (vm->vmm)
		vmm_kill(vm->vmm);
	else
		vm_bury(vm);
}

void vm_fail(struct vm *vm, const struct hutch_error *err)
{
	char tail[CONSOLE_TAIL];

	if (vm->state >= VM_STOPPING)
		return;
	vm->failure = malloc(sizeof(*vm->failure));
	if (vm->failure) {
		*vm->failure = *err;
		if (vm->vmm && vmm_console_tail(vm->vmm, tail, sizeof(tail)) > 0)
			hutch_error_set(vm->failure, err->kind, err->errnum,
					"%.700s; the console ends with:\n%s", err->message, tail);
		memcpy(vm->failure->stage, err->stage, sizeof(err->stage));
	}
	vm_end(vm, err->message);
}

static void on_tomb(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	vm_free(arg);
}

/* It stays for vm.info and vm.wait; one that never ran frees its name and key for the next attempt. */
static void entomb(struct vm *vm)
{
	const struct timeval tv = {.tv_sec = VM_TOMB_MS / 1000};
	struct broker *b = vm->b;

	TAILQ_REMOVE(&b->vms, vm, next);
	b->vm_count--;
	if (vm->failure)
		vm->r.key[0] = '\0';
	TAILQ_INSERT_TAIL(&b->tombs, vm, next);
	b->tomb_count++;
	event_assign(&vm->tomb, b->loop.base, -1, 0, on_tomb, vm);
	event_add(&vm->tomb, &tv);
	if (b->tomb_count > VM_TOMBS)
		vm_free(TAILQ_FIRST(&b->tombs));
}

static void notify_end(struct vm *vm)
{
	struct vm_waiter *w;
	struct hutch_error err;

	hutch_error_clear(&err);
	if (vm->failure)
		err = *vm->failure;
	else
		hutch_error_set(&err, HUTCH_E_CANCELED, 0,
				"VM %s was ended before it was ready: %s", vm->r.id, vm->reason);
	while ((w = TAILQ_FIRST(&vm->waiters)) != NULL) {
		vm_unwait(w);
		w->done(w, w->for_ready ? &err : NULL);
	}
}

void vm_bury(struct vm *vm)
{
	struct broker *b = vm->b;

	if (vm->state == VM_DEAD)
		return;
	close_guest_side(vm);
	if (vm->vmm)
		vmm_free(vm->vmm);
	vm->vmm = NULL;
	fd_close(&vm->rundir_fd);
	if (tree_remove(b->vms_fd, vm->r.id) < 0)
		log_errno(LOG_LEVEL_ERROR, vm->object, "cannot remove its run directory");
	vm_state_set(&vm->state, VM_DEAD, vm->object);
	log_info(vm->object, "gone: %s", vm->reason);
	entomb(vm);
	vm_ttl_rearm(b);
	notify_end(vm);
}

bool vm_wait(struct vm *vm, struct vm_waiter *w)
{
	if (vm->state == VM_DEAD || (w->for_ready && vm->state == VM_RUNNING))
		return false;
	w->vm = vm;
	TAILQ_INSERT_TAIL(&vm->waiters, w, next);
	return true;
}

void vm_unwait(struct vm_waiter *w)
{
	if (!w->vm)
		return;
	TAILQ_REMOVE(&w->vm->waiters, w, next);
	w->vm = NULL;
}

/* A waiter's callback may add or remove others: start over after each. */
void vm_notify_ready(struct vm *vm)
{
	struct vm_waiter *w;

	do {
		TAILQ_FOREACH(w, &vm->waiters, next)
			if (w->for_ready)
				break;
		if (w) {
			vm_unwait(w);
			w->done(w, NULL);
		}
	} while (w);
}
