/* SPDX-License-Identifier: Apache-2.0 */
/* hutch attach: come back to a command that runs in a VM. */
#include <stdio.h>
#include <string.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/cmd_exec.h"
#include "tools/hutch/signals.h"

enum { OPT_VIEW = OPT_LONG, OPT_TAIL };

struct attach_args {
	bool input, view, tail;
	struct keys keys;
};

/*
 * Whether the exec has a PTY, which decides how it is attached. One that is not listed is for
 * exec.attach to complain about. -1: the failure was printed, *status set.
 */
static int has_pty(struct pump *p, int *status)
{
	struct hutch_call list = {.method = "exec.list", .vm = p->vm};
	struct hutch_doc *doc = pump_request(p->cli, p->h, &list, PROMPT_MS, status);
	const struct hutch_value *execs;

	if (doc == NULL)
		return -1;
	execs = hutch_get(hutch_doc_root(doc), "execs");
	for (size_t i = 0; execs != NULL && execs->type == HUTCH_ARRAY && i < execs->as.array.count;
	     i++) {
		const struct hutch_value *e = &execs->as.array.items[i];

		if (strcmp(hutch_get_text(e, "id", ""), p->id) == 0)
			p->tty = hutch_get_bool(e, "pty", false);
	}
	hutch_doc_free(doc);
	return 0;
}

static int attach(struct pump *p, const struct attach_args *o)
{
	struct hutch_pair params[2];
	struct hutch_call call = {.method = "exec.attach",
				  .vm = p->vm,
				  .id = p->id,
				  .params = params};
	struct hutch_failure why;
	int status = p->cli->command->failed;

	if (has_pty(p, &status) < 0)
		return status;
	p->keys = o->keys;
	p->view = o->view;
	p->input = call.input = !o->view && (o->input || p->tty);
	if (!o->view)
		params[call.param_count++] = (struct hutch_pair){"owner", hutch_bool(true)};
	if (o->tail)
		params[call.param_count++] = (struct hutch_pair){"tail", hutch_bool(true)};
	exec_sinks(p);
	if (hutch_start(p->h, &call, &why) < 0)
		return cli_fail(p->cli, &why);
	pump_prepare(p);
	pump_serve(p);
	return exec_conclude(p, 0);
}

static int parse(struct attach_args *o, struct args *a)
{
	const char *keys = NULL;
	int id;

	while ((id = args_next(a)) > 0) {
		if (id == 'i')
			o->input = true;
		else if (id == OPT_VIEW)
			o->view = true;
		else if (id == OPT_TAIL)
			o->tail = true;
		else
			keys = a->value;
	}
	if (id < 0 || exec_detach_keys(&o->keys, keys, a->cli) < 0)
		return -1;
	if (o->view && o->input)
		cli_usage(a->cli, "--view and --stdin exclude each other");
	else if (a->count != 2)
		cli_usage(a->cli, "ID and EXEC are wanted");
	else
		return 0;
	return -1;
}

static int run(struct cli *cli, struct args *a)
{
	struct attach_args o = {0};
	struct pump p = {.cli = cli};
	int status;

	if (parse(&o, a) < 0)
		return a->status;
	signals_hold();
	p.h = cli_open(cli);
	p.vm = a->operands[0];
	p.id = a->operands[1];
	status = p.h != NULL ? attach(&p, &o) : cli->command->failed;
	hutch_close(p.h);
	return status;
}

static const struct opt options[] = {
	{'i', "stdin", NULL, "pass standard input on, without a terminal too"},
	{OPT_VIEW, "view", NULL, "only look on: no input, and leaving ends nothing"},
	{OPT_TAIL, "tail", NULL, "show what comes from now on, not what is kept"},
	{EXEC_DETACH_KEYS, "detach-keys", "KEYS",
	 "keys that leave a terminal (default: " KEYS_DEFAULT "; empty: none)"},
	{0},
};

const struct command cmd_attach = {
	.name = "attach",
	.operands = "ID EXEC",
	.summary = "Come back to a command in a VM: its output, its input, its end",
	.details =
		"What is kept of its output comes first. The command is then tied to hutch attach\n"
		"as to hutch exec; without --view, whoever was attached before only looks on.\n"
		"The exit status is the command's, also of one that ended meanwhile.\n",
	.opts = options,
	FAILS_ASIDE,
	.run = run,
};
