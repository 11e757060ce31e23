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
#include "tools/hutch/tty.h"

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
	case EXEC_TTY:
		e->x.pty = true;
		break;
	case EXEC_DETACH_KEYS:
		e->detach_keys = a->value;
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

int exec_check(const struct exec_args *e, struct args *a)
{
	struct keys keys;

	if (e->x.detach && e->x.input)
		cli_usage(a->cli, "--detach and --stdin exclude each other");
	else if (e->x.pty && a->cli->json && !e->x.detach)
		cli_usage(a->cli, "--json and a terminal exclude each other");
	else
		return exec_detach_keys(&keys, e->detach_keys, a->cli);
	return -1;
}

int exec_detach_keys(struct keys *k, const char *text, const struct cli *cli)
{
	if (keys_parse(k, text ? text : KEYS_DEFAULT) == 0)
		return 0;
	cli_usage(cli, "--detach-keys is \"%s\": keys such as " KEYS_DEFAULT " are wanted", text);
	return -1;
}

void exec_args_free(struct exec_args *e)
{
	free(e->env);
}

/* ---- The result ---- */

static void note_end(const struct hutch_exec_result *r, uint64_t timeout_ms)
{
	if (!r->started)
		cli_note("%s", r->start_error.message[0] ? r->start_error.message
							 : "the command could not be started");
	/* The rest is no part of what the command said: only for a person who looks on. */
	if (!isatty(STDERR_FILENO))
		return;
	if (r->timed_out && timeout_ms > 0)
		cli_note("the command was ended after %g s", (double)timeout_ms / 1000);
	else if (r->timed_out)
		cli_note("the command timed out and was ended");
	if (r->oom_killed)
		cli_note("the kernel ended a process of the command: out of memory");
	if (r->stdout_truncated)
		cli_note("stdout was cut: it had %" PRIu64 " bytes", r->stdout_bytes);
	if (r->stderr_truncated)
		cli_note("stderr was cut: it had %" PRIu64 " bytes", r->stderr_bytes);
}

static json_t *result_json(const struct pump *p)
{
	json_t *j = json_from_value(hutch_doc_root(p->doc));

	json_object_set_new(j, "vm", json_from_bytes(p->vm, strlen(p->vm)));
	return j;
}

static void print_json(const struct pump *p)
{
	json_t *j = result_json(p);

	if (p->out.kind == SINK_MEMORY) {
		json_object_set_new(j, "stdout", json_from_bytes(p->out.data, p->out.len));
		json_object_set_new(j, "stderr", json_from_bytes(p->err.data, p->err.len));
	}
	json_print(stdout, j);
}

static int conclude(const struct pump *p, uint64_t timeout_ms)
{
	struct hutch_exec_result r;
	struct hutch_failure why;

	if (p->doc == NULL)
		return p->status;
	if (p->detaching && hutch_get(hutch_doc_root(p->doc), "exit_code") == NULL) {
		cli_note("detached; to come back: hutch attach %s %s", p->vm, p->id);
		return EXIT_OK;
	}
	if (hutch_exec_result_read(p->doc, &r, &why) < 0)
		return cli_fail(p->cli, &why);
	if (p->cli->json)
		print_json(p);
	else
		note_end(&r, timeout_ms);
	return cli_finish(p->cli, r.timed_out ? EXIT_TIMED_OUT : (int)r.exit_code);
}

void exec_sinks(struct pump *p)
{
	if (p->cli->json) {
		sink_to_memory(&p->out);
		sink_to_memory(&p->err);
	} else {
		sink_to_fd(&p->out, STDOUT_FILENO);
		sink_to_fd(&p->err, STDERR_FILENO);
	}
}

int exec_conclude(struct pump *p, uint64_t timeout_ms)
{
	int status = conclude(p, timeout_ms);

	hutch_doc_free(p->doc);
	p->doc = NULL;
	sink_free(&p->out);
	sink_free(&p->err);
	return status;
}

/* Chosen here, so that the exec can be signalled before anything was heard of it. */
static void choose_id(char *id, size_t size)
{
	uint64_t n[2] = {0};

	if (getrandom(n, sizeof(n), GRND_NONBLOCK) < 0)
		n[0] = (uint64_t)getpid();
	snprintf(id, size, "%016" PRIx64 "%016" PRIx64, n[0], n[1]);
}

/* Started, and left alone. */
static int run_detached(struct pump *p)
{
	struct hutch_exec_result r;
	struct hutch_failure why;

	if (p->doc == NULL)
		return p->status;
	/* The result of one that did not start is whole. */
	if (!hutch_get_bool(hutch_doc_root(p->doc), "started", true)) {
		if (hutch_exec_result_read(p->doc, &r, &why) < 0)
			return cli_fail(p->cli, &why);
		if (!p->cli->json)
			note_end(&r, 0);
		else
			json_print(stdout, result_json(p));
		return cli_finish(p->cli, (int)r.exit_code);
	}
	if (p->cli->json)
		json_print(stdout, result_json(p));
	else
		puts(hutch_get_text(hutch_doc_root(p->doc), "id", p->id));
	return cli_finish(p->cli, EXIT_OK);
}

int exec_run(struct pump *p, struct exec_args *e)
{
	int status;

	choose_id(e->id, sizeof(e->id));
	e->x.id = p->id = e->id;
	p->input = e->x.input;
	p->tty = e->x.pty;
	e->x.term = tty_term();
	exec_detach_keys(&p->keys, e->detach_keys, p->cli);
	exec_sinks(p);
	if (p->cli->json && e->x.output_limit == 0 && !e->x.detach)
		e->x.output_limit = JSON_OUTPUT_LIMIT;
	pump_run(p, &e->x);
	if (!e->x.detach)
		return exec_conclude(p, e->x.timeout_ms);
	status = run_detached(p);
	hutch_doc_free(p->doc);
	p->doc = NULL;
	return status;
}

int exec_in_vm(struct cli *cli, struct args *a, int (*parse)(struct exec_args *, struct args *))
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

/* ---- The command ---- */

/* ID and the command. -1: leave with a->status. */
static int parse(struct exec_args *e, struct args *a)
{
	int id;

	while ((id = args_next(a)) > 0) {
		if (id == 'd')
			e->x.detach = true;
		else if (exec_option(e, a, id == 't' ? EXEC_TTY : id) < 0)
			return -1;
	}
	if (id < 0 || exec_check(e, a) < 0)
		return -1;
	if (a->count == 0) {
		cli_usage(a->cli, "ID is missing");
		return -1;
	}
	return exec_command(e, a, a->operands + 1);
}

static int run(struct cli *cli, struct args *a)
{
	return exec_in_vm(cli, a, parse);
}

static const struct opt options[] = {
	{'t', "tty", NULL, "give the command a terminal; with -i it has yours"},
	{'d', "detach", NULL, "start the command, print its id, and leave it alone"},
	EXEC_OPTIONS,
	{EXEC_DETACH_KEYS, "detach-keys", "KEYS",
	 "keys that leave the terminal (default: " KEYS_DEFAULT "; empty: none)"},
	{0},
};

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
