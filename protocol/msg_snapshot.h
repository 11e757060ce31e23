/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.*, template.snapshot and pool.* messages as plain structs (wire.md section 4). */
#ifndef HUTCH_PROTOCOL_MSG_SNAPSHOT_H
#define HUTCH_PROTOCOL_MSG_SNAPSHOT_H

#include "protocol/msg.h"

struct snapshot_create {
	char name[HUTCH_MAX_SNAPSHOT_NAME + 1];
	bool allow_secrets;
};
int snapshot_create_decode(struct snapshot_create *m, const void *params, size_t len,
			   struct hutch_error *err);

/* snapshot.info, snapshot.delete, snapshot.verify: method is for messages. */
int snapshot_name_decode(char name[HUTCH_MAX_SNAPSHOT_NAME + 1], const char *method,
			 const void *params, size_t len, struct hutch_error *err);

struct template_snapshot {
	char name[HUTCH_MAX_TEMPLATE_NAME + 1];
	uint32_t memory_mib, vcpus; /* 0: the template's */
	uint64_t timeout_ms;
};
int template_snapshot_decode(struct template_snapshot *m, const void *params, size_t len,
			     struct hutch_error *err);

struct pool_set {
	char template_name[HUTCH_MAX_TEMPLATE_NAME + 1];
	uint32_t size;
};
int pool_set_decode(struct pool_set *m, const void *params, size_t len, struct hutch_error *err);

#endif
