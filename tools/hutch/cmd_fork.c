/* SPDX-License-Identifier: Apache-2.0 */
/* hutch fork: children of a running VM. */
#include "protocol/limits.h"
#include "tools/hutch/answer.h"

/* What the broker may take beyond its own deadline, to tell that it passed. */
#define ANSWER_MS  30000
#define MAX_PARAMS 5

enum { OPT_NAME = OPT_LONG, OPT_TTL, OPT_TIMEOUT, OPT_SECRETS };

struct fork_options {
	const char *name;
	uint64_t count, ttl_ms, timeout_ms; /* 0: not given */
	bool allow_secrets;
};

static int take_option(struct fork_options *o, struct args *a, int id)
{
	switch (id) {
	case 'n':
		return parse_number(a->cli, "--count", a->value, 1, UINT32_MAX, &o->count);
	case OPT_NAME:
		o->name = a->value;
		return 0;
	case OPT_TTL:
		return parse_duration(a->cli, "--ttl", a->value, &o->ttl_ms);
	case OPT_TIMEOUT:
		return parse_duration(a->cli, "the deadline", a->value, &o->timeout_ms);
	default:
		o->allow_secrets = true;
		return 0;
	}
}

static size_t fill(const struct fork_options *o, struct hutch_pair *params)
{
	size_t n = 0;

	if (o->count > 0)
		params[n++] = (struct hutch_pair){"count", hutch_uint(o->count)};
	if (o->name != NULL)
		params[n++] = (struct hutch_pair){"name", hutch_text(o->name)};
	if (o->ttl_ms > 0)
		params[n++] = (struct hutch_pair){"ttl_ms", hutch_uint(o->ttl_ms)};
	if (o->timeout_ms > 0)
		params[n++] = (struct hutch_pair){"timeout_ms", hutch_uint(o->timeout_ms)};
	if (o->allow_secrets)
		params[n++] = (struct hutch_pair){"allow_secrets", hutch_bool(true)};
	return n;
}

static int run(struct cli *cli, struct args *a)
{
	struct hutch_pair params[MAX_PARAMS];
	struct fork_options o = {0};
	uint64_t wait_ms;
	int id;

	while ((id = args_next(a)) > 0)
		if (take_option(&o, a, id) < 0)
			return a->status;
	if (id < 0)
		return a->status;
	if (a->count != 1)
		return cli_usage(cli, "one ID is wanted");
	wait_ms = (o.timeout_ms > 0 ? o.timeout_ms : HUTCH_DEFAULT_BOOT_TIMEOUT_MS) + ANSWER_MS;
	return answer_print(cli, "vm.fork", a->operands[0], params, fill(&o, params), wait_ms,
			    answer_vm_ids);
}

static const struct opt options[] = {
	{'n', "count", "N", "how many, at most 64 (default: 1)"},
	{OPT_NAME, "name", "NAME", "the child's name; of several: NAME-1, NAME-2, ..."},
	{OPT_TTL, "ttl", "TIME", "the children end after this (default: as the VM)"},
	{OPT_TIMEOUT, "timeout", "TIME", "fail unless all are ready after this (default: 60)"},
	{OPT_SECRETS, "allow-secrets", NULL, "also of a VM that was created with --secrets"},
	{0},
};

const struct command cmd_fork = {
	.name = "fork",
	.operands = "ID",
	.summary = "Branch a running VM, and print the children's ids, one a line",
	.details =
		"Memory, processes and open files go on in each child from one instant; the VM itself\n"
		"goes on after a short pause, and its connections live. A child's are closed; its\n"
		"commands live on, and can be attached by id. Each child has a hostname, machine id and\n"
		"random numbers of its own. All are ready, or there are none.\n",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
