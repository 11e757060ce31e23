/* SPDX-License-Identifier: Apache-2.0 */
/* agent.identity, snapshot.prepare and resume, and parameters that several methods share. */
#include "protocol/msg_exec.h"

#include <string.h>

static bool machine_id_valid(const char *s)
{
	return strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

int agent_identity_decode(struct agent_identity *m, const void *params, size_t len,
			  struct hutch_error *err)
{
	static const char *const required[] = {"generation", "hostname", "machine_id",
					       "realtime_ns", "entropy"};
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&m->doc, &r, params, len, "agent.identity", err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
		mp_require(&r, required[i]);
	mp_get_uint(&r, "generation", 1, HUTCH_MAX_UINT, &m->generation);
	mp_get_name(&r, "hostname", HUTCH_MAX_HOSTNAME, m->hostname, sizeof(m->hostname));
	mp_get_strbuf(&r, "machine_id", m->machine_id, sizeof(m->machine_id));
	if (mp_ok(&r) && !machine_id_valid(m->machine_id))
		mp_fail(&r, "machine_id is \"%s\"; it must be 32 lower-case hex digits",
			m->machine_id);
	mp_get_uint(&r, "realtime_ns", 0, HUTCH_MAX_UINT, &m->realtime_ns);
	mp_get_bytes(&r, "entropy", HUTCH_MIN_ENTROPY, HUTCH_MAX_ENTROPY, &m->entropy,
		     &m->entropy_len);
	mp_get_bool(&r, "keep_keys", &m->keep_keys);
	mp_get_uint(&r, "disk_bytes", 0, (uint64_t)HUTCH_MAX_DISK_MIB << 20, &m->disk_bytes);
	return mp_ok(&r) ? 0 : -1;
}

void agent_identity_free(struct agent_identity *m)
{
	mp_doc_free(&m->doc);
	memset(m, 0, sizeof(*m));
}

void agent_identity_encode_params(struct mp_buf *out, const struct agent_identity *m)
{
	mp_map_begin(out);
	mp_kv_uint(out, "generation", m->generation);
	mp_kv_str(out, "hostname", m->hostname);
	mp_kv_str(out, "machine_id", m->machine_id);
	mp_kv_uint(out, "realtime_ns", m->realtime_ns);
	mp_key(out, "entropy");
	mp_put_bin(out, m->entropy, m->entropy_len);
	mp_kv_true(out, "keep_keys", m->keep_keys);
	mp_kv_uint_unless(out, "disk_bytes", m->disk_bytes, 0);
	mp_map_end(out);
}

static int one_u32(uint32_t *out, const char *key, uint32_t min, uint32_t max, const void *params,
		   size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	if (mp_params_open(&doc, &r, params, len, "params", err) < 0)
		return -1;
	mp_get_u32(&r, key, min, max, out);
	return mp_close(&r);
}

int agent_prepare_decode(uint32_t *timeout_ms, const void *params, size_t len,
			 struct hutch_error *err)
{
	*timeout_ms = HUTCH_MAX_FREEZE_MS;
	return one_u32(timeout_ms, "timeout_ms", 1, HUTCH_MAX_FREEZE_MS, params, len, err);
}

void agent_prepare_encode_params(struct mp_buf *out, uint32_t timeout_ms)
{
	mp_map_begin(out);
	mp_kv_uint(out, "timeout_ms", timeout_ms);
	mp_map_end(out);
}

int agent_prepared_decode(struct agent_prepared *m, const void *payload, size_t len,
			  struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, payload, len, "snapshot.prepare", err) < 0)
		return -1;
	mp_require(&r, "generation");
	mp_get_uint(&r, "generation", 0, HUTCH_MAX_UINT, &m->generation);
	mp_get_uint(&r, "frozen_us", 0, HUTCH_MAX_UINT, &m->frozen_us);
	return msg_close(&r);
}

int agent_prepared_encode(struct mp_buf *out, const struct agent_prepared *m)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_uint(out, "generation", m->generation);
	mp_kv_uint(out, "frozen_us", m->frozen_us);
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_RESULT, FRAME_END);
}

int agent_resume_decode(struct agent_resume *m, const void *params, size_t len,
			struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_params_open(&doc, &r, params, len, "snapshot.resume", err) < 0)
		return -1;
	mp_require(&r, "generation");
	mp_get_uint(&r, "generation", 0, HUTCH_MAX_UINT, &m->generation);
	mp_get_uint(&r, "realtime_ns", 1, HUTCH_MAX_UINT, &m->realtime_ns);
	return mp_close(&r);
}

void agent_resume_encode_params(struct mp_buf *out, const struct agent_resume *m)
{
	mp_map_begin(out);
	mp_kv_uint(out, "generation", m->generation);
	mp_kv_uint_unless(out, "realtime_ns", m->realtime_ns, 0);
	mp_map_end(out);
}

int msg_timeout_decode(uint64_t *timeout_ms, const void *params, size_t len,
		       struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	*timeout_ms = 0;
	if (mp_params_open(&doc, &r, params, len, "params", err) < 0)
		return -1;
	mp_get_uint(&r, "timeout_ms", 0, HUTCH_MAX_TIMEOUT_MS, timeout_ms);
	return mp_close(&r);
}

int msg_grace_decode(uint32_t *grace_ms, uint32_t dflt, const void *params, size_t len,
		     struct hutch_error *err)
{
	*grace_ms = dflt;
	return one_u32(grace_ms, "grace_ms", 0, HUTCH_MAX_GRACE_MS, params, len, err);
}
