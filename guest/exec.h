/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An exec: one command, from start to the record of how it ended (wire.md section 3).
 *
 * How it ends. The reaper tells that the process ended: RUNNING -> DRAINING. What is in the pipes at
 * that moment is owed to the owner and is read however slow the owner is; then end-of-file is awaited for drain_ms.
 * Pipes that somebody still holds after that go to leftover.c. When no output is open and no kill is under way
 * the result is final: DRAINING -> ENDED. The object stays as a record until it was collected or expires.
 *
 * Calls hang on an exec as exec_links of their connections (attach.c, exec_wait.c); an exec with links is
 * never freed. It has at most one owner: the link whose reading pace the program's output follows.
 */
#ifndef HUTCH_GUEST_EXEC_H
#define HUTCH_GUEST_EXEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "guest/conn.h"
#include "guest/limits.h"
#include "guest/list.h"
#include "guest/loop.h"
#include "guest/ring.h"
#include "guest/tree.h"
#include "protocol/msg_exec.h"

enum exec_state {
	EXEC_RUNNING,  /* its process lives: signals, input and limits work */
	EXEC_DRAINING, /* the process was reaped; its pid must not be used any more */
	EXEC_ENDED,    /* the result is final; only the record is left */
};

struct exec_stream {
	struct loop_source src; /* read end of a pipe, or the PTY master; -1: at its end */
	struct exec *exec;
	struct ring ring;
	uint64_t written; /* by the program; more than ring.end when some was dropped */
	size_t owed;	  /* DRAINING: bytes that were there when the process ended, not read yet */
};

struct exec {
	struct list link; /* see exec_table.h; so are the three below */
	struct list by_id, by_key, by_pid;
	struct list links; /* exec_link::link */
	struct loop_garbage garbage;
	enum exec_state state;
	uint64_t serial; /* never used twice by this agent */
	char id[HUTCH_MAX_ID + 1];
	char key[HUTCH_MAX_KEY + 1];
	uint64_t params_hash;	       /* of the bytes of exec.start's params, for the key */
	uint8_t argv[AGENT_ARGV_KEPT]; /* an encoded array of texts */
	uint16_t argv_len;
	bool detach, resumable, pty, collected, expired, forgotten;

	pid_t pid;
	struct tree tree;
	struct loop_source in; /* write end of stdin's pipe, or the PTY master again; -1: closed */
	int tty_fd;   /* PTY: the slave, held so that only the command's end is EOF; -1: none */
	bool in_line; /* PTY: the last input was not the end of a line */
	uint64_t in_bytes; /* that owners sent */
	struct exec_link *owner;
	struct exec_stream out[2];
	uint64_t output_limit;
	uint32_t rows, cols, grace_ms, drain_ms;

	struct loop_timer limit; /* timeout, then the grace before SIGKILL */
	struct loop_timer phase; /* RUNNING: hold; DRAINING: drain; ENDED: expiry */
	struct loop_timer orphan;
	bool held;	     /* the outputs are not looked at yet (AGENT_HOLD_STARTS) */
	bool killing, asked; /* asked: with SIGTERM, so that it may leave with any code */
	bool timed_out, canceled, oom_killed, drain_over;

	uint64_t started_ns, ended_ns;
	int status; /* of wait4 */
	uint64_t user_us, system_us, max_rss_kib;
};

/* The result of the exec of that serial was received. */
void exec_collected(uint64_t serial);
/* Forget e for a new exec of its id; false: it is in use. */
bool exec_make_way(struct exec *e);

/*
 * Start a command. On success *out runs and has no link yet. On failure -1 with err, or 1 when the
 * operating system refused: res then is the whole result (started false).
 */
struct exec_request {
	const struct exec_start *start;
	const char *id, *key; /* may be empty */
	uint64_t params_hash;
	bool stdin_open, apart; /* apart: see tree.h */
};
int exec_start(const struct exec_request *rq, struct exec **out, struct exec_result *res,
	       struct hutch_error *err);
/* The result so far; final when ENDED. */
void exec_result(const struct exec *e, struct exec_result *res);

/* Ends all processes of the exec: SIGTERM, after grace_ms SIGKILL. tree_done is told through exec_tree_gone. */
void exec_kill(struct exec *e, uint32_t grace_ms);
/* As exec_kill, and if it runs the result says canceled. */
void exec_cancel(struct exec *e, uint32_t grace_ms);
/* PTY only. -1 with err. */
int exec_resize(struct exec *e, uint32_t rows, uint32_t cols, struct hutch_error *err);
/* Signal to the process group, or to every process. -1 with err. */
int exec_signal(struct exec *e, int sig, bool tree, struct hutch_error *err);

/* Input. Returns how many of the n bytes were taken; all of them, discarded, when the input is closed. */
size_t exec_input(struct exec *e, const uint8_t *p, size_t n);
/* Close it (on a PTY: type EOF). False: not possible yet, the terminal's input is full. */
bool exec_input_end(struct exec *e);
/* exec_input took less than it got: call conn_resume for l's connection when it may take more. */
void exec_input_wait(struct exec_link *l);

/* A reader moved on, left or came: output may be read again, or the exec is orphaned. */
void exec_reader_moved(struct exec *e);
/* Links. lost: the connection broke before its answer. e may be gone after the pass. */
void exec_link(struct exec *e, struct exec_link *l);
void exec_unlink(struct exec_link *l, bool lost);
void exec_set_owner(struct exec *e, struct exec_link *l);

/* Told by others */
void exec_process_ended(struct exec *e, int status, const struct rusage *ru); /* reap.c */
void exec_tree_gone(struct exec *e);					      /* tree.c */

/* Ended execs lose their output, oldest first, until missing bytes are free. For ring_on_pressure. */
void exec_ring_pressure(size_t missing);
/* In a copy of the machine: nobody comes back for them, and their keys, unless kept, belong to the one it is a copy of. */
void exec_all_copied(bool keep_keys);
/* At the end of the agent: forget all; processes are left alone. */
void exec_forget_all(void);

/* Between exec.c, exec_start.c and exec_output.c */
void exec_init(struct exec *e);
void exec_resume_input(struct exec *e);
void exec_check_done(struct exec *e);
void exec_wake_links(struct exec *e);
void exec_outputs_open(struct exec *e);		 /* read from now on */
void exec_outputs_process_ended(struct exec *e); /* what is there now is owed */
void exec_outputs_give_up(struct exec *e);	 /* drain_ms is over: end-of-file is not awaited */
bool exec_outputs_closed(const struct exec *e);
void exec_output_ready(struct loop_source *src, uint32_t events);

#endif
