/* SPDX-License-Identifier: Apache-2.0 */
/* hutch exec: run a command in a VM. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/cmd_exec.h"
#include "tools/hutch/json.h"
#include "tools/hutch/signals.h"

/* --json holds the output in memory until the end. */
#define JSON_OUTPUT_LIMIT (64ull << 20)

/* ---- Options ---- */

static int env_option(struct exec_args *e, struct args *a)
{
	char *eq = strchr(a->value, '=');
	const char *value = eq ? eq + 1 : getenv(a->value);
	size_t i = 0;

	if (eq == a->value || *a->value == '\0') {
		cli_usage(a->cli, "--env is \"%s\": K=V is wanted", a->value);
		return -1;
	}
	if (value == NULL)
		return 0; /* not set here, so not there either */
	if (eq != NULL)
		*eq = '\0';
	while (i < e->env_count && strcmp(e->env[i], a->value) != 0)
		i += 2;
	if (i == e->env_count) {
		const char **p = realloc(e->env, (i + 3) * sizeof(*p));

		if (p == NULL) {
			cli_usage(a->cli, "no memory for the environment");
			return -1;
		}
		e->env = p;
		e->env_count += 2;
		e->env[i + 2] = NULL;
	}
	e->env[i] = a->value;
	e->env[i + 1] = value;
	e->x.env = e->env;
	return 0;
}

int exec_option(struct exec_args *e, struct args *a, int id)
{
	int r = 0;

	switch (id) {
	case 'i':
		e->x.input = true;
		break;
	case 'e':
		r = env_option(e, a);
		break;
	case 'w':
		e->x.cwd = a->value;
		break;
	case 'u':
		e->x.user = a->value;
		break;
	case EXEC_TIMEOUT:
		r = parse_duration(a->cli, "--timeout", a->value, &e->x.timeout_ms);
		break;
	case EXEC_OUTPUT_LIMIT:
		r = parse_size(a->cli, "--output-limit", a->value, &e->x.output_limit);
		break;
	case EXEC_SHELL:
		e->x.shell = a->value;
		break;
	default:
		return 0;
	}
	return r < 0 ? -1 : 1;
}

int exec_command(struct exec_args *e, struct args *a, char **words)
{
	bool given = words[0] != NULL, shell = e->x.shell != NULL;

	if (given && shell)
		cli_usage(a->cli, "--shell takes no command besides its text: %s", words[0]);
	if (!given && !shell)
		cli_usage(a->cli, "CMD is missing");
	if (given && !shell)
		e->x.argv = (const char *const *)words;
	return given == shell ? -1 : 0;
}

void exec_args_free(struct exec_args *e)
{
	free(e->env);
}

/* ---- The result ---- */

static void note_end(const struct hutch_exec_result *r, const struct exec_args *e)
{
	if (!r->started)
		cli_note("%s", r->start_error.message[0] ? r->start_error.message
							 : "the command could not be started");
	/* The rest is no part of what the command said: only for a person who looks on. */
	if (!isatty(STDERR_FILENO))
		return;
	if (r->timed_out)
		cli_note("the command was ended after %g s", (double)e->x.timeout_ms / 1000);
	if (r->oom_killed)
		cli_note("the kernel ended a process of the command: out of memory");
	if (r->stdout_truncated)
		cli_note("stdout was cut: it had %" PRIu64 " bytes", r->stdout_bytes);
	if (r->stderr_truncated)
		cli_note("stderr was cut: it had %" PRIu64 " bytes", r->stderr_bytes);
}

static void print_json(const struct pump *p)
{
	json_t *j = json_from_value(hutch_doc_root(p->doc));

	json_object_set_new(j, "stdout", json_from_bytes(p->out.data, p->out.len));
	json_object_set_new(j, "stderr", json_from_bytes(p->err.data, p->err.len));
	json_object_set_new(j, "vm", json_from_bytes(p->vm, strlen(p->vm)));
	json_print(stdout, j);
}

static int conclude(const struct pump *p, const struct exec_args *e)
{
	struct hutch_exec_result r;
	struct hutch_failure why;

	if (p->doc == NULL)
		return p->status;
	if (hutch_exec_result_read(p->doc, &r, &why) < 0)
		return cli_fail(p->cli, &why);
	if (p->cli->json)
		print_json(p);
	else
		note_end(&r, e);
	return cli_finish(p->cli, r.timed_out ? EXIT_TIMED_OUT : (int)r.exit_code);
}

/* Chosen here, so that the exec can be signalled before anything was heard of it. */
static void choose_id(char *id, size_t size)
{
	uint64_t n[2] = {0};

	if (getrandom(n, sizeof(n), GRND_NONBLOCK) < 0)
		n[0] = (uint64_t)getpid();
	snprintf(id, size, "%016" PRIx64 "%016" PRIx64, n[0], n[1]);
}

int exec_run(struct pump *p, struct exec_args *e)
{
	int status;

	choose_id(e->id, sizeof(e->id));
	e->x.id = p->id = e->id;
	p->input = e->x.input;
	if (p->cli->json) {
		sink_to_memory(&p->out);
		sink_to_memory(&p->err);
		if (e->x.output_limit == 0)
			e->x.output_limit = JSON_OUTPUT_LIMIT;
	} else {
		sink_to_fd(&p->out, STDOUT_FILENO);
		sink_to_fd(&p->err, STDERR_FILENO);
	}
	pump_run(p, &e->x);
	status = conclude(p, e);
	hutch_doc_free(p->doc);
	p->doc = NULL;
	sink_free(&p->out);
	sink_free(&p->err);
	return status;
}

/* ---- The command ---- */

/* ID and the command. -1: leave with a->status. */
static int parse(struct exec_args *e, struct args *a)
{
	int id;

	while ((id = args_next(a)) > 0)
		if (exec_option(e, a, id) < 0)
			return -1;
	if (id < 0)
		return -1;
	if (a->count == 0) {
		cli_usage(a->cli, "ID is missing");
		return -1;
	}
	return exec_command(e, a, a->operands + 1);
}

static int run(struct cli *cli, struct args *a)
{
	struct exec_args e = {0};
	struct pump p = {.cli = cli};
	int status;

	if (parse(&e, a) == 0) {
		signals_hold();
		p.h = cli_open(cli);
		p.vm = a->operands[0];
		status = p.h != NULL ? exec_run(&p, &e) : cli->command->failed;
	} else {
		status = a->status;
	}
	hutch_close(p.h);
	exec_args_free(&e);
	return status;
}

static const struct opt options[] = {EXEC_OPTIONS, {0}};

const struct command cmd_exec = {
	.name = "exec",
	.operands = "ID [--] CMD [ARG]...",
	.summary = "Run a command in a VM",
	.details = EXEC_DETAILS,
	.opts = options,
	.literal = 2,
	FAILS_ASIDE,
	.run = run,
};
