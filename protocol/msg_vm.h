/* SPDX-License-Identifier: Apache-2.0 */
/* vm.* and template.* messages as plain structs (wire.md section 4). */
#ifndef HUTCH_PROTOCOL_MSG_VM_H
#define HUTCH_PROTOCOL_MSG_VM_H

#include "protocol/msg.h"

/* What becomes of a VM that nobody uses; 0: never. */
struct vm_idle {
	uint64_t pause_after_ms, park_after_ms;
};

struct vm_create {
	struct mp_doc doc; /* owns metadata */
	char template_name[HUTCH_MAX_TEMPLATE_NAME + 1];
	char name[HUTCH_MAX_VM_NAME + 1];	    /* empty: none */
	char snapshot[HUTCH_MAX_SNAPSHOT_NAME + 1]; /* empty: none */
	bool cold, secrets;
	uint64_t ttl_ms, timeout_ms;
	uint32_t memory_mib, vcpus, disk_mib; /* 0: the template's */
	char **metadata;		      /* NULL-terminated pairs key, value */
	size_t metadata_pairs;
	struct vm_idle idle;
	char share_group[HUTCH_MAX_GROUP_NAME + 1]; /* a name or a number; empty: not shared */
};
/* Defaults filled in. Free with vm_create_free in any case. */
int vm_create_decode(struct vm_create *m, const void *params, size_t len, struct hutch_error *err);
void vm_create_free(struct vm_create *m);
/* Append the params map alone; fields that are 0, empty or at their defaults are left out. */
void vm_create_encode_params(struct mp_buf *out, const struct vm_create *m);

struct vm_fork {
	struct mp_doc doc; /* owns metadata */
	uint32_t count;
	char name[HUTCH_MAX_VM_NAME + 1]; /* empty: none */
	uint64_t ttl_ms;		  /* 0: the parent's */
	uint64_t timeout_ms;
	bool allow_secrets;
	bool has_metadata;
	char **metadata; /* NULL-terminated pairs key, value; NULL: none */
};
/* Defaults filled in; name leaves room for what a count above 1 adds. Free with vm_fork_free in any case. */
int vm_fork_decode(struct vm_fork *m, const void *params, size_t len, struct hutch_error *err);
void vm_fork_free(struct vm_fork *m);

int vm_set_ttl_decode(uint64_t *ttl_ms, const void *params, size_t len, struct hutch_error *err);
int vm_set_idle_decode(struct vm_idle *m, const void *params, size_t len, struct hutch_error *err);
int vm_kill_decode(bool *all, const void *params, size_t len, struct hutch_error *err);
int template_remove_decode(char name[HUTCH_MAX_TEMPLATE_NAME + 1], const void *params, size_t len,
			   struct hutch_error *err);

#endif
