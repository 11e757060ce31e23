/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pool set, list: VMs that wait to be taken. */
#include "protocol/limits.h"
#include "tools/hutch/answer.h"

static int run_set(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"template", {.type = HUTCH_NIL}}, {"size", hutch_uint(0)}};
	uint64_t size;

	if (args_operands(a, 2, 2) < 0 ||
	    parse_number(cli, "the size", a->operands[1], 0, UINT32_MAX, &size) < 0)
		return a->status;
	params[0].value = hutch_text(a->operands[0]);
	params[1].value = hutch_uint(size);
	return answer_print(cli, "pool.set", NULL, params, 2, PROMPT_MS, NULL);
}

const struct command cmd_pool_set = {
	.name = "pool set",
	.operands = "TEMPLATE SIZE",
	.summary = "Keep that many VMs of a template ready to be taken by create; 0: none",
	FAILS_PLAINLY,
	.run = run_set,
};

static void pool_row(struct table *t, const struct hutch_value *pool)
{
	table_cell(t, hutch_get_text(pool, "template", "-"));
	table_number(t, hutch_get_uint(pool, "size", 0));
	table_number(t, hutch_get_uint(pool, "ready", 0));
	table_number(t, hutch_get_uint(pool, "starting", 0));
	table_number(t, hutch_get_uint(pool, "taken", 0));
	table_number(t, hutch_get_uint(pool, "missed", 0));
	table_number(t, hutch_get_uint(pool, "failed", 0));
	table_cell(t, hutch_get_text(pool, "last_error", "-"));
}

static void show_pools(const struct hutch_value *answer)
{
	static const char *const head[] = {"TEMPLATE", "SIZE",	 "READY",  "STARTING",
					   "TAKEN",    "MISSED", "FAILED", "LAST ERROR"};

	ANSWER_TABLE(head, hutch_get(answer, "pools"), pool_row);
}

static int run_list(struct cli *cli, struct args *a)
{
	if (args_operands(a, 0, 0) < 0)
		return a->status;
	return answer_print(cli, "pool.list", NULL, NULL, 0, PROMPT_MS, show_pools);
}

const struct command cmd_pool_list = {
	.name = "pool list",
	.operands = "",
	.summary = "List the pools: VMs ready, taken, and creates that found none (missed)",
	FAILS_PLAINLY,
	.run = run_list,
};
