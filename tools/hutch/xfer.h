/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that carries bytes, to or from a file or a tree here.
 *
 * It waits for the connection only; what it reads and writes here is files. INT, TERM and HUP break
 * it off (signals_hold was called before); the connection is then of no more use, and the agent
 * undoes what it was writing.
 */
#ifndef HUTCH_XFER_H
#define HUTCH_XFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/hutch/cli.h"

#define XFER_PIECE 65536 /* as much as a frame holds */

struct xfer {
	struct cli *cli;
	struct hutch *h;
	const char *vm, *user; /* user: of every fs.* call; NULL: the agent's */

	/* The bar: set by the caller before, counted here. */
	bool show;	      /* on standard error */
	const char *label;    /* what is copied */
	uint64_t done, total; /* bytes; total 0: not known */

	struct hutch_doc *result, *event; /* of the call; the last event that came */
	int status;			  /* once something failed */
	bool over;

	uint64_t began_ms, shown_ms;
};

/* How many parameters of the caller's own a call may have. */
#define XFER_PARAMS 12

/* Open the connection. -1: x->status, the failure was printed. */
int xfer_open(struct xfer *x, struct cli *cli, const char *vm, const char *user);
void xfer_close(struct xfer *x);

/*
 * Start method; input: xfer_send follows, and xfer_finish. Answers of the call before are freed.
 * -1: printed.
 */
int xfer_start(struct xfer *x, const char *method, const struct hutch_pair *params, size_t count,
	       bool input);
/* Send all of it. -1: the call is over, or a signal came: go on with xfer_finish. */
int xfer_send(struct xfer *x, const void *data, size_t len);
/*
 * What comes next: its length, valid until the next xfer_*; 0: the RESULT, -1: a failure, printed.
 * An event is kept in x->event; with on_event (an argument of xfer_recv) it returns to the caller.
 */
ssize_t xfer_recv(struct xfer *x, const void **data, bool *event);
/* End the input and wait for the RESULT: 0, or -1: printed. Output that still comes is dropped. */
int xfer_finish(struct xfer *x);
/* A call without bytes. *why is filled and nothing is printed when it is not NULL. */
int xfer_request(struct xfer *x, const char *method, const struct hutch_pair *params, size_t count,
		 struct hutch_failure *why);
/* Take the bar away. */
void xfer_quiet(struct xfer *x);

#endif
