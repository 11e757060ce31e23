/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pause, hutch resume, hutch park: a VM stands still, goes on, or is on the disk; hutch idle: when by itself. */
#include "tools/hutch/answer.h"
#include "tools/hutch/cmd_create.h"

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
	.summary = "Let paused and parked VMs go on",
	FAILS_PLAINLY,
	.run = run_resume,
};

/* Its memory is written to a disk, which may be slow. */
static int run_park(struct cli *cli, struct args *a)
{
	if (args_operands(a, 1, INT32_MAX) < 0)
		return a->status;
	return answer_each(cli, "vm.park", "id", a->operands, 0);
}

const struct command cmd_park = {
	.name = "park",
	.operands = "ID...",
	.summary = "Write VMs to the disk and free their memory; the next call wakes each",
	FAILS_PLAINLY,
	.run = run_park,
};

static int run_idle(struct cli *cli, struct args *a)
{
	struct hutch_pair params[IDLE_PARAMS];
	struct create_options o = {0};
	int id;

	while ((id = args_next(a)) > 0)
		if (create_option(&o, a, id) < 0)
			return a->status;
	if (id < 0 || args_operands(a, 1, 1) < 0)
		return a->status;
	return answer_print(cli, "vm.set_idle", a->operands[0], params, idle_params(&o, params),
			    PROMPT_MS, NULL);
}

static const struct opt idle_options[] = {
	IDLE_OPTIONS,
	{0},
};

const struct command cmd_idle = {
	.name = "idle",
	.operands = "ID",
	.summary = "Set what becomes of a VM that nobody uses; without options: nothing",
	.opts = idle_options,
	FAILS_PLAINLY,
	.run = run_idle,
};
