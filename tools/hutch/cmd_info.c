/* SPDX-License-Identifier: Apache-2.0 */
/* hutch info: all that is known about a VM. */
#include <stdio.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/lines.h"

static int run(struct cli *cli, struct args *a)
{
	struct hutch_doc *doc;

	if (args_operands(a, 1, 1) < 0)
		return a->status;
	doc = cli_request(cli, "vm.info", a->operands[0], NULL, 0, PROMPT_MS);
	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		lines_print(hutch_doc_root(doc));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_info = {
	.name = "info",
	.operands = "ID",
	.summary = "Print what is known about a VM",
	FAILS_PLAINLY,
	.run = run,
};
