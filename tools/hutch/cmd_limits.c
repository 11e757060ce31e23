/* SPDX-License-Identifier: Apache-2.0 */
/* hutch limits: what the broker lets one user and all have, and what is in use. */
#include "tools/hutch/answer.h"

static void row(struct table *t, const struct hutch_value *limit)
{
	uint64_t value = hutch_get_uint(limit, "value", 0);

	table_cell(t, hutch_get_text(limit, "name", "-"));
	table_cell(t, hutch_get_text(limit, "scope", "-"));
	if (value)
		table_number(t, value);
	else
		table_cell(t, "none");
	if (hutch_get(limit, "used"))
		table_number(t, hutch_get_uint(limit, "used", 0));
	else
		table_cell(t, "-");
	table_cell(t, hutch_get_text(limit, "what", "-"));
}

static void show(const struct hutch_value *answer)
{
	static const char *const head[] = {"LIMIT", "OF", "VALUE", "USED", "WHAT"};

	ANSWER_TABLE(head, hutch_get(answer, "limits"), row);
}

static int run(struct cli *cli, struct args *a)
{
	if (args_operands(a, 0, 0) < 0)
		return a->status;
	return answer_print(cli, "broker.limits", NULL, NULL, 0, PROMPT_MS, show);
}

const struct command cmd_limits = {
	.name = "limits",
	.operands = "",
	.summary = "Show what you and all may have",
	FAILS_PLAINLY,
	.run = run,
};
