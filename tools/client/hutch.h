/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhutch: a C client of hutchd.
 *
 * A struct hutch is one connection, and carries one call at a time; for two calls at once open two.
 * No function touches global state, installs a signal handler or changes the mode of a descriptor
 * it was given. Two threads must not use the same connection at once.
 *
 * There are three levels: hutch_request sends a call and waits for its answer; hutch_exec runs a
 * command and hands its output to callbacks; hutch_start, hutch_next, hutch_send do the same
 * without ever blocking, for a caller with a poll loop of its own (hutch_fd, hutch_poll_events).
 *
 * Methods, their parameters and results are those of protocol/wire.md. Times are milliseconds, 0 is
 * "no limit". Functions return 0 or a pointer on success, -1 or NULL with *why filled on failure.
 */
#ifndef HUTCH_H
#define HUTCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HUTCH_API __attribute__((visibility("default")))
#else
#define HUTCH_API
#endif

/* Why something failed. */
struct hutch_failure {
	char kind[32];	/* a kind of wire.md, such as "not_found"; empty: nothing failed */
	int errnum;	/* errno of the side that failed; 0: none */
	bool retryable; /* the same call may succeed when repeated */
	char stage[32]; /* which step failed; empty: not told */
	char path[256]; /* the file it is about; empty: none */
	/* One sentence, NUL-terminated. It holds bytes from a peer: sanitise it for a terminal. */
	char message[2048];
};

/* ---- Values: parameters of calls, and what comes back ---- */

enum hutch_type {
	HUTCH_NIL,
	HUTCH_BOOL,
	HUTCH_UINT,
	HUTCH_INT, /* a negative number */
	HUTCH_REAL,
	HUTCH_TEXT, /* text or bytes; need not be UTF-8 */
	HUTCH_ARRAY,
	HUTCH_MAP
};

struct hutch_pair;

struct hutch_value {
	enum hutch_type type;
	union {
		bool boolean;
		uint64_t u;
		int64_t i;
		double real;
		struct {
			const char *data; /* NUL-terminated where it was received */
			size_t len;	  /* without the NUL */
		} text;
		struct {
			const struct hutch_value *items;
			size_t count;
		} array;
		struct {
			const struct hutch_pair *pairs;
			size_t count;
		} map;
	} as;
};

struct hutch_pair {
	const char *key;
	struct hutch_value value;
};

/* A value for a parameter. text may be NULL: a nil, as good as leaving the parameter out. */
HUTCH_API struct hutch_value hutch_text(const char *text);
HUTCH_API struct hutch_value hutch_uint(uint64_t n);
HUTCH_API struct hutch_value hutch_bool(bool b);
HUTCH_API struct hutch_value hutch_map(const struct hutch_pair *pairs, size_t count);
HUTCH_API struct hutch_value hutch_array(const struct hutch_value *items, size_t count);

/* What a key of a map holds; NULL when map is NULL or no map, or the key is absent or nil. */
HUTCH_API const struct hutch_value *hutch_get(const struct hutch_value *map, const char *key);
/* The same with a type asked for; dflt when it is absent or of another type. */
HUTCH_API const char *hutch_get_text(const struct hutch_value *map, const char *key,
				     const char *dflt);
HUTCH_API uint64_t hutch_get_uint(const struct hutch_value *map, const char *key, uint64_t dflt);
HUTCH_API bool hutch_get_bool(const struct hutch_value *map, const char *key, bool dflt);

/* A result or an event: a map, and the memory that it lives in. */
struct hutch_doc;
HUTCH_API const struct hutch_value *hutch_doc_root(const struct hutch_doc *doc);
HUTCH_API void hutch_doc_free(struct hutch_doc *doc); /* NULL is fine */

/* ---- Connection ---- */

struct hutch;

/*
 * Connect to the broker's Unix socket: socket_path; else HUTCH_SOCKET from the environment; else
 * $XDG_RUNTIME_DIR/hutch/hutchd.sock; else /run/hutch/hutchd.sock. A path may be longer than
 * sockaddr_un allows. client_name is for the broker's log (at most 64 bytes; NULL: libhutch and its
 * version). Does not wait for the broker to say anything. Kinds: not_dispatched (nobody answers
 * there), denied, io.
 */
HUTCH_API struct hutch *hutch_open(const char *socket_path, const char *client_name,
				   struct hutch_failure *why);
/* Over a connected stream socket, which is the connection's from now on, also on failure. */
HUTCH_API struct hutch *hutch_open_fd(int fd, const char *client_name, struct hutch_failure *why);
/* A call that is open is abandoned: the broker cancels an attached exec. NULL is fine. */
HUTCH_API void hutch_close(struct hutch *h);
/* False once the connection has failed: it can only be closed. */
HUTCH_API bool hutch_alive(const struct hutch *h);
/* The path that hutch_open connected to. */
HUTCH_API const char *hutch_socket(const struct hutch *h);

/* ---- One call, and its answer ---- */

struct hutch_call {
	const char *method;
	const char *vm;	 /* id or name; NULL: none, as for the next two */
	const char *id;	 /* of an exec */
	const char *key; /* makes a retry of vm.create and exec.start idempotent */
	const struct hutch_pair *params;
	size_t param_count;
	bool input; /* hutch_send and hutch_send_end will follow */
};

