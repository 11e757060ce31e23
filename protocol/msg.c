/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO, the CALL envelope, ERROR and the empty RESULT. */
#include "protocol/msg.h"

#include <string.h>

static const char role_names[][8] = {
	[ROLE_CLIENT] = "client",
	[ROLE_BROKER] = "broker",
	[ROLE_AGENT] = "agent",
};

int msg_close(struct mp_reader *r)
{
	if (r->err->kind == HUTCH_E_INVALID)
		r->err->kind = HUTCH_E_PROTOCOL;
	return mp_close(r);
}

static void get_role(struct mp_reader *r, enum msg_role *role)
{
	char name[16] = "";

	mp_require(r, "role");
	mp_get_strbuf(r, "role", name, sizeof(name));
	if (!mp_ok(r))
		return;
	for (unsigned i = ROLE_CLIENT; i <= ROLE_AGENT; i++) {
		if (strcmp(name, role_names[i]) == 0) {
			*role = (enum msg_role)i;
			return;
		}
	}
	mp_fail(r, "role is \"%s\"; it must be client, broker or agent", name);
}

static bool uuid_shaped(const char *s)
{
	return strlen(s) == HUTCH_UUID_LEN &&
	       strspn(s, "0123456789abcdefABCDEF-") == HUTCH_UUID_LEN;
}

int msg_hello_decode(struct msg_hello *m, const void *payload, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_doc_parse(&doc, payload, len, err) < 0)
		return -1;
	mp_reader_init(&r, &doc, &doc.root, "HELLO", err);
	mp_require(&r, "proto");
	mp_get_u32(&r, "proto", 0, UINT32_MAX, &m->proto);
	if (mp_ok(&r) && m->proto != HUTCH_PROTO_VERSION)
		hutch_error_set(err, HUTCH_E_UNSUPPORTED, 0,
				"HELLO: proto is %u; this side speaks %u", (unsigned)m->proto,
				HUTCH_PROTO_VERSION);
	get_role(&r, &m->role);
	mp_get_strbuf(&r, "name", m->name, sizeof(m->name));
	mp_get_strbuf(&r, "boot_id", m->boot_id, sizeof(m->boot_id));
	if (mp_ok(&r) && m->boot_id[0] && !uuid_shaped(m->boot_id))
		mp_fail(&r, "boot_id is \"%s\"; it must be a UUID of 36 bytes", m->boot_id);
	mp_get_uint(&r, "generation", 0, HUTCH_MAX_UINT, &m->generation);
	mp_get_bool(&r, "pid1", &m->pid1);
	mp_get_bool(&r, "held", &m->held);
	return msg_close(&r);
}

int msg_hello_encode(struct mp_buf *out, const struct msg_hello *m)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_uint(out, "proto", m->proto);
	if (m->role >= ROLE_CLIENT && m->role <= ROLE_AGENT)
		mp_kv_str(out, "role", role_names[m->role]);
	else
		out->failed = true;
	mp_kv_str(out, "name", m->name);
	mp_kv_text(out, "boot_id", m->boot_id);
	if (m->role == ROLE_AGENT) {
		mp_kv_uint(out, "generation", m->generation);
		mp_kv_bool(out, "pid1", m->pid1);
		mp_kv_true(out, "held", m->held);
	}
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_HELLO, 0);
}

static bool starts_map(uint8_t c)
{
	return (c & 0xf0) == 0x80 || c == 0xde || c == 0xdf;
}

int msg_call_decode(struct msg_call *m, const void *payload, size_t len, struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;

	memset(m, 0, sizeof(*m));
	if (mp_doc_parse_except(&doc, payload, len, "params", &m->params, &m->params_len, err) < 0)
		return -1;
	mp_reader_init(&r, &doc, &doc.root, "CALL", err);
	mp_require(&r, "method");
	mp_get_strbuf(&r, "method", m->method, sizeof(m->method));
	if (!m->method[0])
		mp_fail(&r, "method is empty; it must be family.verb or ping");
	mp_get_name(&r, "vm", HUTCH_MAX_VM_NAME, m->vm, sizeof(m->vm));
	mp_get_name(&r, "id", HUTCH_MAX_ID, m->id, sizeof(m->id));
	mp_get_name(&r, "key", HUTCH_MAX_KEY, m->key, sizeof(m->key));
	if (m->params && !starts_map(m->params[0]))
		mp_fail(&r, "params is not a map; it must be one");
	if (mp_ok(&r) && m->params_len > HUTCH_MAX_PARAMS)
		hutch_error_set(err, HUTCH_E_TOO_LARGE, 0,
				"CALL: params is %zu bytes long; it must be at most %u",
				m->params_len, HUTCH_MAX_PARAMS);
	return mp_close(&r);
}

int msg_call_encode(struct mp_buf *out, const struct msg_call *m, unsigned flags)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_str(out, "method", m->method);
	mp_kv_text(out, "vm", m->vm);
	mp_kv_text(out, "id", m->id);
	mp_kv_text(out, "key", m->key);
	if (m->params) {
		mp_key(out, "params");
		mp_put_raw(out, m->params, m->params_len);
	}
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_CALL, flags);
}

int msg_error_decode(struct hutch_error *e, const void *payload, size_t len,
		     struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;
	const char *kind = "", *message = "";
	uint32_t errnum = 0;
	bool retryable = false;

	hutch_error_clear(e);
	if (mp_doc_parse(&doc, payload, len, err) < 0)
		return -1;
	mp_reader_init(&r, &doc, &doc.root, "ERROR", err);
	mp_require(&r, "kind");
	mp_get_str(&r, "kind", HUTCH_MAX_ERROR, &kind);
	mp_get_str(&r, "message", HUTCH_MAX_ERROR, &message);
	mp_get_u32(&r, "errno", 0, INT32_MAX, &errnum);
	mp_get_bool(&r, "retryable", &retryable);
	if (mp_ok(&r)) {
		hutch_error_set(e, hutch_error_kind_from_name(kind, strlen(kind)), (int)errnum,
				"%s", message);
		e->retryable = retryable;
		mp_get_strcut(&r, "stage", e->stage, sizeof(e->stage));
		mp_get_strcut(&r, "path", e->path, sizeof(e->path));
	}
	return msg_close(&r);
}

int msg_error_encode(struct mp_buf *out, const struct hutch_error *e)
{
	const char *errno_name = e->errnum ? hutch_errno_name(e->errnum) : NULL;
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_str(out, "kind", hutch_error_kind_name(e->kind ? e->kind : HUTCH_E_INTERNAL));
	mp_kv_str(out, "message", e->message);
	if (e->errnum > 0)
		mp_kv_uint(out, "errno", (uint64_t)e->errnum);
	mp_kv_text(out, "errno_name", errno_name);
	mp_kv_text(out, "stage", e->stage);
	mp_kv_text(out, "path", e->path);
	mp_kv_true(out, "retryable", e->retryable);
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_ERROR, FRAME_END);
}

int msg_empty_result_encode(struct mp_buf *out)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_RESULT, FRAME_END);
}
