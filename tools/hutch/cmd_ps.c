/* SPDX-License-Identifier: Apache-2.0 */
/* hutch ps: the commands of a VM. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/hutch/answer.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

#define COMMAND_SIZE 256

static void command_text(char *out, size_t size, const struct hutch_value *argv)
{
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; argv != NULL && argv->type == HUTCH_ARRAY && i < argv->as.array.count;
	     i++) {
		const struct hutch_value *word = &argv->as.array.items[i];

		if (word->type != HUTCH_TEXT || len >= size)
			break;
		len += (size_t)snprintf(out + len, size - len, "%s%s", i ? " " : "",
					word->as.text.data);
	}
}

static void state_text(char *out, size_t size, const struct hutch_value *e)
{
	if (hutch_get(e, "exit_code") != NULL)
		snprintf(out, size, "ended %" PRIu64, hutch_get_uint(e, "exit_code", 0));
	else
		snprintf(out, size, "%s", hutch_get_text(e, "state", "-"));
}

static void row(struct table *t, const struct hutch_value *e)
{
	char text[COMMAND_SIZE];

	table_cell(t, hutch_get_text(e, "id", "-"));
	table_number(t, hutch_get_uint(e, "pid", 0));
	state_text(text, sizeof(text), e);
	table_cell(t, text);
	text_duration(text, sizeof(text), hutch_get_uint(e, "started_ms_ago", 0));
	table_cell(t, text);
	table_cell(t, hutch_get_bool(e, "pty", false) ? "yes" : "no");
	table_number(t, hutch_get_uint(e, "attached", 0));
	command_text(text, sizeof(text), hutch_get(e, "argv"));
	table_cell(t, text);
}

static void show_table(const struct hutch_value *answer)
{
	static const char *const head[] = {"EXEC", "PID",      "STATE",	 "AGE",
					   "TTY",  "ATTACHED", "COMMAND"};

	ANSWER_TABLE(head, hutch_get(answer, "execs"), row);
}

static void show_ids(const struct hutch_value *answer)
{
	answer_ids(hutch_get(answer, "execs"));
}

static int run(struct cli *cli, struct args *a)
{
	bool quiet = false;
	int id;

	while ((id = args_next(a)) > 0)
		quiet = true;
	if (id < 0)
		return a->status;
	if (a->count != 1)
		return cli_usage(cli, "ID is wanted, and nothing else");
	return answer_print(cli, "exec.list", a->operands[0], NULL, 0, PROMPT_MS,
			    quiet ? show_ids : show_table);
}

static const struct opt options[] = {
	{'q', "quiet", NULL, "print the ids alone"},
	{0},
};

const struct command cmd_ps = {
	.name = "ps",
	.operands = "ID",
	.summary = "List the commands of a VM that run, or ended and were not collected yet",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
