/* SPDX-License-Identifier: Apache-2.0 */
/* hutch kill: end VMs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"

#define KILL_MS 60000

enum { OPT_ALL = 'a' };

static int kill_all(struct cli *cli)
{
	const struct hutch_pair all = {"all", hutch_bool(true)};
	struct hutch_doc *doc = cli_request(cli, "vm.kill", NULL, &all, 1, 0);

	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		printf("%" PRIu64 "\n", hutch_get_uint(hutch_doc_root(doc), "killed", 0));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

/* All that are named, also after one that failed. */
static int kill_each(struct cli *cli, char **ids)
{
	int status = EXIT_OK;

	for (; *ids != NULL; ids++) {
		struct hutch_doc *doc = cli_request(cli, "vm.kill", *ids, NULL, 0, KILL_MS);

		if (doc == NULL)
			status = cli->command->failed;
		else if (cli->json)
			json_print(stdout,
				   json_pack("{s:o}", "id", json_from_bytes(*ids, strlen(*ids))));
		hutch_doc_free(doc);
	}
	return cli_finish(cli, status);
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
	return all ? kill_all(cli) : kill_each(cli, a->operands);
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
