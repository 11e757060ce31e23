/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much all users together and each uid may have. What is in use is counted where it is asked for, from the lists of VMs
 * and clients, and from the disk: there is no second state that could be wrong.
 */
#include "host/hutchd/limits.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/client.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/vm.h"

#define SECOND_US 1000000u

struct usage {
	uint64_t vms, memory_mib, vcpus, clients, calls;
};

enum counted {
	OF_VMS,
	OF_MEMORY,
	OF_VCPUS,
	OF_CLIENTS,
	OF_CALLS,
	OF_CREATES,
	OF_SNAPSHOTS,
	OF_ALL
};

static const struct row {
	const char *key;
	size_t offset;
	bool per_uid;
	enum counted counted;
	unsigned min, normal;
	const char *what;
} rows[] = {
#define ROW(k) #k, offsetof(struct limit_values, k)
	{ROW(max_vms), false, OF_VMS, 1, 2048, "virtual machines"},
	{ROW(max_memory_mib), false, OF_MEMORY, 0, 0, "MiB of memory of their guests"},
	{ROW(max_vcpus), false, OF_VCPUS, 0, 0, "CPUs of their guests"},
	{ROW(max_clients), false, OF_CLIENTS, 1, 1024, "connections"},
	{ROW(max_calls), false, OF_CALLS, 0, 0, "calls to agents at a time"},
	{ROW(max_creates), false, OF_CREATES, 0, 0, "machines made in a second"},
	{ROW(max_snapshot_mib), false, OF_SNAPSHOTS, 0, 0, "MiB of named snapshots"},
	{ROW(uid_vms), true, OF_VMS, 0, 0, "virtual machines"},
	{ROW(uid_memory_mib), true, OF_MEMORY, 0, 0, "MiB of memory of their guests"},
	{ROW(uid_vcpus), true, OF_VCPUS, 0, 0, "CPUs of their guests"},
	{ROW(uid_clients), true, OF_CLIENTS, 0, 0, "connections"},
	{ROW(uid_calls), true, OF_CALLS, 0, 0, "calls to agents at a time"},
	{ROW(uid_creates), true, OF_CREATES, 0, 0, "machines made in a second"},
	{ROW(uid_snapshot_mib), true, OF_SNAPSHOTS, 0, 0, "MiB of named snapshots"},
#undef ROW
};
#define ROWS	  (sizeof(rows) / sizeof(rows[0]))
#define LIMIT_MAX 1000000000u

static unsigned *value_at(struct limit_values *v, const struct row *r)
{
	return (unsigned *)(void *)((char *)v + r->offset);
}

static unsigned value_of(const struct broker *b, const struct row *r)
{
	return *(const unsigned *)(const void *)((const char *)&b->config->limits + r->offset);
}

void limits_defaults(struct limit_values *v)
{
	for (size_t i = 0; i < ROWS; i++)
		*value_at(v, &rows[i]) = rows[i].normal;
}

int limits_set(struct limit_values *v, const char *key, const char *value, struct hutch_error *err)
{
	const struct row *r = rows;
	unsigned long long n;
	char *end = NULL;

	while (r < rows + ROWS && strcmp(r->key, key) != 0)
		r++;
	if (r == rows + ROWS)
		return 1;
	n = isdigit((unsigned char)value[0]) ? strtoull(value, &end, 10) : 0;
	if (!end || *end || n < r->min || n > LIMIT_MAX)
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "%s = '%s': a number from %u to %u is wanted", key, value,
				       r->min, LIMIT_MAX);
	*value_at(v, r) = (unsigned)n;
	return 0;
}

/* Calls that are relayed: those that the broker answers itself take nothing of a guest's. */
static bool in_call(const struct client *c)
{
	return c->ops && c->ops->input;
}

