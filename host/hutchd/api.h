/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's own methods, one family a file: api_info.c, api_vm.c, api_fork.c, ... Rows of the dispatch table. */
#ifndef HUTCH_HOST_API_H
#define HUTCH_HOST_API_H

#include "host/hutchd/client.h"
#include "host/hutchd/vm.h"
#include "protocol/msg.h"

void api_ping(struct client *c, const struct msg_call *call, struct vm *vm);
void api_broker_info(struct client *c, const struct msg_call *call, struct vm *vm);
void api_broker_limits(struct client *c, const struct msg_call *call, struct vm *vm);

void api_vm_create(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_info(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_list(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_wait(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_kill(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_set_ttl(struct client *c, const struct msg_call *call, struct vm *vm);

void api_vm_fork(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_pause(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_park(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_set_idle(struct client *c, const struct msg_call *call, struct vm *vm);
void api_vm_resume(struct client *c, const struct msg_call *call, struct vm *vm);

void api_snapshot_create(struct client *c, const struct msg_call *call, struct vm *vm);
void api_snapshot_info(struct client *c, const struct msg_call *call, struct vm *vm);
void api_snapshot_list(struct client *c, const struct msg_call *call, struct vm *vm);
void api_snapshot_delete(struct client *c, const struct msg_call *call, struct vm *vm);
void api_snapshot_verify(struct client *c, const struct msg_call *call, struct vm *vm);

void api_pool_set(struct client *c, const struct msg_call *call, struct vm *vm);
void api_pool_list(struct client *c, const struct msg_call *call, struct vm *vm);

void api_template_snapshot(struct client *c, const struct msg_call *call, struct vm *vm);
void api_template_list(struct client *c, const struct msg_call *call, struct vm *vm);
void api_template_remove(struct client *c, const struct msg_call *call, struct vm *vm);

/* The map of vm.info as a value. brief: only what a list needs, where the whole would not fit. */
void api_put_vm(struct mp_buf *b, const struct vm *vm, bool brief);
/* {} when it runs, or what became of it. */
void api_wait_running(struct client *c, struct vm *vm);
/* The same for parked. */
void api_wait_parked(struct client *c, struct vm *vm);
/* -1 with HUTCH_E_DENIED when it holds secrets and that is not allowed. */
int api_check_secrets(const struct vm *vm, bool allowed, const char *method,
		      struct hutch_error *err);
/* Templates are shared: -1 with HUTCH_E_DENIED for all but the broker's own user and admins. */
int api_check_template_rights(const struct client *c, const char *name, const char *method,
			      struct hutch_error *err);
/* An entry of template.list. */
void api_reply_template(struct client *c, const struct template *t);
enum vmm_accel api_snapshot_accel(const struct broker *b, const struct image *im);
/* "isolation": what stands between a guest's VMM and the host, and what does not (jail.h). */
void api_put_isolation(struct mp_buf *b, uint32_t level, uint32_t missing, const char *reason);
/* "ceilings": what the host lets a VMM take at most (cgroup.h). */
void api_put_ceilings(struct mp_buf *b, uint32_t kind, uint32_t has, const char *reason);

#endif
