/* SPDX-License-Identifier: Apache-2.0 */
/* exec.* and agent.* messages as plain structs (wire.md section 3). */
#ifndef HUTCH_PROTOCOL_MSG_EXEC_H
#define HUTCH_PROTOCOL_MSG_EXEC_H

#include "protocol/msg.h"

struct exec_start {
	struct mp_doc doc; /* owns all that is pointed to */
	char **argv;	   /* NULL-terminated; { "/bin/sh", "-c", TEXT } for the shell form */
	size_t argc;
	bool shell; /* it was the shell form */
	char **env; /* NULL-terminated pairs name, value; value NULL: remove the name */
	size_t env_pairs;
	bool clear_env;
	const char *cwd;  /* NULL: none given */
	const char *user; /* NULL: none given */
	uint64_t timeout_ms, output_limit, memory_bytes;
	uint32_t grace_ms, drain_ms, pids, cpu_percent;
	bool merge_stderr, detach, resumable, notify;
	bool pty;
	uint32_t rows, cols; /* pty */
	const char *term;    /* pty */
};

/*
 * params NULL (len 0) is an empty map. HUTCH_E_INVALID names the field. Free with exec_start_free
 * in any case.
 */
int exec_start_decode(struct exec_start *m, const void *params, size_t len,
		      struct hutch_error *err);
void exec_start_free(struct exec_start *m);
/* Append the params map alone (for the C client); fields at their defaults are left out. */
void exec_start_encode_params(struct mp_buf *out, const struct exec_start *m);

struct exec_result {
	char id[HUTCH_MAX_ID + 1];
	uint64_t pid; /* 0: never ran */
	bool started, timed_out, oom_killed, canceled;
	uint32_t exit_code;
	uint32_t signal; /* 0: none */
	uint64_t stdout_bytes, stderr_bytes;
	bool stdout_truncated, stderr_truncated;
	uint64_t duration_us, user_us, system_us, max_rss_kib;
	struct {
		char kind[16]; /* empty: none */
		int errnum;
		char stage[32];
		char path[256];
		char message[512];
	} start_error;
};

int exec_result_decode(struct exec_result *m, const void *payload, size_t len,
		       struct hutch_error *err);
/* A whole RESULT frame with END. */
int exec_result_encode(struct mp_buf *out, const struct exec_result *m);

/* The small ones: each decodes a params map (NULL, 0 = empty). */
struct exec_attach {
	bool has_stdout_after, has_stderr_after, owner, tail;
	uint64_t stdout_after, stderr_after;
};
int exec_attach_decode(struct exec_attach *m, const void *params, size_t len,
		       struct hutch_error *err);
struct exec_signal {
	int signal; /* 1-64 */
	bool tree;
};
int exec_signal_decode(struct exec_signal *m, const void *params, size_t len,
		       struct hutch_error *err);
struct exec_resize {
	uint32_t rows, cols;
};
int exec_resize_decode(struct exec_resize *m, const void *params, size_t len,
		       struct hutch_error *err);
/*
 * {timeout_ms} of exec.wait and vm.wait, {grace_ms} of exec.kill and agent.shutdown, {close} of
 * exec.stdin
 */
int msg_timeout_decode(uint64_t *timeout_ms, const void *params, size_t len,
		       struct hutch_error *err);
int msg_grace_decode(uint32_t *grace_ms, uint32_t dflt, const void *params, size_t len,
		     struct hutch_error *err);
int msg_close_decode(bool *close, const void *params, size_t len, struct hutch_error *err);

/* Events of an exec, both directions. Unknown event names decode to EXEC_EVENT_OTHER. */
enum exec_event_type {
	EXEC_EVENT_OTHER = 0,
	EXEC_EVENT_STARTED,
	EXEC_EVENT_STDIN_CLOSED,
	EXEC_EVENT_GAP,
	EXEC_EVENT_ATTACHED,
	EXEC_EVENT_ACK,
	EXEC_EVENT_DETACH,
};
struct exec_event {
	enum exec_event_type type;
	char id[HUTCH_MAX_ID + 1];
	uint64_t pid;
	bool stderr_stream;		       /* gap: of stderr, else of stdout */
	uint64_t from, to;		       /* gap */
	uint64_t stdout_offset, stderr_offset; /* attached, ack */
	uint32_t rows, cols;		       /* attached, on a PTY; 0: none */
};
int exec_event_decode(struct exec_event *m, const void *payload, size_t len,
		      struct hutch_error *err);
int exec_event_encode(struct mp_buf *out, const struct exec_event *m); /* a whole EVENT frame */

/* agent.identity */
struct agent_identity {
	struct mp_doc doc;
	uint64_t generation;
	char hostname[65];
	char machine_id[33];
	uint64_t realtime_ns;
	const uint8_t *entropy;
	size_t entropy_len;
	bool keep_keys;
	uint64_t disk_bytes; /* 0: its disk is as it was */
};
int agent_identity_decode(struct agent_identity *m, const void *params, size_t len,
			  struct hutch_error *err);
void agent_identity_free(struct agent_identity *m);
void agent_identity_encode_params(struct mp_buf *out, const struct agent_identity *m);

/* snapshot.prepare; at most HUTCH_MAX_FREEZE_MS, which is the default. */
int agent_prepare_decode(uint32_t *timeout_ms, const void *params, size_t len,
			 struct hutch_error *err);
void agent_prepare_encode_params(struct mp_buf *out, uint32_t timeout_ms);
struct agent_prepared {
	uint64_t generation; /* in force; what snapshot.resume has to name */
	uint64_t frozen_us;  /* how long the freezing took */
};
int agent_prepared_decode(struct agent_prepared *m, const void *payload, size_t len,
			  struct hutch_error *err);
int agent_prepared_encode(struct mp_buf *out, const struct agent_prepared *m); /* a whole RESULT */
/* snapshot.resume */
struct agent_resume {
	uint64_t generation;
	uint64_t realtime_ns; /* 0: the clock is left alone */
};
int agent_resume_decode(struct agent_resume *m, const void *params, size_t len,
			struct hutch_error *err);
void agent_resume_encode_params(struct mp_buf *out, const struct agent_resume *m);

#endif