static struct usage count(const struct broker *b, bool all, uint32_t uid)
{
	struct usage u = {.vms = 0};
	const struct client *c;
	const struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next) {
		if (!all && (vm->kind != VM_USERS || vm->r.owner_uid != uid))
			continue;
		/* What it holds is shared by the VMs that were forked off it. */
		if (vm->kind == VM_ZYGOTE)
			continue;
		u.vms++;
		if (vm_rests(vm))
			continue;
		u.memory_mib += vm->r.memory_mib;
		u.vcpus += vm->r.vcpus;
	}
	TAILQ_FOREACH(c, &b->clients, next) {
		if (!all && c->uid != uid)
			continue;
		u.clients++;
		u.calls += in_call(c);
	}
	return u;
}

static uint64_t used_of(const struct usage *u, enum counted what)
{
	switch (what) {
	case OF_VMS:
		return u->vms;
	case OF_MEMORY:
		return u->memory_mib;
	case OF_VCPUS:
		return u->vcpus;
	case OF_CLIENTS:
		return u->clients;
	case OF_CALLS:
		return u->calls;
	case OF_CREATES:
	case OF_SNAPSHOTS:
	case OF_ALL:
		break;
	}
	return 0;
}

static int refuse(const struct row *r, uint64_t used, unsigned value, uint64_t wanted,
		  struct hutch_error *err)
{
	return hutch_error_set(err, r->per_uid ? HUTCH_E_QUOTA : HUTCH_E_BUSY, 0,
			       "%s of %s: %llu are in use, %llu more are wanted, %s is %u; %s",
			       r->what, r->per_uid ? "one user" : "all users",
			       (unsigned long long)used, (unsigned long long)wanted, r->key, value,
			       !r->per_uid		    ? "try again later"
			       : r->counted == OF_SNAPSHOTS ? "delete some of yours first"
							    : "end or park some of yours first");
}

/* wanted: by enum counted, 0: not asked for. of_all: also against the limits of all together. */
static int check(const struct broker *b, uint32_t uid, bool of_all, const uint64_t wanted[OF_ALL],
		 struct hutch_error *err)
{
	bool exempt = broker_is_admin(b, uid), counted[2] = {false, false};
	struct usage u[2] = {{.vms = 0}, {.vms = 0}};

	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		uint64_t more = wanted[r->counted], used;
		unsigned value = value_of(b, r);

		if (value == 0 || more == 0 || (r->per_uid ? exempt : !of_all))
			continue;
		if (!counted[r->per_uid])
			u[r->per_uid] = count(b, !r->per_uid, uid);
		counted[r->per_uid] = true;
		used = used_of(&u[r->per_uid], r->counted);
		if (used + more > value)
			return refuse(r, used, value, more, err);
	}
	return 0;
}

int limits_check_vm(const struct broker *b, uint32_t uid, uint32_t memory_mib, uint32_t vcpus,
		    bool new_one, struct hutch_error *err)
{
	const uint64_t wanted[OF_ALL] = {
		[OF_VMS] = 1, [OF_MEMORY] = memory_mib, [OF_VCPUS] = vcpus};

	return check(b, uid, new_one, wanted, err);
}

int limits_check_wake(const struct broker *b, uint32_t uid, uint32_t memory_mib, uint32_t vcpus,
		      struct hutch_error *err)
{
	const uint64_t wanted[OF_ALL] = {[OF_MEMORY] = memory_mib, [OF_VCPUS] = vcpus};

	return check(b, uid, true, wanted, err);
}

int limits_check_client(const struct broker *b, uint32_t uid, struct hutch_error *err)
{
	const uint64_t wanted[OF_ALL] = {[OF_CLIENTS] = 1};

	return check(b, uid, true, wanted, err);
}

int limits_check_call(const struct client *c, struct hutch_error *err)
{
	const uint64_t wanted[OF_ALL] = {[OF_CALLS] = 1};

	return check(c->b, c->uid, true, wanted, err);
}

static uint64_t mib(uint64_t bytes)
{
	return (bytes + (1u << 20) - 1) >> 20;
}

/* In MiB, or UINT64_MAX when it cannot be told. */
static uint64_t snapshots_of(const struct broker *b, const struct row *r, uint32_t uid, int files)
{
	uint64_t bytes;

	if (snapshot_bytes(b, r->per_uid ? &uid : NULL, files, &bytes) < 0)
		return UINT64_MAX;
	return mib(bytes);
}

