/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a VM, connected to this process: its output, its input, and ctrl-C. */
#ifndef HUTCH_PUMP_H
#define HUTCH_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/hutch/cli.h"
#include "tools/hutch/keys.h"
#include "tools/hutch/sink.h"

struct pump {
	struct cli *cli;
	struct hutch *h;
	const char *vm, *id; /* of the VM, of the exec */
	bool input;	     /* standard input goes to the command */
	bool tty;  /* it has a PTY: ours is made raw if its input goes there, and sizes follow */
	bool view; /* only looks on: ctrl-C leaves and is not passed on */
	struct keys keys; /* that detach, while our terminal is raw */
	struct sink out, err;

	/* What pump_run leaves. */
	struct hutch_doc *doc; /* the result; NULL: it was abandoned, or hutch failed */
	bool detaching;	       /* the keys were typed; a result without exit_code says it is done */
	int status;	       /* without a result: what to exit with */

	/* Its own. */
	struct sink *sink;   /* of the pending bytes */
	const char *pending; /* output in hand */
	size_t pending_len;
	struct hutch *side;  /* carries exec.signal or exec.kill */
	struct hutch *sizer; /* carries exec.resize */
	bool resizing;	     /* one is under way on it */
	bool settled;	     /* the first one was answered */
	uint32_t rows, cols; /* the PTY's, as last told */
	bool running;	     /* the agent said so */
	unsigned interrupts_seen;
	uint64_t give_up_ms; /* CLOCK_MONOTONIC; 0: not */
	bool over;
};

/*
 * Start the command on p->h and serve it to its end. SIGINT becomes exec.signal INT, the second one
 * exec.kill, the third gives up. SIGTERM, SIGHUP and output that cannot be written give up at once:
 * the connection is closed, and the broker ends the command. With our terminal raw, ctrl-C is a
 * byte like any other, and a SIGINT from elsewhere gives up as well.
 */
void pump_run(struct pump *p, struct hutch_exec_options *x);
/* The same with a command that runs already; p->h carries its exec.attach, just started. */
void pump_serve(struct pump *p);
/* Signals and, for a PTY, our terminal. Before pump_serve and the call that it serves. */
void pump_prepare(struct pump *p);
void pump_free(struct pump *p);

/*
 * A call that INT, TERM and HUP break off; timeout_ms 0: no limit. NULL with *status set: the failure was printed, or a
 * signal came; the connection is then to be closed.
 */
struct hutch_doc *pump_request(struct cli *cli, struct hutch *h, const struct hutch_call *call,
			       uint64_t timeout_ms, int *status);

#endif
