/* SPDX-License-Identifier: Apache-2.0 */
/* Events of an exec, in both directions. */
#include "protocol/msg_exec.h"

#include <string.h>

static const char event_names[][16] = {
	[EXEC_EVENT_STARTED] = "started", [EXEC_EVENT_STDIN_CLOSED] = "stdin_closed",
	[EXEC_EVENT_GAP] = "gap",	  [EXEC_EVENT_ATTACHED] = "attached",
	[EXEC_EVENT_ACK] = "ack",	  [EXEC_EVENT_DETACH] = "detach",
};

static enum exec_event_type event_type(const char *name)
{
	for (unsigned i = EXEC_EVENT_STARTED; i <= EXEC_EVENT_DETACH; i++)
		if (strcmp(name, event_names[i]) == 0)
			return (enum exec_event_type)i;
	return EXEC_EVENT_OTHER;
}

static void get_gap(struct exec_event *m, struct mp_reader *r)
{
	char stream[16] = "";

	mp_require(r, "stream");
	mp_get_strbuf(r, "stream", stream, sizeof(stream));
	m->stderr_stream = strcmp(stream, "stderr") == 0;
	if (!m->stderr_stream && strcmp(stream, "stdout") != 0)
		mp_fail(r, "stream is \"%s\"; it must be stdout or stderr", stream);
	mp_get_uint(r, "from", 0, HUTCH_MAX_UINT, &m->from);
	mp_get_uint(r, "to", 0, HUTCH_MAX_UINT, &m->to);
	if (m->to < m->from)
		mp_fail(r, "to is less than from; it must not be");
}

static void get_event_fields(struct exec_event *m, struct mp_reader *r)
{
	switch (m->type) {
	case EXEC_EVENT_ATTACHED:
		mp_get_uint(r, "stdout_offset", 0, HUTCH_MAX_UINT, &m->stdout_offset);
		mp_get_uint(r, "stderr_offset", 0, HUTCH_MAX_UINT, &m->stderr_offset);
		mp_get_u32(r, "rows", 0, UINT16_MAX, &m->rows);
		mp_get_u32(r, "cols", 0, UINT16_MAX, &m->cols);
		/* fall through */
	case EXEC_EVENT_STARTED:
		mp_get_name(r, "id", HUTCH_MAX_ID, m->id, sizeof(m->id));
		mp_get_uint(r, "pid", 0, INT32_MAX, &m->pid);
		break;
	case EXEC_EVENT_GAP:
		get_gap(m, r);
		break;
	case EXEC_EVENT_ACK:
		mp_get_uint(r, "stdout", 0, HUTCH_MAX_UINT, &m->stdout_offset);
		mp_get_uint(r, "stderr", 0, HUTCH_MAX_UINT, &m->stderr_offset);
		break;
	case EXEC_EVENT_STDIN_CLOSED:
	case EXEC_EVENT_DETACH:
	case EXEC_EVENT_OTHER:
		break;
	}
}

int exec_event_decode(struct exec_event *m, const void *payload, size_t len,
		      struct hutch_error *err)
{
	struct mp_doc doc;
	struct mp_reader r;
	const char *name = "";

	memset(m, 0, sizeof(*m));
	if (mp_doc_parse(&doc, payload, len, err) < 0)
		return -1;
	mp_reader_init(&r, &doc, &doc.root, "EVENT", err);
	mp_require(&r, "event");
	mp_get_str(&r, "event", HUTCH_MAX_EVENT, &name);
	m->type = event_type(name);
	get_event_fields(m, &r);
	return msg_close(&r);
}

static void put_event_fields(struct mp_buf *out, const struct exec_event *m)
{
	switch (m->type) {
	case EXEC_EVENT_STARTED:
	case EXEC_EVENT_ATTACHED:
		mp_kv_text(out, "id", m->id);
		mp_kv_uint_unless(out, "pid", m->pid, 0);
		if (m->type == EXEC_EVENT_STARTED)
			break;
		mp_kv_uint(out, "stdout_offset", m->stdout_offset);
		mp_kv_uint(out, "stderr_offset", m->stderr_offset);
		mp_kv_uint_unless(out, "rows", m->rows, 0);
		mp_kv_uint_unless(out, "cols", m->cols, 0);
		break;
	case EXEC_EVENT_GAP:
		mp_kv_str(out, "stream", m->stderr_stream ? "stderr" : "stdout");
		mp_kv_uint(out, "from", m->from);
		mp_kv_uint(out, "to", m->to);
		break;
	case EXEC_EVENT_ACK:
		mp_kv_uint(out, "stdout", m->stdout_offset);
		mp_kv_uint(out, "stderr", m->stderr_offset);
		break;
	case EXEC_EVENT_STDIN_CLOSED:
	case EXEC_EVENT_DETACH:
		break;
	case EXEC_EVENT_OTHER:
		out->failed = true;
		break;
	}
}

int exec_event_encode(struct mp_buf *out, const struct exec_event *m)
{
	size_t start = mp_frame_begin(out);

	mp_map_begin(out);
	mp_kv_str(out, "event", event_names[m->type]);
	put_event_fields(out, m);
	mp_map_end(out);
	return mp_frame_finish(out, start, FRAME_EVENT, 0);
}
