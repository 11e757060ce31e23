/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The END rules of one call on one connection (wire.md section 2), without I/O. Two halves that end on their own: the
 * caller's (CALL, then STDIN and EVENT, the last with END) and the callee's (EVENT, STDOUT and STDERR, then one RESULT
 * or ERROR with END). Both the broker's client side and its guest side check every frame with it.
 */
#ifndef HUTCH_HOST_CALL_ENDS_H
#define HUTCH_HOST_CALL_ENDS_H

#include <stdbool.h>

#include "protocol/frame.h"

struct call_ends {
	bool open;	   /* a CALL was sent, and not both halves ended since */
	bool caller_ended; /* only while open */
	bool callee_ended;
};

enum call_verdict {
	CALL_TAKE,    /* part of the call */
	CALL_DISCARD, /* input behind the result: to be read and dropped */
	CALL_FAULT,   /* against the rules: the connection is to be closed */
};

/* Judge a frame of the caller and note its END. why is set at CALL_FAULT. */
enum call_verdict call_from_caller(struct call_ends *c, const struct frame *f, const char **why);
/* The same for a frame of the callee. CALL_DISCARD does not occur. */
enum call_verdict call_from_callee(struct call_ends *c, const struct frame *f, const char **why);

#endif
