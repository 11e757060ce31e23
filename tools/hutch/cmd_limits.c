/* SPDX-License-Identifier: Apache-2.0 */
/* hutch limits: what the broker lets one user and all have, and what is in use. */
#include <stdio.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

static int print_table(const struct hutch_value *limits)
{
	static const char *const head[] = {"LIMIT", "OF", "VALUE", "USED", "WHAT"};
	struct table t = {.columns = sizeof(head) / sizeof(head[0])};
	size_t count = limits != NULL && limits->type == HUTCH_ARRAY ? limits->as.array.count : 0;

	for (unsigned i = 0; i < t.columns; i++)
		table_cell(&t, head[i]);
	for (size_t i = 0; i < count; i++) {
		const struct hutch_value *row = &limits->as.array.items[i];
		uint64_t value = hutch_get_uint(row, "value", 0);

		table_cell(&t, hutch_get_text(row, "name", "-"));
		table_cell(&t, hutch_get_text(row, "scope", "-"));
		if (value)
			table_number(&t, value);
		else
			table_cell(&t, "none");
		if (hutch_get(row, "used"))
			table_number(&t, hutch_get_uint(row, "used", 0));
		else
			table_cell(&t, "-");
		table_cell(&t, hutch_get_text(row, "what", "-"));
	}
	return table_print(&t);
}

static int run(struct cli *cli, struct args *a)
{
	struct hutch_doc *doc;
	int id = args_next(a);

	if (id != 0)
		return a->status;
	if (a->count > 0)
		return cli_usage(cli, "there are too many arguments: %s", a->operands[0]);
	doc = cli_request(cli, "broker.limits", NULL, NULL, 0, PROMPT_MS);
	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		print_table(hutch_get(hutch_doc_root(doc), "limits"));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

static const struct opt options[] = {{0}};

const struct command cmd_limits = {
	.name = "limits",
	.operands = "",
	.summary = "Show what you and all may have",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
