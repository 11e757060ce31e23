/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: frames in, frames out, one call at a time (wire.md section 2).
 *
 * How it works. Bytes are read into one buffer that all connections share and parsed there; only what is left
 * of an unfinished frame, or what the call does not take yet, is kept in memory of the connection. A CALL goes to
 * dispatch, which sets the call's ops; STDIN bytes go to ops->data as they arrive. Answers are put into conn_out
 * and leave at the end of the loop's pass, in one write; while there is room, ops->pump may add output.
 *
 * Bounds: input that a call does not take stops the reading of this connection alone. Output is asked for only
 * while the last was taken by the peer. A peer that breaks the protocol gets ERROR and the connection ends.
 */
#ifndef HUTCH_GUEST_CONN_H
#define HUTCH_GUEST_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/list.h"
#include "guest/loop.h"
#include "guest/ring.h"
#include "protocol/codec.h"
#include "protocol/frame.h"

struct conn;

/* How an open call reacts; each may be NULL. */
struct call_ops {
	/* Bytes of STDIN. Returns how many were taken; fewer than n stops reading until conn_resume. */
	size_t (*data)(struct conn *c, const uint8_t *p, size_t n);
	/* The caller's END. False: not possible yet; it is repeated after conn_resume. */
	bool (*end)(struct conn *c);
	/* An EVENT of the caller. */
	void (*event)(struct conn *c, const uint8_t *payload, size_t n);
	/* There is room to send. True: something was added or sent, ask again. */
	bool (*pump)(struct conn *c);
	/* Nothing waits to be sent, and c->in holds what was received behind the CALL. */
	void (*sent)(struct conn *c);
	/* The call is over (lost: the connection broke first). Drop all references to c. */
	void (*over)(struct conn *c, bool lost);
};

enum conn_state {
	CONN_HELLO,   /* the peer's HELLO is awaited; nothing else may come */
	CONN_IDLE,    /* no call; a CALL may come */
	CONN_CALL,    /* a call is open: no RESULT or ERROR was sent yet */
	CONN_SKIP,    /* it was answered; input up to the caller's END is discarded */
	CONN_CLOSING, /* the last answer goes out, input is discarded, then the end */
	CONN_DEAD,    /* closed; nothing may be done with it but freeing, after the pass */
};

/* The part of a connection that belongs to its call on an exec; see attach.h. */
struct exec_link {
	struct list link; /* exec::links */
	struct exec *exec;
	uint64_t at[2];	   /* offset of the next byte to send, per stream */
	uint64_t acked[2]; /* resumable: offsets that the peer has */
	uint64_t skip;	   /* input bytes that the exec already got from a lost connection */
	uint64_t taken;	   /* exec.stdin: bytes passed on */
	bool owner;
	bool close_stdin; /* the caller's END closes the exec's input */
	bool waits_input; /* stopped because the program does not read */
};

/* Where in the input a call that was served elsewhere ended (worker.h). */
struct conn_rest {
	uint32_t data_left; /* of the payload that is being skipped */
	bool in_data, data_end;
	uint8_t head_len; /* bytes of a frame header that was cut off */
	uint8_t head[HUTCH_FRAME_HEADER];
};

struct worker;

struct conn {
	struct loop_source src;
	struct list link; /* all connections */
	struct loop_task task;
	struct loop_timer timer; /* the call's own deadline; CLOSING: the linger */
	struct loop_garbage garbage;
	enum conn_state state;
	bool caller_end;   /* the caller's END of this call was handled */
	bool end_due;	   /* it came, and the call could not take it yet */
	bool stopped;	   /* the call takes no more input for the moment */
	bool eof;	   /* the peer sends no more */
	bool send_blocked; /* the last write was short */
	bool resume_due;
	bool held; /* from before snapshot.prepare: nothing is read from it until that is over */
	bool warm; /* the agent's own (warm.c): all methods are answered */

	uint8_t *in; /* received and not handled yet */
	size_t in_len, in_cap;
	uint32_t data_left; /* payload bytes of the STDIN frame that is being read */
	bool in_data, data_end;

	struct mp_buf out;
	size_t out_at; /* bytes of out that were sent */

	const struct call_ops *ops;
	struct exec_link x;
	struct worker *worker; /* serves the call; see worker.h */
	uint64_t answered;     /* serial of the exec whose result was sent last; 0: none */
	void (*greeted)(void); /* the peer's HELLO came; NULL: nobody is told */
	void (*closed)(void);  /* it ended */
};

/* Take over fd (non-blocking), send HELLO. NULL: no memory or AGENT_MAX_CONNS; fd is closed then. */
struct conn *conn_open(int fd);
/* The connection is of no use any more: ends the call as lost. */
void conn_lost(struct conn *c);
/* Where answers are put; they leave at the end of the pass. */
struct mp_buf *conn_out(struct conn *c);
/* ops->pump may have something to send. */
void conn_wake(struct conn *c);
/* ops->data or ops->end can go on. */
void conn_resume(struct conn *c);
/* RESULT of one number (key NULL: of nothing), and the call is over. */
void conn_answer(struct conn *c, const char *key, uint64_t v);
/* A RESULT or ERROR was put into conn_out: the call is over for this side. */
void conn_answered(struct conn *c);
/* It was answered elsewhere: go on in its input. */
void conn_returned(struct conn *c, bool caller_end, const struct conn_rest *rest);
/* What c->in holds is somebody else's. */
void conn_input_taken(struct conn *c);
/* The last answer was sent; nothing more is taken. */
void conn_end(struct conn *c);
/* Put ERROR and end the call. */
void conn_fail(struct conn *c, const struct hutch_error *err);
/* Answer with ERROR and end the connection. */
void conn_break(struct conn *c, const struct hutch_error *err);
/*
 * From ops->pump: send one data frame, after all that is in conn_out. It is taken in any case, what the
 * peer does not take yet is copied. n <= AGENT_DATA_FRAME.
 */
void conn_send_data(struct conn *c, enum frame_type type, const struct ring_span s[2], size_t n);
/* From ops->pump: false when no more should be added before the peer takes some. */
bool conn_may_send(const struct conn *c);

/* Read from no connection but this one. */
void conn_hold(const struct conn *but);
/* Go on with those that were held, or (restored) close them. */
void conn_release(bool restored);

unsigned conn_count(void);
/* Close all, as lost. */
void conn_close_all(void);

/* dispatch.c: start the call; -1 with err to have it refused. */
int dispatch_call(struct conn *c, const uint8_t *payload, size_t n, struct hutch_error *err);

#endif
