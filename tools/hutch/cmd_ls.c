/* SPDX-License-Identifier: Apache-2.0 */
/* hutch ls: the caller's VMs. */
#include "tools/hutch/answer.h"

static void row(struct table *t, const struct hutch_value *vm)
{
	char text[64];

	table_cell(t, hutch_get_text(vm, "id", "-"));
	table_cell(t, hutch_get_text(vm, "name", "-"));
	table_cell(t, hutch_get_text(vm, "state", "-"));
	table_cell(t, hutch_get_text(vm, "template", "-"));
	table_number(t, hutch_get_uint(vm, "memory_mib", 0));
	table_number(t, hutch_get_uint(vm, "vcpus", 0));
	text_duration(text, sizeof(text), hutch_get_uint(vm, "expires_in_ms", 0));
	table_cell(t, hutch_get(vm, "expires_in_ms") ? text : "-");
}

static void show_table(const struct hutch_value *answer)
{
	static const char *const head[] = {"ID",  "NAME",  "STATE",  "TEMPLATE",
					   "MIB", "VCPUS", "EXPIRES"};

	ANSWER_TABLE(head, hutch_get(answer, "vms"), row);
}

static int run(struct cli *cli, struct args *a)
{
	bool quiet = false;
	int id;

	while ((id = args_next(a)) > 0)
		quiet = true;
	if (id < 0)
		return a->status;
	if (a->count > 0)
		return cli_usage(cli, "there are too many arguments: %s", a->operands[0]);
	return answer_print(cli, "vm.list", NULL, NULL, 0, PROMPT_MS,
			    quiet ? answer_vm_ids : show_table);
}

static const struct opt options[] = {
	{'q', "quiet", NULL, "print the ids alone"},
	{0},
};

const struct command cmd_ls = {
	.name = "ls",
	.operands = "",
	.summary = "List your VMs",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