int limits_check_snapshot(const struct broker *b, uint32_t uid, int files, struct hutch_error *err)
{
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		unsigned value = value_of(b, r);
		uint64_t used, with;

		if (r->counted != OF_SNAPSHOTS || value == 0 ||
		    (r->per_uid && broker_is_admin(b, uid)))
			continue;
		used = snapshots_of(b, r, uid, -1);
		with = files < 0 ? used + 1 : snapshots_of(b, r, uid, files);
		if (used == UINT64_MAX || with == UINT64_MAX)
			return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM,
					       "what snapshots take cannot be counted");
		if (with > value)
			return refuse(r, used, value, with - used, err);
	}
	return 0;
}

/* That uid's bucket; a new one takes the place of the one that has been full longest. */
static struct limit_rate *rate_of(struct limit_rates *rates, uint32_t uid)
{
	struct limit_rate *oldest = &rates->uids[0];

	for (unsigned i = 0; i < LIMIT_RATES; i++) {
		struct limit_rate *r = &rates->uids[i];

		if (r->used && r->uid == uid)
			return r;
		if (!r->used || (oldest->used && r->empty_us < oldest->empty_us))
			oldest = r;
	}
	*oldest = (struct limit_rate){.uid = uid, .used = true};
	return oldest;
}

/* Milliseconds until one more is allowed; 0: now. Up to a second's worth may come at once. */
static uint64_t rate_wait_ms(const struct limit_rate *r, unsigned per_second, uint64_t now)
{
	uint64_t step = SECOND_US / per_second, full = r->empty_us > now ? r->empty_us - now : 0;

	return full + step <= SECOND_US ? 0 : (full + step - SECOND_US) / 1000 + 1;
}

static void rate_take(struct limit_rate *r, unsigned per_second, uint64_t now)
{
	r->empty_us = (r->empty_us > now ? r->empty_us : now) + SECOND_US / per_second;
}

int limits_take_create(struct broker *b, uint32_t uid, struct hutch_error *err)
{
	const struct limit_values *v = &b->config->limits;
	unsigned of_uid = broker_is_admin(b, uid) ? 0 : v->uid_creates;
	struct limit_rate *own = of_uid ? rate_of(&b->rates, uid) : NULL;
	uint64_t now = clock_us(), wait_ms = 0, own_ms = 0;

	if (v->max_creates)
		wait_ms = rate_wait_ms(&b->rates.all, v->max_creates, now);
	if (own)
		own_ms = rate_wait_ms(own, of_uid, now);
	if (wait_ms || own_ms)
		return hutch_error_set(err, HUTCH_E_BUSY, 0,
				       "too many machines are made in a second (%s is %u); "
				       "try again in %llu ms",
				       own_ms > wait_ms ? "uid_creates" : "max_creates",
				       own_ms > wait_ms ? of_uid : v->max_creates,
				       (unsigned long long)(own_ms > wait_ms ? own_ms : wait_ms));
	if (v->max_creates)
		rate_take(&b->rates.all, v->max_creates, now);
	if (own)
		rate_take(own, of_uid, now);
	return 0;
}

void limits_put(struct mp_buf *out, const struct broker *b, uint32_t uid)
{
	const struct usage of_all = count(b, true, uid), own = count(b, false, uid);

	mp_array_begin(out);
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];

		mp_map_begin(out);
		mp_kv_str(out, "name", r->key);
		mp_kv_str(out, "scope", r->per_uid ? "uid" : "all");
		mp_kv_str(out, "what", r->what);
		mp_kv_uint(out, "value", value_of(b, r));
		if (r->counted == OF_SNAPSHOTS)
			mp_kv_uint(out, "used", snapshots_of(b, r, uid, -1));
		else if (r->counted != OF_CREATES)
			mp_kv_uint(out, "used", used_of(r->per_uid ? &own : &of_all, r->counted));
		mp_map_end(out);
	}
	mp_array_end(out);
}
