/* SPDX-License-Identifier: Apache-2.0 */
/* One line from a QMP server, taken apart. */
#include "host/hutchd/qmp_parse.h"

#include <stdio.h>
#include <string.h>

static int parse_greeting(struct qmp_message *m, const json_t *qmp)
{
	json_int_t major, minor, micro;

	m->kind = QMP_GREETING;
	/* json_unpack does not change what it reads, but takes no const. */
	if (json_unpack((json_t *)(uintptr_t)qmp, "{s:{s:{s:I,s:I,s:I}}}", "version", "qemu",
			"major", &major, "minor", &minor, "micro", &micro) < 0)
		return -1;
	snprintf(m->version, sizeof(m->version), "%lld.%lld.%lld", (long long)major,
		 (long long)minor, (long long)micro);
	return 0;
}

static int parse_id(struct qmp_message *m, const json_t *root)
{
	const json_t *id = json_object_get(root, "id");

	if (!id)
		return 0; /* an answer to what QEMU could not read at all */
	if (!json_is_integer(id) || json_integer_value(id) < 1)
		return -1;
	m->id = (uint64_t)json_integer_value(id);
	return 0;
}

static int parse_error(struct qmp_message *m, const json_t *root, const json_t *error)
{
	const char *class = json_string_value(json_object_get(error, "class"));
	const char *text = json_string_value(json_object_get(error, "desc"));

	m->kind = QMP_ERROR;
	if (!class || !text)
		return -1;
	snprintf(m->error, sizeof(m->error), "%.60s: %s", class, text);
	return parse_id(m, root);
}

static int parse_event(struct qmp_message *m, const json_t *root, const json_t *event)
{
	json_t *data = json_object_get(root, "data");

	m->kind = QMP_EVENT;
	if (!json_is_string(event) || json_string_length(event) >= sizeof(m->event))
		return -1;
	snprintf(m->event, sizeof(m->event), "%s", json_string_value(event));
	if (data && !json_is_object(data))
		return -1;
	m->body = json_incref(data);
	return 0;
}

static int parse_return(struct qmp_message *m, const json_t *root, json_t *value)
{
	m->kind = QMP_RETURN;
	m->body = json_incref(value);
	return parse_id(m, root);
}

static int parse_root(struct qmp_message *m, const json_t *root)
{
	json_t *part;

	if ((part = json_object_get(root, "return")) != NULL)
		return parse_return(m, root, part);
	if ((part = json_object_get(root, "event")) != NULL)
		return parse_event(m, root, part);
	if ((part = json_object_get(root, "error")) != NULL)
		return parse_error(m, root, part);
	if ((part = json_object_get(root, "QMP")) != NULL)
		return parse_greeting(m, part);
	return -1;
}

int qmp_parse(struct qmp_message *m, const char *line, size_t len)
{
	json_t *root = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	int r = -1;

	memset(m, 0, sizeof(*m));
	if (root)
		r = parse_root(m, root);
	json_decref(root);
	if (r < 0)
		qmp_message_clear(m);
	return r;
}

void qmp_message_clear(struct qmp_message *m)
{
	json_decref(m->body);
	m->body = NULL;
}
