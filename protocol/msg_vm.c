/* SPDX-License-Identifier: Apache-2.0 */
/* vm.* and template.*: params as plain structs. */
#include "protocol/msg_vm.h"

#include <string.h>

#define DEFAULT_TEMPLATE "base"

/* Pairs whose value is nil count as absent. */
static size_t drop_nil_pairs(char **pairs, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		if (!pairs[2 * i + 1])
			continue;
		pairs[2 * kept] = pairs[2 * i];
		pairs[2 * kept + 1] = pairs[2 * i + 1];
		kept++;
	}
	if (pairs)
		pairs[2 * kept] = NULL;
	return kept;
}

static void get_metadata(struct mp_reader *r, char ***pairs, size_t *count)
{
	size_t bytes = 0;

	mp_get_strmap(r, "metadata", HUTCH_MAX_METADATA, pairs, count);
	if (!mp_ok(r))
		return;
	*count = drop_nil_pairs(*pairs, *count);
	for (size_t i = 0; i < *count; i++) {
		if (!(*pairs)[2 * i][0])
			mp_fail(r, "metadata has an empty key; keys must not be empty");
		bytes += strlen((*pairs)[2 * i]) + strlen((*pairs)[2 * i + 1]);
	}
	if (bytes > HUTCH_MAX_METADATA_BYTES)
		mp_fail(r, "metadata is %zu bytes; it must be at most %u", bytes,
			HUTCH_MAX_METADATA_BYTES);
}

static void get_idle_time(struct mp_reader *r, const char *key, uint64_t *ms)
{
	mp_get_uint(r, key, 0, HUTCH_MAX_TTL_MS, ms);
	if (*ms > 0 && *ms < HUTCH_MIN_IDLE_MS)
		mp_fail(r, "%s is %llu; it must be 0 or at least %u", key, (unsigned long long)*ms,
			HUTCH_MIN_IDLE_MS);
}

static void get_idle(struct mp_reader *r, struct vm_idle *idle)
{
	get_idle_time(r, "pause_after_ms", &idle->pause_after_ms);
	get_idle_time(r, "park_after_ms", &idle->park_after_ms);
}

static void get_idle_map(struct vm_create *m, struct mp_reader *r)
{
	const msgpack_object *map = NULL;
	struct mp_reader inner;

	mp_get_map(r, "idle", &map);
	if (!map)
		return;
	mp_reader_init(&inner, &m->doc, map, "vm.create: idle.", r->err);
	get_idle(&inner, &m->idle);
}

/* A snapshot says what it is a snapshot of. */
static void get_origin(struct vm_create *m, struct mp_reader *r)
{
	mp_get_name(r, "template", HUTCH_MAX_TEMPLATE_NAME, m->template_name,
		    sizeof(m->template_name));
	mp_get_name(r, "snapshot", HUTCH_MAX_SNAPSHOT_NAME, m->snapshot, sizeof(m->snapshot));
	mp_get_bool(r, "cold", &m->cold);
	mp_get_bool(r, "secrets", &m->secrets);
	if (m->snapshot[0] && mp_find(r, "template"))
		mp_fail(r, "'template' and 'snapshot' exclude each other");
	if (m->snapshot[0] && m->cold)
		mp_fail(r, "'cold' and 'snapshot' exclude each other");
}

int vm_create_decode(struct vm_create *m, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	memcpy(m->template_name, DEFAULT_TEMPLATE, sizeof(DEFAULT_TEMPLATE));
	m->ttl_ms = HUTCH_DEFAULT_TTL_MS;
	m->timeout_ms = HUTCH_DEFAULT_BOOT_TIMEOUT_MS;
	if (mp_params_open(&m->doc, &r, params, len, "vm.create", err) < 0)
		return -1;
	get_origin(m, &r);
	mp_get_name(&r, "name", HUTCH_MAX_VM_NAME, m->name, sizeof(m->name));
	mp_get_uint(&r, "ttl_ms", 1, HUTCH_MAX_TTL_MS, &m->ttl_ms);
	mp_get_uint(&r, "timeout_ms", 1, HUTCH_MAX_BOOT_TIMEOUT_MS, &m->timeout_ms);
	mp_get_u32(&r, "memory_mib", HUTCH_MIN_MEMORY_MIB, HUTCH_MAX_MEMORY_MIB, &m->memory_mib);
	mp_get_u32(&r, "vcpus", 1, HUTCH_MAX_VCPUS, &m->vcpus);
	mp_get_u32(&r, "disk_mib", HUTCH_MIN_DISK_MIB, HUTCH_MAX_DISK_MIB, &m->disk_mib);
	get_metadata(&r, &m->metadata, &m->metadata_pairs);
	get_idle_map(m, &r);
	mp_get_strbuf(&r, "share_group", m->share_group, sizeof(m->share_group));
	return mp_ok(&r) ? 0 : -1;
}

