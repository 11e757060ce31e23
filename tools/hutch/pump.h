/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a VM, connected to this process: its output, its input, and ctrl-C. */
#ifndef HUTCH_PUMP_H
#define HUTCH_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/hutch/cli.h"
#include "tools/hutch/sink.h"

struct pump {
	struct cli *cli;
	struct hutch *h;
	const char *vm, *id; /* of the VM, of the exec */
	bool input;	     /* standard input goes to the command */
	struct sink out, err;

	/* What pump_run leaves. */
	struct hutch_doc *doc; /* the result; NULL: it was abandoned, or hutch failed */
	int status;	       /* without a result: what to exit with */

	/* Its own. */
	struct sink *sink;   /* of the pending bytes */
	const char *pending; /* output in hand */
	size_t pending_len;
	struct hutch *side; /* carries exec.signal or exec.kill */
	unsigned interrupts_seen;
	uint64_t give_up_ms; /* CLOCK_MONOTONIC; 0: not */
	bool over;
};

/*
 * Start the command on p->h and serve it to its end. SIGINT becomes exec.signal INT, the second one
 * exec.kill, the third gives up. SIGTERM, SIGHUP and output that cannot be written give up at once:
 * the connection is closed, and the broker ends the command.
 */
void pump_run(struct pump *p, const struct hutch_exec_options *x);
void pump_free(struct pump *p);

/*
 * A call that INT, TERM and HUP break off. NULL with *status set: the failure was printed, or a
 * signal came; the connection is then to be closed.
 */
struct hutch_doc *pump_request(struct cli *cli, struct hutch *h, const struct hutch_call *call,
			       uint64_t timeout_ms, int *status);

#endif
