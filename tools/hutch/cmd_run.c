/* SPDX-License-Identifier: Apache-2.0 */
/* hutch run: a VM for one command. */
#include <stdio.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/cmd_create.h"
#include "tools/hutch/cmd_exec.h"
#include "tools/hutch/signals.h"

#define KILL_MS 30000

/* Over the connection at hand where it is still good. Signals wait until it is done. */
static void kill_vm(struct cli *cli, struct hutch *h, const char *vm)
{
	struct hutch_call call = {.method = "vm.kill", .vm = vm};
	struct hutch *own = NULL;
	struct hutch_failure why;
	struct hutch_doc *doc;

	if (h == NULL || !hutch_alive(h))
		h = own = cli_open(cli);
	if (h == NULL)
		return;
	doc = hutch_request(h, &call, KILL_MS, &why);
	if (doc == NULL)
		cli_note("VM %s was not ended: %s", vm, why.message);
	hutch_doc_free(doc);
	hutch_close(own);
}

static int run_in_new_vm(struct cli *cli, const struct create_options *o, struct exec_args *e)
{
	struct hutch_pair params[CREATE_PARAMS];
	struct hutch_call create = {.method = "vm.create", .params = params};
	struct pump p = {.cli = cli, .h = cli_open(cli)};
	struct hutch_doc *vm;
	int status = cli->command->failed;

	if (p.h == NULL)
		return status;
	create.param_count = create_params(o, params);
	/* No key: the broker ends a VM whose creator left before it was ready. */
	vm = pump_request(cli, p.h, &create, create_wait_ms(o), &status);
	if (vm != NULL) {
		p.vm = hutch_get_text(hutch_doc_root(vm), "id", "");
		status = exec_run(&p, e);
		kill_vm(cli, p.h, p.vm);
	}
	hutch_close(p.h);
	hutch_doc_free(vm);
	return status;
}

static int parse(struct create_options *o, struct exec_args *e, struct args *a)
{
	int id, r;

	while ((id = args_next(a)) > 0) {
		r = exec_option(e, a, id);
		if (r == 0)
			r = create_option(o, a, id);
		if (r < 0)
			return -1;
	}
	if (id < 0 || exec_check(e, a) < 0)
		return -1;
	return exec_command(e, a, a->operands);
}

static int run(struct cli *cli, struct args *a)
{
	struct create_options o = {0};
	struct exec_args e = {.detach_keys = ""}; /* the VM would end with us */
	int status;

	if (parse(&o, &e, a) == 0) {
		signals_hold();
		status = run_in_new_vm(cli, &o, &e);
	} else {
		status = a->status;
	}
	exec_args_free(&e);
	return status;
}

static const struct opt options[] = {
	{EXEC_TTY, "tty", NULL, "give the command a terminal; with -i it has yours"},
	EXEC_OPTIONS,
	CREATE_OPTIONS,
	{CREATE_TIMEOUT, "boot-timeout", "TIME",
	 "fail unless the VM is ready after this (default: 60)"},
	{0},
};

const struct command cmd_run = {
	.name = "run",
	.operands = "[--] CMD [ARG]...",
	.summary = "Run a command in a new VM, and throw the VM away",
	.details = EXEC_DETAILS,
	.opts = options,
	.literal = 1,
	FAILS_ASIDE,
	.run = run,
};
