/* SPDX-License-Identifier: Apache-2.0 */
/* hutch signal, hutch cancel, hutch wait: steer a command of a VM from beside it. */
#include <ctype.h>
#include <stdio.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/cmd_exec.h"
#include "tools/hutch/json.h"
#include "tools/hutch/signals.h"

#define MAX_SIGNAL 64

/* exec.* for the two first operands; what the answer holds is the caller's. */
static struct hutch_doc *ask(struct cli *cli, const struct args *a, const char *method,
			     const struct hutch_pair *params, size_t count, int *status)
{
	struct hutch_call call = {.method = method,
				  .vm = a->operands[0],
				  .id = a->operands[1],
				  .params = params,
				  .param_count = count};
	struct hutch *h;
	struct hutch_doc *doc = NULL;

	*status = cli->command->failed;
	signals_hold();
	h = cli_open(cli);
	if (h != NULL)
		doc = pump_request(cli, h, &call, 0, status);
	hutch_close(h);
	return doc;
}

static int done(struct cli *cli, struct hutch_doc *doc, int status)
{
	if (doc == NULL)
		return status;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

/* ---- signal ---- */

static int run_signal(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"signal", {.type = HUTCH_NIL}},
				       {"tree", hutch_bool(false)}};
	struct hutch_doc *doc;
	uint64_t n;
	int id, status;

	while ((id = args_next(a)) > 0)
		params[1].value = hutch_bool(true);
	if (id < 0)
		return a->status;
	if (a->count != 3)
		return cli_usage(cli, "ID, EXEC and SIGNAL are wanted");
	params[0].value = hutch_text(a->operands[2]);
	if (isdigit((unsigned char)a->operands[2][0])) {
		if (parse_number(cli, "the signal", a->operands[2], 1, MAX_SIGNAL, &n) < 0)
			return a->status;
		params[0].value = hutch_uint(n);
	}
	doc = ask(cli, a, "exec.signal", params, 2, &status);
	return done(cli, doc, status);
}

static const struct opt signal_options[] = {
	{'a', "tree", NULL, "every process of the command, not its process group alone"},
	{0},
};

const struct command cmd_signal = {
	.name = "signal",
	.operands = "ID EXEC SIGNAL",
	.summary = "Send a signal to a command in a VM: TERM, SIGTERM or 15",
	.opts = signal_options,
	FAILS_PLAINLY,
	.run = run_signal,
};

/* ---- cancel ---- */

static int run_cancel(struct cli *cli, struct args *a)
{
	struct hutch_pair grace = {"grace_ms", hutch_uint(0)};
	struct hutch_doc *doc;
	uint64_t ms;
	int id, status;

	while ((id = args_next(a)) > 0) {
		if (parse_duration(cli, "--grace", a->value, &ms) < 0)
			return a->status;
		grace.value = hutch_uint(ms);
	}
	if (id < 0)
		return a->status;
	if (a->count != 2)
		return cli_usage(cli, "ID and EXEC are wanted");
	doc = ask(cli, a, "exec.kill", &grace, 1, &status);
	return done(cli, doc, status);
}

static const struct opt cancel_options[] = {
	{'g', "grace", "TIME", "SIGTERM first, SIGKILL after this (default: SIGKILL at once)"},
	{0},
};

const struct command cmd_cancel = {
	.name = "cancel",
	.operands = "ID EXEC",
	.summary = "End a command in a VM and all that it started",
	.opts = cancel_options,
	FAILS_PLAINLY,
	.run = run_cancel,
};

/* ---- wait ---- */

static int run_wait(struct cli *cli, struct args *a)
{
	struct hutch_pair timeout = {"timeout_ms", hutch_uint(0)};
	struct pump p = {.cli = cli};
	uint64_t ms;
	int id;

	while ((id = args_next(a)) > 0) {
		if (parse_duration(cli, "--timeout", a->value, &ms) < 0)
			return a->status;
		timeout.value = hutch_uint(ms);
	}
	if (id < 0)
		return a->status;
	if (a->count != 2)
		return cli_usage(cli, "ID and EXEC are wanted");
	p.vm = a->operands[0];
	p.id = a->operands[1];
	p.doc = ask(cli, a, "exec.wait", &timeout, 1, &p.status);
	sink_to_fd(&p.out, -1);
	sink_to_fd(&p.err, -1);
	return exec_conclude(&p, 0);
}

static const struct opt wait_options[] = {
	{'t', "timeout", "TIME", "fail when it has not ended after this (default: wait for ever)"},
	{0},
};

const struct command cmd_wait = {
	.name = "wait",
	.operands = "ID EXEC",
	.summary = "Wait until a command in a VM has ended; exit with its status",
	.details = "Its output is not shown: hutch attach waits too, and shows it.\n",
	.opts = wait_options,
	FAILS_ASIDE,
	.run = run_wait,
};
