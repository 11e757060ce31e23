/* SPDX-License-Identifier: Apache-2.0 */
/* A uid for each VMM. */
#include "host/hutchd/vm_jail.h"

#include <stdlib.h>

static bool uid_used(const struct broker *b, uint32_t uid)
{
	const struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next)
		if (vm->r.vmm_uid == uid)
			return true;
	return false;
}

/*
 * From a place that the id says, which is random: a uid is not used again soon, and two brokers that were given the same
 * range seldom meet. The range's first one is for VMMs that are nobody's (probes).
 */
static uint32_t take_uid(const struct broker *b, const char *id)
{
	uint32_t first = b->config->first_vm_uid + 1, count = b->config->vm_uids - 1;
	uint32_t start = (uint32_t)strtoul(id, NULL, 16);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t uid = first + (start % count + i) % count;

		if (!uid_used(b, uid))
			return uid;
	}
	return 0;
}

void vm_jail_fill(struct vm_record *r, const struct broker *b)
{
	const struct jail_report *jail = launcher_jail(b->launcher);
	const struct cgroup_report *cgroup = launcher_cgroup(b->launcher);

	r->isolation = jail->level;
	r->isolation_missing = jail->missing;
	r->ceilings = cgroup->kind;
	r->ceilings_of = cgroup->has;
	r->vmm_uid = jail->level == JAIL_UID ? take_uid(b, r->id) : 0;
}
