/* SPDX-License-Identifier: Apache-2.0 */
/* The methods' functions, for dispatch.c's table. Each returns 0, or -1 with err: the call is refused. */
#ifndef HUTCH_GUEST_CALLS_H
#define HUTCH_GUEST_CALLS_H

#include "guest/conn.h"
#include "protocol/msg.h"

typedef int call_fn(struct conn *c, const struct msg_call *call, struct hutch_error *err);

/* call_agent.c */
call_fn call_ping, call_agent_info, call_agent_identity, call_agent_shutdown;
/* snapshot.c, warm.c */
call_fn call_snapshot_prepare, call_snapshot_resume, call_agent_warm;
/* worker.c: all of fs.* */
call_fn call_fs;
/* call_exec.c */
call_fn call_exec_start, call_exec_attach, call_exec_list, call_exec_resize, call_exec_signal;
/* call_exec_wait.c */
call_fn call_exec_wait, call_exec_kill, call_exec_stdin, call_exec_close_stdin;

/* The exec that the envelope names; NULL with err. */
struct exec *call_find_exec(const struct msg_call *call, struct hutch_error *err);

#endif
