/* SPDX-License-Identifier: Apache-2.0 */
/* hutch kill: end VMs. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/hutch/answer.h"

#define KILL_MS 60000

enum { OPT_ALL = 'a' };

static void show_count(const struct hutch_value *answer)
{
	printf("%" PRIu64 "\n", hutch_get_uint(answer, "killed", 0));
}

static int kill_all(struct cli *cli)
{
	const struct hutch_pair all = {"all", hutch_bool(true)};

	return answer_print(cli, "vm.kill", NULL, &all, 1, 0, show_count);
}

static int run(struct cli *cli, struct args *a)
{
	bool all = false;
	int id;

	while ((id = args_next(a)) > 0)
		all = true;
	if (id < 0)
		return a->status;
	if (all && a->count > 0)
		return cli_usage(cli, "--all takes no ID");
	if (!all && a->count == 0)
		return cli_usage(cli, "ID is missing");
	return all ? kill_all(cli) : answer_each(cli, "vm.kill", "id", a->operands, KILL_MS);
}

static const struct opt options[] = {
	{OPT_ALL, "all", NULL, "every VM of yours; prints how many there were"},
	{0},
};

const struct command cmd_kill = {
	.name = "kill",
	.operands = "ID...",
	.summary = "End VMs and remove all that they had",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
