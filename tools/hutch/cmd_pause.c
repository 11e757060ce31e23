/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pause, hutch resume: a VM stands still, and goes on. */
#include "tools/hutch/answer.h"

#define PAUSE_MS 60000

static int each(struct cli *cli, struct args *a, const char *method)
{
	if (args_operands(a, 1, INT32_MAX) < 0)
		return a->status;
	return answer_each(cli, method, "id", a->operands, PAUSE_MS);
}

static int run_pause(struct cli *cli, struct args *a)
{
	return each(cli, a, "vm.pause");
}

const struct command cmd_pause = {
	.name = "pause",
	.operands = "ID...",
	.summary = "Let VMs stand still; their memory is kept, and their time runs on",
	FAILS_PLAINLY,
	.run = run_pause,
};

static int run_resume(struct cli *cli, struct args *a)
{
	return each(cli, a, "vm.resume");
}

const struct command cmd_resume = {
	.name = "resume",
	.operands = "ID...",
	.summary = "Let paused VMs go on",
	FAILS_PLAINLY,
	.run = run_resume,
};
