/* SPDX-License-Identifier: Apache-2.0 */
/* vm.* and template.*: params as plain structs. */
#include "protocol/msg_vm.h"

#include <string.h>

#define DEFAULT_TEMPLATE "base"

/* Pairs whose value is nil count as absent. */
static void drop_nil_pairs(struct vm_create *m)
{
	size_t kept = 0;

	for (size_t i = 0; i < m->metadata_pairs; i++) {
		if (!m->metadata[2 * i + 1])
			continue;
		m->metadata[2 * kept] = m->metadata[2 * i];
		m->metadata[2 * kept + 1] = m->metadata[2 * i + 1];
		kept++;
	}
	if (m->metadata)
		m->metadata[2 * kept] = NULL;
	m->metadata_pairs = kept;
}

static void get_metadata(struct vm_create *m, struct mp_reader *r)
{
	size_t bytes = 0;

	mp_get_strmap(r, "metadata", HUTCH_MAX_METADATA, &m->metadata, &m->metadata_pairs);
	if (!mp_ok(r))
		return;
	drop_nil_pairs(m);
	for (size_t i = 0; i < m->metadata_pairs; i++) {
		if (!m->metadata[2 * i][0])
			mp_fail(r, "metadata has an empty key; keys must not be empty");
		bytes += strlen(m->metadata[2 * i]) + strlen(m->metadata[2 * i + 1]);
	}
	if (bytes > HUTCH_MAX_METADATA_BYTES)
		mp_fail(r, "metadata is %zu bytes; it must be at most %u", bytes,
			HUTCH_MAX_METADATA_BYTES);
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
	mp_get_name(&r, "template", HUTCH_MAX_TEMPLATE_NAME, m->template_name,
		    sizeof(m->template_name));
	mp_get_name(&r, "name", HUTCH_MAX_VM_NAME, m->name, sizeof(m->name));
	mp_get_uint(&r, "ttl_ms", 1, HUTCH_MAX_TTL_MS, &m->ttl_ms);
	mp_get_uint(&r, "timeout_ms", 1, HUTCH_MAX_BOOT_TIMEOUT_MS, &m->timeout_ms);
	mp_get_u32(&r, "memory_mib", HUTCH_MIN_MEMORY_MIB, HUTCH_MAX_MEMORY_MIB, &m->memory_mib);
	mp_get_u32(&r, "vcpus", 1, HUTCH_MAX_VCPUS, &m->vcpus);
	get_metadata(m, &r);
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
	mp_kv_text(out, "name", m->name);
	if (m->ttl_ms != HUTCH_DEFAULT_TTL_MS)
		mp_kv_uint_unless(out, "ttl_ms", m->ttl_ms, 0);
	if (m->timeout_ms != HUTCH_DEFAULT_BOOT_TIMEOUT_MS)
		mp_kv_uint_unless(out, "timeout_ms", m->timeout_ms, 0);
	mp_kv_uint_unless(out, "memory_mib", m->memory_mib, 0);
	mp_kv_uint_unless(out, "vcpus", m->vcpus, 0);
	if (m->metadata_pairs > 0) {
		mp_key(out, "metadata");
		mp_map_begin(out);
		for (size_t i = 0; i < m->metadata_pairs; i++)
			mp_kv_str(out, m->metadata[2 * i], m->metadata[2 * i + 1]);
		mp_map_end(out);
	}
	mp_map_end(out);
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
