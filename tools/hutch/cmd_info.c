/* SPDX-License-Identifier: Apache-2.0 */
/* hutch info: all that is known about a VM. */
#include "tools/hutch/answer.h"
#include "tools/hutch/lines.h"

static int run(struct cli *cli, struct args *a)
{
	if (args_operands(a, 1, 1) < 0)
		return a->status;
	return answer_print(cli, "vm.info", a->operands[0], NULL, 0, PROMPT_MS, lines_print);
}

const struct command cmd_info = {
	.name = "info",
	.operands = "ID",
	.summary = "Print what is known about a VM",
	FAILS_PLAINLY,
	.run = run,
};
