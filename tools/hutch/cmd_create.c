/* SPDX-License-Identifier: Apache-2.0 */
/* hutch create: start a VM and print its id. */
#include <stdio.h>
#include <string.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/cmd_create.h"
#include "tools/hutch/json.h"

/* What the broker may take beyond its own deadline, to tell that it passed. */
#define ANSWER_MS 30000

static int meta_option(struct create_options *o, struct args *a)
{
	char *eq = strchr(a->value, '=');
	size_t i = 0;

	if (eq == NULL || eq == a->value) {
		cli_usage(a->cli, "--meta is \"%s\": K=V is wanted", a->value);
		return -1;
	}
	*eq = '\0';
	while (i < o->meta_count && strcmp(o->meta[i].key, a->value) != 0)
		i++;
	if (i == HUTCH_MAX_METADATA) {
		cli_usage(a->cli, "there are more than %u --meta", HUTCH_MAX_METADATA);
		return -1;
	}
	if (i == o->meta_count)
		o->meta_count++;
	o->meta[i] = (struct hutch_pair){a->value, hutch_text(eq + 1)};
	return 0;
}

static int ttl_option(struct create_options *o, struct args *a)
{
	if (parse_duration(a->cli, "--ttl", a->value, &o->ttl_ms) < 0)
		return -1;
	if (o->ttl_ms > 0)
		return 0;
	cli_usage(a->cli, "--ttl is 0: the VM would be gone at once");
	return -1;
}

int create_option(struct create_options *o, struct args *a, int id)
{
	int r = 0;

	switch (id) {
	case 't':
		o->template_name = a->value;
		break;
	case CREATE_NAME:
		o->name = a->value;
		break;
	case CREATE_TTL:
		r = ttl_option(o, a);
		break;
	case CREATE_TIMEOUT:
		r = parse_duration(a->cli, "the deadline", a->value, &o->timeout_ms);
		break;
	case CREATE_MEMORY:
		r = parse_number(a->cli, "--memory", a->value, 1, UINT32_MAX, &o->memory_mib);
		break;
	case CREATE_VCPUS:
		r = parse_number(a->cli, "--vcpus", a->value, 1, UINT32_MAX, &o->vcpus);
		break;
	case CREATE_DISK:
		r = parse_number(a->cli, "--disk-mib", a->value, 1, UINT32_MAX, &o->disk_mib);
		break;
	case CREATE_SNAPSHOT:
		o->snapshot = a->value;
		break;
	case CREATE_COLD:
		o->cold = true;
		break;
	case CREATE_SECRETS:
		o->secrets = true;
		break;
	case CREATE_PAUSE_AFTER:
		r = parse_duration(a->cli, "--pause-after", a->value, &o->pause_after_ms);
		break;
	case CREATE_PARK_AFTER:
		r = parse_duration(a->cli, "--park-after", a->value, &o->park_after_ms);
		break;
	case CREATE_SHARE:
		o->share = a->value;
		break;
	case CREATE_META:
		r = meta_option(o, a);
		break;
	default:
		return 0;
	}
	return r < 0 ? -1 : 1;
}

size_t create_params(const struct create_options *o, struct hutch_pair *params)
{
	size_t n = 0;

	if (o->template_name != NULL)
		params[n++] = (struct hutch_pair){"template", hutch_text(o->template_name)};
	if (o->snapshot != NULL)
		params[n++] = (struct hutch_pair){"snapshot", hutch_text(o->snapshot)};
	if (o->cold)
		params[n++] = (struct hutch_pair){"cold", hutch_bool(true)};
	if (o->secrets)
		params[n++] = (struct hutch_pair){"secrets", hutch_bool(true)};
	if (o->share != NULL)
		params[n++] = (struct hutch_pair){"share_group", hutch_text(o->share)};
	if (o->name != NULL)
		params[n++] = (struct hutch_pair){"name", hutch_text(o->name)};
	if (o->ttl_ms > 0)
		params[n++] = (struct hutch_pair){"ttl_ms", hutch_uint(o->ttl_ms)};
	if (o->timeout_ms > 0)
		params[n++] = (struct hutch_pair){"timeout_ms", hutch_uint(o->timeout_ms)};
	if (o->memory_mib > 0)
		params[n++] = (struct hutch_pair){"memory_mib", hutch_uint(o->memory_mib)};
	if (o->vcpus > 0)
		params[n++] = (struct hutch_pair){"vcpus", hutch_uint(o->vcpus)};
	if (o->disk_mib > 0)
		params[n++] = (struct hutch_pair){"disk_mib", hutch_uint(o->disk_mib)};
	if (o->meta_count > 0)
		params[n++] = (struct hutch_pair){"metadata", hutch_map(o->meta, o->meta_count)};
	return n;
}

size_t idle_params(const struct create_options *o, struct hutch_pair *params)
{
	size_t n = 0;

	if (o->pause_after_ms > 0)
		params[n++] = (struct hutch_pair){"pause_after_ms", hutch_uint(o->pause_after_ms)};
	if (o->park_after_ms > 0)
		params[n++] = (struct hutch_pair){"park_after_ms", hutch_uint(o->park_after_ms)};
	return n;
}

uint64_t create_wait_ms(const struct create_options *o)
{
	return (o->timeout_ms > 0 ? o->timeout_ms : HUTCH_DEFAULT_BOOT_TIMEOUT_MS) + ANSWER_MS;
}

static int run(struct cli *cli, struct args *a)
{
	struct create_options o = {0};
	struct hutch_pair params[CREATE_PARAMS + 1], idle[IDLE_PARAMS];
	struct hutch_doc *doc;
	size_t count, times;
	int id;

	while ((id = args_next(a)) > 0)
		if (create_option(&o, a, id) < 0)
			return a->status;
	if (id < 0)
		return a->status;
	if (a->count > 0)
		return cli_usage(cli, "there are too many arguments: %s", a->operands[0]);
	count = create_params(&o, params);
	times = idle_params(&o, idle);
	if (times > 0)
		params[count++] = (struct hutch_pair){"idle", hutch_map(idle, times)};
	doc = cli_request(cli, "vm.create", NULL, params, count, create_wait_ms(&o));
	if (doc == NULL)
		return cli->command->failed;
	if (cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(doc)));
	else
		puts(hutch_get_text(hutch_doc_root(doc), "id", ""));
	hutch_doc_free(doc);
	return cli_finish(cli, EXIT_OK);
}

static const struct opt options[] = {
	CREATE_OPTIONS,
	IDLE_OPTIONS,
	{CREATE_TIMEOUT, "timeout", "TIME", "fail unless the VM is ready after this (default: 60)"},
	{0},
};

const struct command cmd_create = {
	.name = "create",
	.operands = "",
	.summary = "Start a VM, wait until it is ready, and print its id",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
