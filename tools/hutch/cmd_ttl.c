/* SPDX-License-Identifier: Apache-2.0 */
/* hutch ttl: when a VM ends by itself. */
#include <stdio.h>

#include "tools/hutch/answer.h"

static void show(const struct hutch_value *answer)
{
	char text[64];

	text_duration(text, sizeof(text), hutch_get_uint(answer, "expires_in_ms", 0));
	puts(text);
}

static int run(struct cli *cli, struct args *a)
{
	struct hutch_pair ttl = {"ttl_ms", {.type = HUTCH_NIL}};
	uint64_t ms;

	if (args_operands(a, 2, 2) < 0 || parse_duration(cli, "the time", a->operands[1], &ms) < 0)
		return a->status;
	ttl.value = hutch_uint(ms);
	return answer_print(cli, "vm.set_ttl", a->operands[0], &ttl, 1, PROMPT_MS, show);
}

const struct command cmd_ttl = {
	.name = "ttl",
	.operands = "ID TIME",
	.summary = "Set the time after which a VM ends, from now: 90, 5m, 1h, 2d",
	FAILS_PLAINLY,
	.run = run,
};
