/* SPDX-License-Identifier: Apache-2.0 */
/* hutch: the command line. Finds the command, and gives it a broker to talk to. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol/limits.h"
#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"

const struct command *const commands[] = {
	&cmd_create,
	&cmd_shell,
	&cmd_exec,
	&cmd_run,
	&cmd_ps,
	&cmd_attach,
	&cmd_wait,
	&cmd_signal,
	&cmd_cancel,
	&cmd_cp,
	&cmd_fs_ls,
	&cmd_fs_cat,
	&cmd_fs_write,
	&cmd_fs_stat,
	&cmd_fs_mkdir,
	&cmd_fs_rm,
	&cmd_fs_mv,
	&cmd_fs_watch,
	&cmd_ls,
	&cmd_info,
	&cmd_kill,
	&cmd_ttl,
	&cmd_fork,
	&cmd_pause,
	&cmd_resume,
	&cmd_park,
	&cmd_idle,
	&cmd_snapshot_create,
	&cmd_snapshot_list,
	&cmd_snapshot_info,
	&cmd_snapshot_delete,
	&cmd_snapshot_verify,
	&cmd_pool_set,
	&cmd_pool_list,
	&cmd_template_build,
	&cmd_template_snapshot,
	&cmd_template_ls,
	&cmd_template_rm,
	&cmd_doctor,
	&cmd_limits,
	&cmd_version,
	&cmd_help,
	NULL,
};

/* In force until the command is known. */
static const struct command no_command = {.name = "", .operands = "", FAILS_PLAINLY};

struct hutch *cli_open(struct cli *cli)
{
	struct hutch_failure why;
	struct hutch *h = hutch_open(cli->socket, CLIENT_NAME, &why);

	if (h == NULL)
		cli_fail(cli, &why);
	return h;
}

struct hutch_doc *cli_request(struct cli *cli, const char *method, const char *vm,
			      const struct hutch_pair *params, size_t count, uint64_t timeout_ms)
{
	struct hutch_call call = {.method = method,
				  .vm = vm,
				  .params = params,
				  .param_count = count};
	struct hutch *h = cli_open(cli);
	struct hutch_failure why;
	struct hutch_doc *doc;

	if (h == NULL)
		return NULL;
	doc = hutch_request(h, &call, timeout_ms, &why);
	if (doc == NULL)
		cli_fail(cli, &why);
	hutch_close(h);
	return doc;
}

/* ---- version, help ---- */

static int run_version(struct cli *cli, struct args *a)
{
	if (args_operands(a, 0, 0) < 0)
		return a->status;
	if (cli->json)
		json_print(stdout, json_pack("{s:s,s:s,s:i}", "name", "hutch", "version",
					     hutch_version(), "proto", HUTCH_PROTO_VERSION));
	else
		printf("hutch %s\n", hutch_version());
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_version = {
	.name = "version",
	.operands = "",
	.summary = "Print the version of this program",
	FAILS_PLAINLY,
	.run = run_version,
};

static void help_all(void)
{
	printf("usage: hutch COMMAND [OPTION]... [ARGUMENT]...\n\n"
	       "Sandboxes that are microVMs, each used and thrown away.\n\ncommands:\n");
	for (const struct command *const *c = commands; *c != NULL; c++)
		printf("  %-17s %s\n", (*c)->name, (*c)->summary);
	printf("\nOptions of every command: --json, --socket PATH, --help.\n"
	       "hutch COMMAND --help tells the rest.\n");
}

/* The command whose name argv begins with; *words is how many of them it took. */
static const struct command *find(char **argv, int *words)
{
	for (const struct command *const *c = commands; *c != NULL && argv[0] != NULL; c++) {
		size_t len = strlen(argv[0]);

		if (strcmp((*c)->name, argv[0]) == 0) {
			*words = 1;
			return *c;
		}
		if (argv[1] != NULL && strncmp((*c)->name, argv[0], len) == 0 &&
		    (*c)->name[len] == ' ' && strcmp((*c)->name + len + 1, argv[1]) == 0) {
			*words = 2;
			return *c;
		}
	}
	return NULL;
}

static int run_help(struct cli *cli, struct args *a)
{
	const struct command *c;
	int words;

	if (args_operands(a, 0, 2) < 0)
		return a->status;
	c = find(a->operands, &words);
	if (c != NULL && words == a->count)
		help_command(c);
	else if (a->count == 0)
		help_all();
	else
		return cli_usage(cli, "there is no command %s%s%s", a->operands[0],
				 a->count > 1 ? " " : "", a->count > 1 ? a->operands[1] : "");
	return cli_finish(cli, EXIT_OK);
}

const struct command cmd_help = {
	.name = "help",
	.operands = "[COMMAND]",
	.summary = "Print this list, or what a command does",
	FAILS_PLAINLY,
	.run = run_help,
};

/* ---- main ---- */

/*
 * A standard descriptor that is closed would be taken by the next one opened, and get a command's
 * output. What is for a closed standard output is lost, which is an error; who closes standard error
 * does not want it.
 */
static void fill_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

static int run_command(struct cli *cli, const struct command *c, int argc, char **argv)
{
	struct args a;

	cli->command = c;
	args_init(&a, cli, argc, argv);
	return c->run(cli, &a);
}

/* Options before the command: the common ones. Returns how many words they took, or -1. */
static int leading_options(struct cli *cli, char **argv, const struct command **c)
{
	int i = 0;

	for (; argv[i] != NULL && argv[i][0] == '-'; i++) {
		if (strcmp(argv[i], "--json") == 0)
			cli->json = true;
		else if (strncmp(argv[i], "--socket=", 9) == 0)
			cli->socket = argv[i] + 9;
		else if (strcmp(argv[i], "--socket") == 0 && argv[i + 1] != NULL)
			cli->socket = argv[++i];
		else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			*c = &cmd_help;
		else if (strcmp(argv[i], "--version") == 0)
			*c = &cmd_version;
		else
			return cli_usage(
				       cli,
				       "there is no option %s before the command, or its argument "
				       "is missing",
				       argv[i]),
			       -1;
	}
	return i;
}

static int unknown(struct cli *cli, char **argv)
{
	size_t len = strlen(argv[0]);

	for (const struct command *const *c = commands; *c != NULL; c++)
		if (strncmp((*c)->name, argv[0], len) == 0 && (*c)->name[len] == ' ')
			return cli_usage(
				cli,
				"hutch %s is followed by one of its commands, such as: hutch %s",
				argv[0], (*c)->name);
	return cli_usage(cli, "there is no command %s", argv[0]);
}

int main(int argc, char **argv)
{
	struct cli cli = {.command = &no_command};
	const struct command *c = NULL;
	int skip, words = 0;

	fill_standard_fds();
	skip = leading_options(&cli, argv + 1, &c);
	if (skip < 0)
		return EXIT_USAGE;
	argc -= 1 + skip;
	argv += 1 + skip;
	if (c == NULL && argc == 0) {
		help_all();
		return cli_finish(&cli, EXIT_USAGE);
	}
	if (c == NULL)
		c = find(argv, &words);
	if (c == NULL)
		return unknown(&cli, argv);
	return run_command(&cli, c, argc - words, argv + words);
}
