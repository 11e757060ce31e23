/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connected, non-blocking stream socket that carries frames (wire.md section 1).
 *
 * In: bytes are read into the loop's shared buffer and whole frames are handed out where they lie; only the piece of a
 * frame that is not complete is kept, in memory that grows with the bytes that came (never with the length
 * that a header claims) and is freed when it is used up. One read per wake-up, so that streams take turns.
 *
 * Out: written at once; what the socket does not take is queued. Nobody is refused: the owner looks at
 * stream_queued() and stops its source above STREAM_HIGH (stream_pass does that); drained tells it when the queue is at
 * STREAM_LOW again. So a queue holds at most STREAM_HIGH plus one frame of the source's.
 *
 * A frame is handed on or queued whole, so an owner may end a call with a frame of its own at any time.
 */
#ifndef HUTCH_HOST_STREAM_H
#define HUTCH_HOST_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/hutchd/loop.h"
#include "protocol/frame.h"

#define STREAM_HIGH (64u << 10)
#define STREAM_LOW  (16u << 10)

struct stream;

enum stream_end {
	STREAM_EOF,   /* the peer closed or half-closed, between two frames */
	STREAM_GONE,  /* reset, closed inside a frame or while we did not read, or a write failed */
	STREAM_FAULT, /* the bytes break the protocol; err says how */
};

struct stream_ops {
	/* raw: the header and the payload behind it, valid during the call. It may close the stream. */
	void (*frame)(struct stream *s, const struct frame *f, const uint8_t *raw);
	/*
	 * Nothing more is read. Once; but STREAM_GONE may follow another one, when writing fails as well. err is
	 * set at STREAM_FAULT only.
	 */
	void (*ended)(struct stream *s, enum stream_end why, const struct hutch_error *err);
	/* The queue shrank and is at most STREAM_LOW. */
	void (*drained)(struct stream *s);
	/* While raw is set, instead of frame: returns how many of the bytes were used. */
	size_t (*bytes)(struct stream *s, const uint8_t *data, size_t len);
};

struct stream_buf {
	uint8_t *data;
	size_t off, len, cap; /* the bytes are data[off .. off + len) */
};

/* Bytes in the read buffer of another stream, which sends them on before its callback returns. */
struct stream_run {
	const uint8_t *data; /* NULL: none */
	size_t len;
};

struct stream {
	struct loop *loop;
	const struct stream_ops *ops;
	int fd; /* owned; -1 once closed */
	bool raw;
	bool watch_gone; /* tell of a peer that closed even while paused, losing what it sent */
	bool paused, ended, broken;
	struct stream_buf in, out;
	struct stream_run held;	 /* to be written, in front of what is sent next */
	struct stream *receiver; /* of what was passed on during this callback; NULL: none */
	struct event rd, wr, gone;
};

/* Takes over fd and starts reading. Before anything else on a zeroed or freshly allocated s. */
void stream_open(struct stream *s, struct loop *l, int fd, const struct stream_ops *ops);
/* Close the socket; no callback comes any more. The memory is freed by stream_release. Harmless when done. */
void stream_close(struct stream *s);
/* After stream_close, and not from inside a callback of s: see loop_defer. */
void stream_release(struct stream *s);

/* Whole frames only. A failure shows as ended(STREAM_GONE) from the loop. */
void stream_send(struct stream *s, const void *data, size_t len);
/*
 * From a frame callback of from: send on whole frames that it handed out, where they lie. What came in one read leaves in one
 * write, in its order with whatever else is sent to s. from is paused when more than STREAM_HIGH is queued then; it is the owner
 * who resumes it, when s is drained.
 */
void stream_pass(struct stream *s, struct stream *from, const void *data, size_t len);
size_t stream_queued(const struct stream *s);
/* Bytes read that are no whole frame yet or wait for stream_resume. */
size_t stream_unread(const struct stream *s);
void stream_pause(struct stream *s);
void stream_resume(struct stream *s);
/* Did an idle peer close or send something since the loop last looked? Asks the kernel. */
bool stream_stale(const struct stream *s);
/* Did the peer close altogether, and not only its sending half? Asks the kernel. */
bool stream_peer_closed(const struct stream *s);

#endif
