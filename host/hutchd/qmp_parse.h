/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line from a QMP server, taken apart (QEMU's docs/interop/qmp-spec). Pure; the VMM that wrote
 * it is not trusted.
 */
#ifndef HUTCH_HOST_QMP_PARSE_H
#define HUTCH_HOST_QMP_PARSE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum qmp_kind { QMP_GREETING = 1, QMP_RETURN, QMP_ERROR, QMP_EVENT };

struct qmp_message {
	enum qmp_kind kind;
	uint64_t id;	  /* RETURN, ERROR: ours are 1 and up; 0: there was none */
	char version[64]; /* GREETING: "7.2.22" */
	char event[64];
	char error[256]; /* "CommandNotFound: The command x has not been found" */
	json_t *body;	 /* RETURN: the value; EVENT: its data or NULL; owned */
};

/* 0, or -1 when it is not a message of QMP. */
int qmp_parse(struct qmp_message *m, const char *line, size_t len);
void qmp_message_clear(struct qmp_message *m);

#endif
