/* SPDX-License-Identifier: Apache-2.0 */
/* What of a VM outlives the broker. */
#include "host/hutchd/vm_record.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/json_struct.h"

#define RECORD_VERSION 1
#define RECORD_MAX     (64u << 10) /* of the file, bytes */

static const char *const step_names[] = {
	[STEP_SPAWNING] = "spawning",	[STEP_BOOTING] = "booting", [STEP_RUNNING] = "running",
	[STEP_CAPTURING] = "capturing", [STEP_PAUSED] = "paused",   [STEP_PARKING] = "parking",
	[STEP_PARKED] = "parked",	[STEP_WAKING] = "waking",   [STEP_STOPPING] = "stopping",
};
static_assert(sizeof(step_names) / sizeof(step_names[0]) == VM_STEPS, "every step has a name");

const char *vm_step_name(enum vm_step s)
{
	return step_names[s];
}

static const char *const boot_mode_names[] = {
	[BOOT_COLD] = "cold",
	[BOOT_RESTORE] = "restore",
	[BOOT_FORK] = "fork",
	[BOOT_POOL] = "pool",
};
static_assert(sizeof(boot_mode_names) / sizeof(boot_mode_names[0]) == VM_BOOT_MODES,
	      "every mode has a name");

const char *vm_boot_mode_name(enum vm_boot_mode m)
{
	return boot_mode_names[m];
}

/* The members that are copied as they are; step, mode, accel, process and metadata are not among them. */
#define TEXT(m) JSON_MEMBER(TEXT, struct vm_record, #m, m)
#define U32(m)	JSON_MEMBER(U32, struct vm_record, #m, m)
#define U64(m)	JSON_MEMBER(U64, struct vm_record, #m, m)
#define BOOL(m) JSON_MEMBER(BOOL, struct vm_record, #m, m)
/* Records of older brokers lack it. */
#define LATER(type, m) JSON_OPTIONAL(type, struct vm_record, #m, m)

static const struct json_member members[] = {
	TEXT(id),
	TEXT(name),
	TEXT(key),
	U64(args_hash),
	U32(owner_uid),
	TEXT(template_name),
	U32(memory_mib),
	U32(vcpus),
	U32(vmm_uid),
	U32(isolation),
	U32(isolation_missing),
	U32(cid),
	U64(created_ms),
	U64(ttl_ms),
	U64(deadline_ms),
	TEXT(host_boot_id),
	TEXT(accel_reason),
	TEXT(vmm_version),
	U64(spawn_us),
	U64(qmp_us),
	U64(hello_us),
	U64(identity_us),
	U64(total_us),
	TEXT(agent_name),
	TEXT(agent_boot_id),
	U64(generation),
	TEXT(cold_reason),
	U32(layers),
	TEXT(snapshot),
	U32(snapshot_uid),
	TEXT(parent),
	BOOL(secrets),
	LATER(U32, ceilings),
	LATER(U32, ceilings_of),
	LATER(BOOL, shared),
	LATER(U32, share_gid),
	LATER(TEXT, machine_id),
	LATER(BOOL, zygote),
	LATER(U32, start),
	LATER(U32, disk_mib),
	LATER(U32, disk_first),
	LATER(U32, disk_top),
	JSON_OPTIONAL(U64, struct vm_record, "idle_pause_after_ms", idle.pause_after_ms),
	JSON_OPTIONAL(U64, struct vm_record, "idle_park_after_ms", idle.park_after_ms),
	LATER(U64, asleep_ms),
	LATER(BOOL, asleep_by_idle),
};
#define MEMBERS (sizeof(members) / sizeof(members[0]))

static json_t *metadata_json(char *const *pairs)
{
	json_t *o = json_object();

	for (; pairs && pairs[0] && o; pairs += 2)
		if (json_object_set_new(o, pairs[0], json_string(pairs[1])) < 0) {
			json_decref(o);
			o = NULL;
		}
	return o;
}

static json_t *record_json(const struct vm_record *r)
{
	json_t *o = json_object();
	int rc = 0;

	if (!o)
		return NULL;
	rc |= json_object_set_new(o, "version", json_integer(RECORD_VERSION));
	rc |= json_object_set_new(o, "step", json_string(step_names[r->step]));
	rc |= json_object_set_new(o, "boot_mode", json_string(boot_mode_names[r->boot_mode]));
	rc |= json_object_set_new(o, "accel", json_string(vmm_accel_name(r->accel)));
	rc |= json_object_set_new(o, "pid", json_integer(r->process.pid));
	rc |= json_object_set_new(o, "start_time", json_integer((json_int_t)r->process.start_time));
	rc |= json_object_set_new(o, "metadata", metadata_json(r->metadata));
	rc |= json_put_members(o, r, members, MEMBERS);
	if (rc == 0)
		return o;
	json_decref(o);
	return NULL;
}

int vm_record_save(const struct vm_record *r, int rundir_fd)
{
	json_t *o = record_json(r);
	char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
	int rc = -1;

	if (text)
		rc = file_write_atomic(rundir_fd, VM_RECORD_FILE, text, strlen(text), false);
	else
		errno = ENOMEM;
	free(text);
	json_decref(o);
	return rc;
}

