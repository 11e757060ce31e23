/* SPDX-License-Identifier: Apache-2.0 */
/* hutch ls: the caller's VMs. */
#include <stdio.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

static int print_table(const struct hutch_value *vms)
{
	static const char *const head[] = {"ID",  "NAME",  "STATE",  "TEMPLATE",
					   "MIB", "VCPUS", "EXPIRES"};
	struct table t = {.columns = sizeof(head) / sizeof(head[0])};
	char text[64];

	for (unsigned i = 0; i < t.columns; i++)
		table_cell(&t, head[i]);
	for (size_t i = 0; vms != NULL && vms->type == HUTCH_ARRAY && i < vms->as.array.count;
	     i++) {
		const struct hutch_value *vm = &vms->as.array.items[i];

		table_cell(&t, hutch_get_text(vm, "id", "-"));
		table_cell(&t, hutch_get_text(vm, "name", "-"));
		table_cell(&t, hutch_get_text(vm, "state", "-"));
		table_cell(&t, hutch_get_text(vm, "template", "-"));
		table_number(&t, hutch_get_uint(vm, "memory_mib", 0));
		table_number(&t, hutch_get_uint(vm, "vcpus", 0));
		text_duration(text, sizeof(text), hutch_get_uint(vm, "expires_in_ms", 0));
		table_cell(&t, hutch_get(vm, "expires_in_ms") ? text : "-");
	}
	return table_print(&t);
}

static void print_ids(const struct hutch_value *vms)
{
	for (size_t i = 0; vms != NULL && vms->type == HUTCH_ARRAY && i < vms->as.array.count; i++)
		puts(hutch_get_text(&vms->as.array.items[i], "id", ""));
}

static int run(struct cli *cli, struct args *a)
{
	struct hutch_doc *doc;
	bool quiet = false;
	int id;

	while ((id = args_next(a)) > 0)
		quiet = true;
	if (id < 0)
		return a->status;
	if (a->count > 0)
		return cli_usage(cli, "there are too many arguments: %s", a->operands[0]);
	doc = cli_request(cli, "vm.list", NULL, NULL, 0, PROMPT_MS);
	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else if (quiet)
		print_ids(hutch_get(hutch_doc_root(doc), "vms"));
	else
		print_table(hutch_get(hutch_doc_root(doc), "vms"));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
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