/*
 * Send a call without input and wait for its result; events on the way are dropped. A broker's
 * error is told in *why as it came. Of this side: not_dispatched (the call was not sent),
 * outcome_unknown (the connection was lost after it was sent), timeout, protocol, io. After a
 * timeout the connection is of no more use.
 */
HUTCH_API struct hutch_doc *hutch_request(struct hutch *h, const struct hutch_call *call,
					  uint64_t timeout_ms, struct hutch_failure *why);

/* ---- Commands in a VM ---- */

/* exec.start of wire.md; zero it, then fill in. */
struct hutch_exec_options {
	const char *id;		 /* chosen by the caller; NULL: by the broker */
	const char *key;	 /* NULL: none */
	const char *const *argv; /* NULL-terminated; or */
	const char *shell;	 /* a text for /bin/sh -c */
	const char *const
		*env; /* pairs name, value; ends with a NULL name; a NULL value removes the name */
	bool clear_env;
	const char *cwd;
	const char *user;
	uint64_t timeout_ms;
	uint32_t grace_ms;
	uint64_t output_limit; /* bytes per stream */
	uint64_t memory_bytes;
	uint32_t pids;
	uint32_t cpu_percent;
	bool merge_stderr;
	bool input; /* stdin will be sent; else it is /dev/null */
	bool detach;
	bool resumable;
	bool notify; /* an event "started" is wanted */
	bool pty;
	uint32_t rows, cols;
	const char *term; /* of the PTY; NULL: xterm-256color */
};

/* How a command ended. */
struct hutch_exec_result {
	char id[65];
	uint64_t pid; /* in the guest; 0: never ran */
	bool started; /* false: start_error says why not */
	bool timed_out, oom_killed, canceled;
	uint32_t exit_code; /* 0-255; 128 + signal; 126, 127 when it did not start */
	uint32_t signal;    /* that ended it; 0: none */
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

/*
 * Read the result of exec.start (not detached: that has only id and pid), exec.attach or exec.wait.
 */
HUTCH_API int hutch_exec_result_read(const struct hutch_doc *doc, struct hutch_exec_result *out,
				     struct hutch_failure *why);

/*
 * Each may be NULL. One that returns anything but 0 abandons the call: kind canceled, connection of
 * no more use.
 */
struct hutch_exec_handlers {
	void *arg;
	int (*on_stdout)(void *arg, const void *data, size_t len);
	int (*on_stderr)(void *arg, const void *data, size_t len);
	int (*on_event)(void *arg, const struct hutch_value *event);
	/*
	 * Called while there is room, when options.input is set: fill at most size bytes, set *len;
	 * 0 ends the input. Output is not read while it runs: a caller whose input can stall uses
	 * hutch_start_exec.
	 */
	int (*on_input)(void *arg, void *buf, size_t size, size_t *len);
};

/* Run a command to its end. timeout_ms bounds the wait; options->timeout_ms, the command. */
HUTCH_API int hutch_exec(struct hutch *h, const char *vm, const struct hutch_exec_options *options,
			 const struct hutch_exec_handlers *handlers, uint64_t timeout_ms,
			 struct hutch_exec_result *result, struct hutch_failure *why);

/* ---- The same without blocking ---- */

HUTCH_API int hutch_fd(const struct hutch *h);
/* What to poll hutch_fd for: POLLIN, and POLLOUT while something is queued. */
HUTCH_API short hutch_poll_events(const struct hutch *h);

/*
 * Queue a call and send what the socket takes. Kinds: state (a call is open), too_large, invalid,
 * not_dispatched.
 */
HUTCH_API int hutch_start(struct hutch *h, const struct hutch_call *call,
			  struct hutch_failure *why);
HUTCH_API int hutch_start_exec(struct hutch *h, const char *vm,
			       const struct hutch_exec_options *options, struct hutch_failure *why);

enum hutch_next {
	HUTCH_AGAIN,  /* nothing yet: poll */
	HUTCH_STDOUT, /* data, len: valid until the next hutch_next or hutch_close */
	HUTCH_STDERR,
	HUTCH_EVENT,  /* doc, now the caller's */
	HUTCH_RESULT, /* doc, now the caller's; the call is over */
	HUTCH_FAILED  /* *why; the call is over; see hutch_alive */
};

struct hutch_item {
	const void *data;
	size_t len;
	struct hutch_doc *doc;
};

/* Send what is queued, then give the next thing that arrived. */
HUTCH_API enum hutch_next hutch_next(struct hutch *h, struct hutch_item *item,
				     struct hutch_failure *why);

/* How many bytes of input hutch_send would take now: 0 while earlier ones are still queued. */
HUTCH_API size_t hutch_send_room(const struct hutch *h);
/*
 * Send what is queued, then queue input, at most hutch_send_room bytes; returns how many were
 * taken. A failure is told by hutch_next. len 0: only send what is queued.
 */
HUTCH_API size_t hutch_send(struct hutch *h, const void *data, size_t len);
/* The input is over. Done by itself when the call ends first. */
HUTCH_API void hutch_send_end(struct hutch *h);
/*
 * Queue an event without fields, such as "detach" for an exec, and send what the socket takes. -1:
 * the input is over, or the connection is.
 */
HUTCH_API int hutch_send_event(struct hutch *h, const char *name);

HUTCH_API const char *hutch_version(void);

#ifdef __cplusplus
}
#endif
#endif
