/* SPDX-License-Identifier: Apache-2.0 */
/* hutch template snapshot: boot a template once, and keep what VMs are then restored from. */
#include <string.h>

#include "protocol/limits.h"
#include "tools/hutch/answer.h"
#include "tools/hutch/template_snapshot.h"

#define ANSWER_MS  60000
#define MAX_PARAMS 4

enum { OPT_MEMORY = OPT_LONG, OPT_VCPUS, OPT_TIMEOUT };

int template_snapshot(struct cli *cli, const char *name)
{
	const struct hutch_pair param = {"name", hutch_text(name)};
	struct hutch_call call = {.method = "template.snapshot",
				  .params = &param,
				  .param_count = 1};
	struct hutch_failure why;
	struct hutch_doc *doc;
	struct hutch *h = cli_open(cli);
	int r = 0;

	if (h == NULL)
		return -1;
	doc = hutch_request(h, &call, HUTCH_DEFAULT_BOOT_TIMEOUT_MS + ANSWER_MS, &why);
	if (doc == NULL && strcmp(why.kind, "unknown_method") != 0) {
		cli_fail(cli, &why);
		r = -1;
	}
	hutch_doc_free(doc);
	hutch_close(h);
	return r;
}

static int run(struct cli *cli, struct args *a)
{
	uint64_t memory = 0, vcpus = 0, timeout = 0;
	struct hutch_pair params[MAX_PARAMS];
	size_t n = 0;
	int id, r = 0;

	while (r == 0 && (id = args_next(a)) > 0) {
		if (id == OPT_MEMORY)
			r = parse_number(cli, "--memory", a->value, 1, UINT32_MAX, &memory);
		else if (id == OPT_VCPUS)
			r = parse_number(cli, "--vcpus", a->value, 1, UINT32_MAX, &vcpus);
		else
			r = parse_duration(cli, "the deadline", a->value, &timeout);
	}
	if (r < 0 || id < 0)
		return a->status;
	if (a->count != 1)
		return cli_usage(cli, "one NAME is wanted");
	params[n++] = (struct hutch_pair){"name", hutch_text(a->operands[0])};
	if (memory > 0)
		params[n++] = (struct hutch_pair){"memory_mib", hutch_uint(memory)};
	if (vcpus > 0)
		params[n++] = (struct hutch_pair){"vcpus", hutch_uint(vcpus)};
	if (timeout > 0)
		params[n++] = (struct hutch_pair){"timeout_ms", hutch_uint(timeout)};
	return answer_print(cli, "template.snapshot", NULL, params, n,
			    (timeout > 0 ? timeout : HUTCH_DEFAULT_BOOT_TIMEOUT_MS) + ANSWER_MS,
			    NULL);
}

static const struct opt options[] = {
	{OPT_MEMORY, "memory", "MIB", "memory of the VMs that it fits (default: the template's)"},
	{OPT_VCPUS, "vcpus", "N", "processors of these (default: the template's)"},
	{OPT_TIMEOUT, "timeout", "TIME", "fail unless it has booted after this (default: 60)"},
	{0},
};

const struct command cmd_template_snapshot = {
	.name = "template snapshot",
	.operands = "NAME",
	.summary = "Boot a template once, and keep the snapshot that its VMs are restored from",
	.details =
		"hutch template build does this by itself. Again: when the VMM or the host's kernel changed\n"
		"(hutch template ls says so), or for VMs of another size.\n",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
