/* SPDX-License-Identifier: Apache-2.0 */
/* hutch snapshot create, list, info, delete, verify: VMs kept on disk, which others go on from. */
#include <stdio.h>

#include "tools/hutch/answer.h"
#include "tools/hutch/json.h"
#include "tools/hutch/lines.h"

/* ---- create ---- */

static void show_name(const struct hutch_value *answer)
{
	puts(hutch_get_text(answer, "name", ""));
}

static int run_create(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"name", {.type = HUTCH_NIL}}};
	size_t n = 1;
	int id;

	while ((id = args_next(a)) > 0)
		n = 2;
	if (id < 0)
		return a->status;
	if (a->count != 2)
		return cli_usage(cli, "ID and NAME are wanted");
	params[0].value = hutch_text(a->operands[1]);
	params[1] = (struct hutch_pair){"allow_secrets", hutch_bool(true)};
	return answer_print(cli, "snapshot.create", a->operands[0], params, n, 0, show_name);
}

static const struct opt create_options[] = {
	{OPT_LONG, "allow-secrets", NULL, "also of a VM that was created with --secrets"},
	{0},
};

const struct command cmd_snapshot_create = {
	.name = "snapshot create",
	.operands = "ID NAME",
	.summary = "Keep a running VM's state under a name, and print the name",
	.details =
		"The VM goes on after a short pause. hutch create --snapshot NAME goes on from it.\n",
	.opts = create_options,
	FAILS_PLAINLY,
	.run = run_create,
};

/* ---- list ---- */

static void snapshot_row(struct table *t, const struct hutch_value *s)
{
	const struct hutch_value *users = hutch_get(s, "users");
	char text[64];

	table_cell(t, hutch_get_text(s, "name", "-"));
	table_cell(t, hutch_get_text(s, "template", "-"));
	table_number(t, hutch_get_uint(s, "memory_mib", 0));
	text_bytes(text, sizeof(text), hutch_get_uint(s, "bytes", 0));
	table_cell(t, text);
	text_bytes(text, sizeof(text), hutch_get_uint(s, "own_bytes", 0));
	table_cell(t, text);
	table_number(t, users != NULL && users->type == HUTCH_ARRAY ? users->as.array.count : 0);
	text_date(text, sizeof(text), hutch_get_uint(s, "created_ms", 0));
	table_cell(t, text);
}

static void show_list(const struct hutch_value *answer)
{
	static const char *const head[] = {"NAME", "TEMPLATE", "MIB",	 "SIZE",
					   "OWN",  "VMS",      "CREATED"};

	ANSWER_TABLE(head, hutch_get(answer, "snapshots"), snapshot_row);
}

static int run_list(struct cli *cli, struct args *a)
{
	if (args_operands(a, 0, 0) < 0)
		return a->status;
	return answer_print(cli, "snapshot.list", NULL, NULL, 0, PROMPT_MS, show_list);
}

const struct command cmd_snapshot_list = {
	.name = "snapshot list",
	.operands = "",
	.summary = "List your snapshots",
	FAILS_PLAINLY,
	.run = run_list,
};

/* ---- info, delete, verify ---- */

static int run_info(struct cli *cli, struct args *a)
{
	struct hutch_pair name = {"name", {.type = HUTCH_NIL}};

	if (args_operands(a, 1, 1) < 0)
		return a->status;
	name.value = hutch_text(a->operands[0]);
	return answer_print(cli, "snapshot.info", NULL, &name, 1, PROMPT_MS, lines_print);
}

const struct command cmd_snapshot_info = {
	.name = "snapshot info",
	.operands = "NAME",
	.summary = "Print what is known about a snapshot",
	FAILS_PLAINLY,
	.run = run_info,
};

static int run_delete(struct cli *cli, struct args *a)
{
	if (args_operands(a, 1, INT32_MAX) < 0)
		return a->status;
	return answer_each(cli, "snapshot.delete", "name", a->operands, 0);
}

const struct command cmd_snapshot_delete = {
	.name = "snapshot delete",
	.operands = "NAME...",
	.summary = "Delete snapshots that no VM goes on from",
	FAILS_PLAINLY,
	.run = run_delete,
};

static int run_verify(struct cli *cli, struct args *a)
{
	struct hutch_pair name = {"name", {.type = HUTCH_NIL}};
	struct hutch_doc *doc;
	char text[64];

	if (args_operands(a, 1, 1) < 0)
		return a->status;
	name.value = hutch_text(a->operands[0]);
	doc = cli_request(cli, "snapshot.verify", NULL, &name, 1, 0);
	if (doc == NULL)
		return cli->command->failed;
	text_bytes(text, sizeof(text), hutch_get_uint(hutch_doc_root(doc), "bytes", 0));
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		printf("%s fits here; %s read, every digest is right\n", a->operands[0], text);
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_snapshot_verify = {
	.name = "snapshot verify",
	.operands = "NAME",
	.summary = "Check that a snapshot fits here, and that its files are as they were made",
	FAILS_PLAINLY,
	.run = run_verify,
};
