/* SPDX-License-Identifier: Apache-2.0 */
/* VMs by id, name and key. */
#include <string.h>

#include "host/hutchd/vm.h"

/* FNV-1a */
static unsigned bucket(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h % VM_BUCKETS;
}

void vm_table_add(struct vm *vm)
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

void vm_table_remove(struct vm *vm)
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

struct vm *vm_find_name(struct broker *b, uint32_t owner, const char *name, bool dead)
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

struct vm *vm_find_id(struct broker *b, const char *id)
{
	struct vm *vm = b->by_id[bucket(id)];

	while (vm && strcmp(vm->r.id, id) != 0)
		vm = vm->id_next;
	return vm;
}

struct vm *vm_find(struct broker *b, uint32_t uid, const char *id_or_name, struct hutch_error *err)
{
	struct vm *vm = vm_find_id(b, id_or_name);
	bool many = false;

	if (vm && vm_visible(vm, uid))
		return vm;
	vm = vm_find_name(b, uid, id_or_name, false);
	if (!vm && broker_is_admin(b, uid))
		vm = find_any_name(b, id_or_name, &many);
	if (!vm && !many)
		vm = vm_find_name(b, uid, id_or_name, true);
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
