/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pool set, list: VMs that wait to be taken. */
#include <stdio.h>

#include "protocol/limits.h"
#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

static int run_set(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"template", {.type = HUTCH_NIL}}, {"size", hutch_uint(0)}};
	struct hutch_doc *doc;
	uint64_t size;

	if (args_operands(a, 2, 2) < 0 ||
	    parse_number(cli, "the size", a->operands[1], 0, UINT32_MAX, &size) < 0)
		return a->status;
	params[0].value = hutch_text(a->operands[0]);
	params[1].value = hutch_uint(size);
	doc = cli_request(cli, "pool.set", NULL, params, 2, PROMPT_MS);
	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_pool_set = {
	.name = "pool set",
	.operands = "TEMPLATE SIZE",
	.summary = "Keep that many VMs of a template ready to be taken by create; 0: none",
	FAILS_PLAINLY,
	.run = run_set,
};

static void print_pools(const struct hutch_value *list)
{
	static const char *const head[] = {"TEMPLATE", "SIZE",	 "READY",  "STARTING",
					   "TAKEN",    "MISSED", "FAILED", "LAST ERROR"};
	struct table t = {.columns = sizeof(head) / sizeof(head[0])};

	for (unsigned i = 0; i < t.columns; i++)
		table_cell(&t, head[i]);
	for (size_t i = 0; list != NULL && list->type == HUTCH_ARRAY && i < list->as.array.count;
	     i++) {
		const struct hutch_value *pool = &list->as.array.items[i];

		table_cell(&t, hutch_get_text(pool, "template", "-"));
		table_number(&t, hutch_get_uint(pool, "size", 0));
		table_number(&t, hutch_get_uint(pool, "ready", 0));
		table_number(&t, hutch_get_uint(pool, "starting", 0));
		table_number(&t, hutch_get_uint(pool, "taken", 0));
		table_number(&t, hutch_get_uint(pool, "missed", 0));
		table_number(&t, hutch_get_uint(pool, "failed", 0));
		table_cell(&t, hutch_get_text(pool, "last_error", "-"));
	}
	table_print(&t);
}

static int run_list(struct cli *cli, struct args *a)
{
	struct hutch_doc *doc;

	if (args_operands(a, 0, 0) < 0)
		return a->status;
	doc = cli_request(cli, "pool.list", NULL, NULL, 0, PROMPT_MS);
	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		print_pools(hutch_get(hutch_doc_root(doc), "pools"));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_pool_list = {
	.name = "pool list",
	.operands = "",
	.summary = "List the pools: VMs ready, taken, and creates that found none (missed)",
	FAILS_PLAINLY,
	.run = run_list,
};
