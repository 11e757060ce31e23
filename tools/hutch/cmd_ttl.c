/* SPDX-License-Identifier: Apache-2.0 */
/* hutch ttl: when a VM ends by itself. */
#include <stdio.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

static int run(struct cli *cli, struct args *a)
{
	struct hutch_pair ttl = {"ttl_ms", {.type = HUTCH_NIL}};
	struct hutch_doc *doc;
	char text[64];
	uint64_t ms;

	if (args_operands(a, 2, 2) < 0 || parse_duration(cli, "the time", a->operands[1], &ms) < 0)
		return a->status;
	ttl.value = hutch_uint(ms);
	doc = cli_request(cli, "vm.set_ttl", a->operands[0], &ttl, 1, PROMPT_MS);
	if (doc == NULL)
		return cli->command->failed;
	text_duration(text, sizeof(text), hutch_get_uint(hutch_doc_root(doc), "expires_in_ms", 0));
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		puts(text);
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_ttl = {
	.name = "ttl",
	.operands = "ID TIME",
	.summary = "Set the time after which a VM ends, from now: 90, 5m, 1h, 2d",
	FAILS_PLAINLY,
	.run = run,
};
