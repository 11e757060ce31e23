/* SPDX-License-Identifier: Apache-2.0 */
/* Making a VM, and giving it away. */
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

#define FIRST_CID 3u /* 0-2 are the hypervisor, loopback and the host: vsock(7) */
#define LAST_CID  0x7fffffffu

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

int vm_set_running(struct vm *vm)
{
	vm->r.step = STEP_RUNNING;
	vm->r.asleep_ms = 0;
	vm->r.asleep_by_idle = false;
	return vm_save(vm);
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
	vm_idle_init(vm);
	TAILQ_INSERT_TAIL(&b->vms, vm, next);
	b->vm_count++;
	vm_table_add(vm);
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

	vm_table_remove(vm);
	vm_died_error(vm, &err);
	guest_pool_end(&vm->pool, &err);
	if (vm->state == VM_DEAD) {
		event_del(&vm->tomb);
		TAILQ_REMOVE(&b->tombs, vm, next);
		b->tomb_count--;
	} else {
		vm_abort_all(vm);
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
	if (r->disk_mib < im->disk_mib)
		r->disk_mib = im->disk_mib;
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
		.disk_mib = spec->disk_mib ? spec->disk_mib : tpl->disk_mib,
		.cid = cid_take(b),
		.created_ms = clock_unix_ms(),
		.ttl_ms = spec->ttl_ms,
		.secrets = spec->secrets,
		.idle = spec->idle,
		.shared = spec->share != NULL,
		.share_gid = spec->share ? (uint32_t)*spec->share : 0,
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

int vm_check_start(struct broker *b, struct hutch_error *err)
{
	if (b->stopping)
		return hutch_error_set(err, HUTCH_E_BUSY, 0, "the broker is stopping");
	if (b->launcher_lost) {
		broker_give_up(b);
		return hutch_error_set(err, HUTCH_E_START_FAILED, 0,
				       "the launcher has died; hutchd ends, to be started again");
	}
	return 0;
}

static int check_spec(struct broker *b, const struct vm_spec *spec, struct hutch_error *err)
{
	const struct vm *other;

	if (vm_check_start(b, err) < 0)
		return -1;
	if (!vm_metadata_valid(spec->metadata))
		return hutch_error_set(err, HUTCH_E_INVALID, 0, "the metadata is not UTF-8");
	other = spec->name[0] ? vm_find_name(b, spec->owner, spec->name, false) : NULL;
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

struct vm *vm_make_hidden(struct broker *b, enum vm_kind kind, const struct template *tpl,
			  uint64_t timeout_ms, struct vm_origin *origin, struct hutch_error *err)
{
	const struct vm_spec spec = {.kind = kind,
				     .owner = b->uid,
				     .tpl = tpl,
				     .name = "",
				     .key = "",
				     .ttl_ms = HUTCH_MAX_TTL_MS,
				     .timeout_ms = timeout_ms,
				     .cold_reason = ""};

	return vm_make(b, &spec, origin, err);
}

struct vm *vm_create(struct broker *b, uint32_t owner, const struct vm_create *args,
		     const gid_t *share, const char *key, uint64_t args_hash,
		     struct hutch_error *err)
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
			       .disk_mib = args->disk_mib,
			       .ttl_ms = args->ttl_ms,
			       .timeout_ms = args->timeout_ms,
			       .metadata = args->metadata,
			       .secrets = args->secrets,
			       .idle = args->idle,
			       .share = share,
			       .cold_reason = cold_reason};
	struct vm_origin origin;

	/* First what costs nothing. */
	if (check_spec(b, &spec, err) < 0 ||
	    vm_origin_find(b, owner, args, &origin, &tpl, cold_reason, sizeof(cold_reason), err) <
		    0)
		return NULL;
	/* A pool's have its size. */
	if (origin.im && origin.optional && (!args->disk_mib || args->disk_mib == tpl.disk_mib)) {
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
	vm_table_remove(vm);
	snprintf(r->name, sizeof(r->name), "%s", spec->name);
	snprintf(r->key, sizeof(r->key), "%s", spec->key);
	r->args_hash = spec->args_hash;
	r->owner_uid = spec->owner;
	r->ttl_ms = spec->ttl_ms;
	r->created_ms = clock_unix_ms();
	r->secrets |= spec->secrets;
	r->idle = spec->idle;
	r->shared = spec->share != NULL;
	r->share_gid = spec->share ? (uint32_t)*spec->share : 0;
	r->boot_mode = BOOT_POOL;
	vm->kind = VM_USERS;
	vm_table_add(vm);
	log_info(vm->object, "taken from the pool for uid %u%s%s", (unsigned)spec->owner,
		 r->name[0] ? ", name " : "", r->name);
	vm_boot_give(vm, spec->timeout_ms);
	return 0;
}
