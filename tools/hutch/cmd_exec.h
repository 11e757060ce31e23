/* SPDX-License-Identifier: Apache-2.0 */
/* Options of exec, which run has too, and how a command's end becomes an exit status. */
#ifndef HUTCH_CMD_EXEC_H
#define HUTCH_CMD_EXEC_H

#include "protocol/limits.h"
#include "tools/hutch/cli.h"
#include "tools/hutch/pump.h"

enum { EXEC_TIMEOUT = OPT_LONG + 64, EXEC_SHELL, EXEC_OUTPUT_LIMIT, EXEC_TTY, EXEC_DETACH_KEYS };

#define EXEC_OPTIONS                                                                               \
	{'i', "stdin", NULL, "pass standard input on (else the command's is empty)"},              \
		{'e', "env", "K=V", "add to the environment; K alone takes its value from yours"}, \
		{'w', "workdir", "DIR", "directory to start in (default: the user's home)"},       \
		{'u', "user", "USER", "name, uid, name:group or uid:gid"},                         \
		{EXEC_TIMEOUT, "timeout", "TIME",                                                  \
		 "end the command and all it started after this"},                                 \
		{EXEC_OUTPUT_LIMIT, "output-limit", "BYTES",                                       \
		 "keep so much of each stream, drop the rest"},                                    \
	{                                                                                          \
		EXEC_SHELL, "shell", "TEXT", "run TEXT with /bin/sh -c instead of CMD"             \
	}

struct exec_args {
	struct hutch_exec_options x;
	char id[HUTCH_MAX_ID + 1]; /* x.id */
	const char **env;	   /* pairs, x.env */
	size_t env_count;	   /* of words in it */
	const char *detach_keys;   /* NULL: the default */
};

/*
 * 1: id was one of these and is noted, 0: it was not, -1: its value is wrong: leave with a->status.
 */
int exec_option(struct exec_args *e, struct args *a, int id);
/* The command: words, or --shell. -1: it is missing, or there are both. */
int exec_command(struct exec_args *e, struct args *a, char **words);
void exec_args_free(struct exec_args *e);

/* What is not allowed together. -1: leave with a->status. */
int exec_check(const struct exec_args *e, struct args *a);
/* What --detach-keys says, or the default. -1: a usage error was printed. */
int exec_detach_keys(struct keys *k, const char *text, const struct cli *cli);

/* Where the output goes. */
void exec_sinks(struct pump *p);
/* After pump_run or pump_serve: what is said of the end, and the exit status. Frees the output. */
int exec_conclude(struct pump *p, uint64_t timeout_ms);
/* Run it on p->h in p->vm, and report. The exit status; frees nothing of e. */
int exec_run(struct pump *p, struct exec_args *e);
/* A whole command whose first operand is the VM: parse (-1: leave with a->status), then exec_run. */
int exec_in_vm(struct cli *cli, struct args *a, int (*parse)(struct exec_args *, struct args *));

#define EXEC_DETAILS                                                                                 \
	"The exit status is the command's: 128 + n when signal n ended it, 124 when it timed out,\n" \
	"126 or 127 when it could not be started; 125 when hutch itself failed.\n"                   \
	"The first ctrl-C interrupts the command, the second one kills it.\n"

#endif
