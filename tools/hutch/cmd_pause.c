/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pause, hutch resume: a VM stands still, and goes on. */
#include <stdio.h>
#include <string.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"

#define PAUSE_MS 60000

/* All that are named, also after one that failed. */
static int each(struct cli *cli, struct args *a, const char *method)
{
	int status = EXIT_OK;

	if (args_operands(a, 1, INT32_MAX) < 0)
		return a->status;
	for (char **vm = a->operands; *vm != NULL; vm++) {
		struct hutch_doc *doc = cli_request(cli, method, *vm, NULL, 0, PAUSE_MS);

		if (doc == NULL)
			status = cli->command->failed;
		else if (cli->json)
			json_print(stdout,
				   json_pack("{s:o}", "id", json_from_bytes(*vm, strlen(*vm))));
		hutch_doc_free(doc);
	}
	return cli_finish(cli, status);
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
