/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/hutch/answer.h"

#include <stdio.h>
#include <string.h>

#include "tools/hutch/json.h"

int answer_print(struct cli *cli, const char *method, const char *vm,
		 const struct hutch_pair *params, size_t count, uint64_t timeout_ms,
		 void (*show)(const struct hutch_value *answer))
{
	struct hutch_doc *doc = cli_request(cli, method, vm, params, count, timeout_ms);

	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else if (show != NULL)
		show(hutch_doc_root(doc));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

int answer_each(struct cli *cli, const char *method, const char *by, char *const *names,
		uint64_t timeout_ms)
{
	bool is_vm = strcmp(by, "id") == 0;
	int status = EXIT_OK;

	for (; *names != NULL; names++) {
		const struct hutch_pair param = {by, hutch_text(*names)};
		struct hutch_doc *doc = cli_request(cli, method, is_vm ? *names : NULL,
						    is_vm ? NULL : &param, !is_vm, timeout_ms);

		if (doc == NULL)
			status = cli->command->failed;
		else if (cli->json)
			json_print(stdout,
				   json_pack("{s:o}", by, json_from_bytes(*names, strlen(*names))));
		hutch_doc_free(doc);
	}
	return cli_finish(cli, status);
}

static size_t items(const struct hutch_value *list)
{
	return list != NULL && list->type == HUTCH_ARRAY ? list->as.array.count : 0;
}

void answer_table(const char *const *head, unsigned columns, const struct hutch_value *list,
		  void (*row)(struct table *t, const struct hutch_value *item))
{
	struct table t = {.columns = columns};

	for (unsigned i = 0; i < columns; i++)
		table_cell(&t, head[i]);
	for (size_t i = 0; i < items(list); i++)
		row(&t, &list->as.array.items[i]);
	table_print(&t);
}

void answer_ids(const struct hutch_value *list)
{
	for (size_t i = 0; i < items(list); i++)
		puts(hutch_get_text(&list->as.array.items[i], "id", ""));
}

void answer_vm_ids(const struct hutch_value *answer)
{
	answer_ids(hutch_get(answer, "vms"));
}
