/* SPDX-License-Identifier: Apache-2.0 */
/* Commands to a VMM whose outcome somebody waits for: one answer each, always from the loop. */
#ifndef HUTCH_HOST_VMM_OPS_H
#define HUTCH_HOST_VMM_OPS_H

#include "host/hutchd/qmp.h"
#include "host/hutchd/vmm.h"

struct vmm_ops;

struct vmm_ops *vmm_ops_new(struct event_base *base);
/*
 * Give the VMM a command without arguments. q NULL: it can't be given any (HUTCH_E_STATE). When
 * there is no memory even for that answer, false.
 */
bool vmm_ops_command(struct vmm_ops *ops, struct qmp *q, const char *name, vmm_done_fn *done,
		     void *arg);
/* The QMP connection was freed: what still waits is told so from the loop. */
void vmm_ops_abort(struct vmm_ops *ops);
/* Nobody is told any more. After the QMP connection was freed. */
void vmm_ops_free(struct vmm_ops *ops);

#endif