static int wrong(struct hutch_error *err, const char *member)
{
	return json_member_wrong(VM_RECORD_FILE, member, err);
}

static int get_uint(const json_t *o, const char *name, uint64_t max, uint64_t *out,
		    struct hutch_error *err)
{
	const json_t *v = json_object_get(o, name);

	if (!json_is_integer(v) || (uint64_t)json_integer_value(v) > max)
		return wrong(err, name);
	*out = (uint64_t)json_integer_value(v);
	return 0;
}

static int get_name(const json_t *o, const char *name, const char *const *names, int count,
		    int *out, struct hutch_error *err)
{
	const char *s = json_string_value(json_object_get(o, name));

	for (int i = 0; s && i < count; i++)
		if (strcmp(s, names[i]) == 0) {
			*out = i;
			return 0;
		}
	return wrong(err, name);
}

static int get_metadata(json_t *o, struct vm_record *r, struct hutch_error *err)
{
	json_t *map = json_object_get(o, "metadata"), *value;
	const char *pairs[2 * HUTCH_MAX_METADATA + 1];
	const char *key;
	size_t n = 0;

	if (!json_is_object(map) || json_object_size(map) > HUTCH_MAX_METADATA)
		return wrong(err, "metadata");
	json_object_foreach(map, key, value)
	{
		if (!json_is_string(value))
			return wrong(err, "metadata");
		pairs[n++] = key;
		pairs[n++] = json_string_value(value);
	}
	pairs[n] = NULL;
	if (n == 0)
		return 0;
	r->metadata = vm_metadata_copy((char *const *)(const void *)pairs);
	return r->metadata ? 0 : hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
}

static int record_parse(struct vm_record *r, json_t *o, struct hutch_error *err)
{
	const char *const accels[] = {vmm_accel_name(ACCEL_AUTO), vmm_accel_name(ACCEL_KVM),
				      vmm_accel_name(ACCEL_TCG)};
	uint64_t v = 0;
	int i = 0;

	if (get_uint(o, "version", RECORD_VERSION, &v, err) < 0)
		return -1;
	if (json_get_members(o, r, members, MEMBERS, VM_RECORD_FILE, err) < 0)
		return -1;
	if (get_name(o, "step", step_names, VM_STEPS, &i, err) < 0)
		return -1;
	r->step = (enum vm_step)i;
	if (get_name(o, "boot_mode", boot_mode_names, VM_BOOT_MODES, &i, err) < 0)
		return -1;
	r->boot_mode = (enum vm_boot_mode)i;
	if (get_name(o, "accel", accels, 3, &i, err) < 0)
		return -1;
	r->accel = (enum vmm_accel)i;
	if (get_uint(o, "pid", INT32_MAX, &v, err) < 0 ||
	    get_uint(o, "start_time", INT64_MAX, &r->process.start_time, err) < 0)
		return -1;
	r->process.pid = (pid_t)v;
	return get_metadata(o, r, err);
}

int vm_record_load(struct vm_record *r, int rundir_fd, struct hutch_error *err)
{
	size_t len = 0;
	char *text = file_read(rundir_fd, VM_RECORD_FILE, RECORD_MAX, &len);
	json_error_t where;
	json_t *o;
	int rc;

	*r = (struct vm_record){.metadata = NULL};
	if (!text)
		return hutch_error_set(err, HUTCH_E_IO, errno, VM_RECORD_FILE ": %s",
				       strerror(errno));
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	free(text);
	if (!o)
		return hutch_error_set(err, HUTCH_E_INVALID, 0, VM_RECORD_FILE ": line %d: %s",
				       where.line, where.text);
	rc = record_parse(r, o, err);
	json_decref(o);
	if (rc < 0)
		vm_record_free(r);
	return rc;
}

void vm_record_free(struct vm_record *r)
{
	for (size_t i = 0; r->metadata && r->metadata[i]; i++)
		free(r->metadata[i]);
	free(r->metadata);
	r->metadata = NULL;
}

char **vm_metadata_copy(char *const *pairs)
{
	struct vm_record r = {.metadata = NULL};
	size_t n = 0;

	while (pairs[n])
		n++;
	r.metadata = calloc(n + 1, sizeof(char *));
	for (size_t i = 0; r.metadata && i < n; i++) {
		r.metadata[i] = strdup(pairs[i]);
		if (!r.metadata[i])
			vm_record_free(&r);
	}
	return r.metadata;
}

bool vm_metadata_valid(char *const *pairs)
{
	size_t total = 0, count = 0;

	for (; pairs && *pairs; pairs++, count++) {
		size_t len = strlen(*pairs), n = 1;

		total += len;
		for (size_t at = 0; at < len && n > 0; at += n)
			n = hutch_utf8_char(*pairs + at, len - at);
		if (n == 0)
			return false;
	}
	return total <= HUTCH_MAX_METADATA_BYTES && count <= 2u * HUTCH_MAX_METADATA;
}
