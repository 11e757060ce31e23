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
	.details =
		"Limits are the configuration's (hutchd(8)). What is over one of yours is an error of kind\n"
		"'quota', what is over one of all is 'busy', and may be tried again.\n"
		"Calls are those that are being relayed. A detached command is none once it was started: how\n"
		"many of those run only their guest could say, whose memory and processes are what bounds them.\n"
		"A snapshot counts with all of its files; those that several share count once.\n",
	FAILS_PLAINLY,
	.run = run,
};