void vm_create_free(struct vm_create *m)
{
	mp_doc_free(&m->doc);
	memset(m, 0, sizeof(*m));
}

void vm_create_encode_params(struct mp_buf *out, const struct vm_create *m)
{
	mp_map_begin(out);
	if (m->template_name[0] && strcmp(m->template_name, DEFAULT_TEMPLATE) != 0)
		mp_kv_str(out, "template", m->template_name);
	mp_kv_text(out, "snapshot", m->snapshot);
	mp_kv_true(out, "cold", m->cold);
	mp_kv_true(out, "secrets", m->secrets);
	mp_kv_text(out, "name", m->name);
	if (m->ttl_ms != HUTCH_DEFAULT_TTL_MS)
		mp_kv_uint_unless(out, "ttl_ms", m->ttl_ms, 0);
	if (m->timeout_ms != HUTCH_DEFAULT_BOOT_TIMEOUT_MS)
		mp_kv_uint_unless(out, "timeout_ms", m->timeout_ms, 0);
	mp_kv_uint_unless(out, "memory_mib", m->memory_mib, 0);
	mp_kv_uint_unless(out, "vcpus", m->vcpus, 0);
	mp_kv_uint_unless(out, "disk_mib", m->disk_mib, 0);
	mp_kv_text(out, "share_group", m->share_group);
	if (m->idle.pause_after_ms || m->idle.park_after_ms) {
		mp_key(out, "idle");
		mp_map_begin(out);
		mp_kv_uint_unless(out, "pause_after_ms", m->idle.pause_after_ms, 0);
		mp_kv_uint_unless(out, "park_after_ms", m->idle.park_after_ms, 0);
		mp_map_end(out);
	}
	if (m->metadata_pairs > 0) {
		mp_key(out, "metadata");
		mp_map_begin(out);
		for (size_t i = 0; i < m->metadata_pairs; i++)
			mp_kv_str(out, m->metadata[2 * i], m->metadata[2 * i + 1]);
		mp_map_end(out);
	}
	mp_map_end(out);
}

int vm_fork_decode(struct vm_fork *m, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_reader r;
	size_t pairs = 0, room;

	memset(m, 0, sizeof(*m));
	m->count = 1;
	m->timeout_ms = HUTCH_DEFAULT_BOOT_TIMEOUT_MS;
	if (mp_params_open(&m->doc, &r, params, len, "vm.fork", err) < 0)
		return -1;
	mp_get_u32(&r, "count", 1, HUTCH_MAX_FORK, &m->count);
	mp_get_name(&r, "name", HUTCH_MAX_VM_NAME, m->name, sizeof(m->name));
	mp_get_uint(&r, "ttl_ms", 1, HUTCH_MAX_TTL_MS, &m->ttl_ms);
	mp_get_uint(&r, "timeout_ms", 1, HUTCH_MAX_BOOT_TIMEOUT_MS, &m->timeout_ms);
	mp_get_bool(&r, "allow_secrets", &m->allow_secrets);
	get_metadata(&r, &m->metadata, &pairs);
	m->has_metadata = mp_find(&r, "metadata") != NULL;
	room = HUTCH_MAX_VM_NAME - (m->count > 1 ? strlen("-64") : 0);
	if (strlen(m->name) > room)
		mp_fail(&r, "'name' is %zu bytes; with this count it must be at most %zu",
			strlen(m->name), room);
	return mp_ok(&r) ? 0 : -1;
}

void vm_fork_free(struct vm_fork *m)
{
	mp_doc_free(&m->doc);
	memset(m, 0, sizeof(*m));
}

int vm_set_ttl_decode(uint64_t *ttl_ms, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*ttl_ms = 0;
	if (mp_params_open(&doc, &r, params, len, "vm.set_ttl", err) < 0)
		return -1;
	mp_require(&r, "ttl_ms");
	mp_get_uint(&r, "ttl_ms", 1, HUTCH_MAX_TTL_MS, ttl_ms);
	return mp_close(&r);
}

int vm_set_idle_decode(struct vm_idle *m, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*m = (struct vm_idle){.pause_after_ms = 0};
	if (mp_params_open(&doc, &r, params, len, "vm.set_idle", err) < 0)
		return -1;
	get_idle(&r, m);
	return mp_close(&r);
}

int vm_kill_decode(bool *all, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*all = false;
	if (mp_params_open(&doc, &r, params, len, "vm.kill", err) < 0)
		return -1;
	mp_get_bool(&r, "all", all);
	return mp_close(&r);
}

int template_remove_decode(char name[HUTCH_MAX_TEMPLATE_NAME + 1], const void *params, size_t len,
			   struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	name[0] = '\0';
	if (mp_params_open(&doc, &r, params, len, "template.remove", err) < 0)
		return -1;
	mp_require(&r, "name");
	mp_get_name(&r, "name", HUTCH_MAX_TEMPLATE_NAME, name, HUTCH_MAX_TEMPLATE_NAME + 1);
	return mp_close(&r);
}
