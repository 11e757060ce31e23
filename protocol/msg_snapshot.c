/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.*, template.snapshot and pool.*: params as plain structs. */
#include "protocol/msg_snapshot.h"

#include <string.h>

int snapshot_create_decode(struct snapshot_create *m, const void *params, size_t len,
			   struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, params, len, "snapshot.create", err) < 0)
		return -1;
	mp_require(&r, "name");
	mp_get_name(&r, "name", HUTCH_MAX_SNAPSHOT_NAME, m->name, sizeof(m->name));
	mp_get_bool(&r, "allow_secrets", &m->allow_secrets);
	return mp_close(&r);
}

int snapshot_name_decode(char name[HUTCH_MAX_SNAPSHOT_NAME + 1], const char *method,
			 const void *params, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	name[0] = '\0';
	if (mp_params_open(&doc, &r, params, len, method, err) < 0)
		return -1;
	mp_require(&r, "name");
	mp_get_name(&r, "name", HUTCH_MAX_SNAPSHOT_NAME, name, HUTCH_MAX_SNAPSHOT_NAME + 1);
	return mp_close(&r);
}

int template_snapshot_decode(struct template_snapshot *m, const void *params, size_t len,
			     struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	m->timeout_ms = HUTCH_DEFAULT_BOOT_TIMEOUT_MS;
	if (mp_params_open(&doc, &r, params, len, "template.snapshot", err) < 0)
		return -1;
	mp_require(&r, "name");
	mp_get_name(&r, "name", HUTCH_MAX_TEMPLATE_NAME, m->name, sizeof(m->name));
	mp_get_u32(&r, "memory_mib", HUTCH_MIN_MEMORY_MIB, HUTCH_MAX_MEMORY_MIB, &m->memory_mib);
	mp_get_u32(&r, "vcpus", 1, HUTCH_MAX_VCPUS, &m->vcpus);
	mp_get_uint(&r, "timeout_ms", 1, HUTCH_MAX_BOOT_TIMEOUT_MS, &m->timeout_ms);
	return mp_close(&r);
}

int pool_set_decode(struct pool_set *m, const void *params, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, params, len, "pool.set", err) < 0)
		return -1;
	mp_require(&r, "template");
	mp_require(&r, "size");
	mp_get_name(&r, "template", HUTCH_MAX_TEMPLATE_NAME, m->template_name,
		    sizeof(m->template_name));
	mp_get_u32(&r, "size", 0, HUTCH_MAX_POOL, &m->size);
	return mp_close(&r);
}
