/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of vmm.h share: vmm.c (start, end), vmm_connect.c (QMP, up), vmm_save.c. */
#ifndef HUTCH_HOST_VMM_PRIV_H
#define HUTCH_HOST_VMM_PRIV_H

#include <event2/event.h>

#include "host/hutchd/qmp.h"
#include "host/hutchd/vmm.h"
#include "host/hutchd/vmm_disk.h"
#include "host/hutchd/vmm_lease.h"
#include "host/hutchd/vmm_ops.h"
#include "host/hutchd/vmm_saving.h"

enum vmm_state { VMM_SPAWNING, VMM_CONNECTING, VMM_UP, VMM_REAPING, VMM_OVER };

struct vmm {
	struct vmm_config config; /* without tpl */
	struct event_base *base;
	struct launcher *launcher;
	const struct vmm_callbacks *cb;
	void *arg;
	enum vmm_state state;
	bool adopted, was_up;
	bool forked; /* off a zygote, which stood still */
	int load_fd; /* forked: the state of its devices, before it goes on; -1: it has it */
	bool restored, loading; /* loading: its device state, and the guest is not there yet */
	bool loaded;		/* QMP said so, whatever it says of before */
	bool kill_asked;	/* vmm_kill was called */
	bool oom;		/* the kernel ended it at its ceiling of memory */
	bool qmp_closed;	/* CONNECTING: it closed QMP, and has a moment to end by itself */
	struct vmm_process process;
	int pidfd;
	struct event *exit_event;  /* pidfd readable */
	struct event *limit_event; /* CONNECTING: qmp_timeout_ms */
	struct launch_job *job;	   /* SPAWNING, REAPING */
	struct qmp *qmp;
	bool stopped; /* the guest, as QMP last said */
	struct vmm_ops *ops;
	struct vmm_disk_op *disk_op;
	struct vmm_saving *saving; /* a capture that is under way */
	struct vmm_state_file state_file;
	vmm_captured_fn *captured;
	void *captured_arg;
	bool *freed; /* set by vmm_free, while a callback runs that may call it */
	struct vmm_lease *lease;
	char version[64];
	char shutdown[32];	    /* QMP's SHUTDOWN reason; empty: there was none */
	struct hutch_error failure; /* why it never came up, or HUTCH_OK */
	uint64_t start_us, spawn_us;
};

uint64_t vmm_now_us(void);
void vmm_set_state(struct vmm *v, enum vmm_state state);
void vmm_kill_process(struct vmm *v);

/* From the process to up. */
void vmm_connect_qmp(struct vmm *v);
/* Of limit_event. */
void vmm_on_limit(evutil_socket_t fd, short what, void *arg);

#endif
