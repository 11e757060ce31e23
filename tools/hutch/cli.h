/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of the CLI share: the command table, options, errors. */
#ifndef HUTCH_CLI_H
#define HUTCH_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/client/hutch.h"

/*
 * Exit statuses. Of exec and run, those of the command are passed on, so that theirs are above 123.
 */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_TIMED_OUT = 124,
	EXIT_HUTCH = 125, /* exec, run: hutch failed, nothing is known of the command's status */
	EXIT_SIGNAL = 128,
};

struct args;
struct cli;

struct command {
	const char *name;	/* "exec"; of a family "template build" */
	const char *operands;	/* for the usage line */
	const char *summary;	/* one line, for the list */
	const char *details;	/* for --help, below the options; NULL: none */
	const struct opt *opts; /* own options, ends with an id of 0; NULL: none */
	unsigned literal;  /* the operand from which on all words are taken as they are; 0: none */
	int failed, usage; /* exit statuses for a failure and for wrong usage */
	int (*run)(struct cli *cli, struct args *args);
};

/* The exit statuses of most commands, and those of exec and run. */
#define FAILS_PLAINLY .failed = EXIT_FAILED, .usage = EXIT_USAGE
#define FAILS_ASIDE   .failed = EXIT_HUTCH, .usage = EXIT_HUTCH

struct cli {
	const char *socket; /* --socket, or NULL */
	bool json;
	const struct command *command;
};

/* ---- args.c: options of one command ---- */

struct opt {
	int id;		  /* a letter, or from OPT_LONG on without a letter */
	const char *name; /* "env" */
	const char *arg;  /* what its argument is called; NULL: takes none */
	const char *help;
};

enum { OPT_LONG = 256 };

struct args {
	struct cli *cli;
	int argc, next;
	char **argv;
	char *cluster;	 /* rest of a group of letters */
	char *value;	 /* of the option that args_next returned */
	char **operands; /* complete when args_next returned 0; NULL-terminated */
	int count;
	int status; /* what to leave with when args_next, or a parser of a value, returned -1 */
};

void args_init(struct args *a, struct cli *cli, int argc, char **argv);
/*
 * The next option's id; 0: no more; -1: leave with a->status (an error was printed, or the help).
 */
int args_next(struct args *a);
/*
 * For a command with no options of its own: 0, or -1 as above; also -1 unless min to max operands
 * were given.
 */
int args_operands(struct args *a, int min, int max);
void help_command(const struct command *c);

/* ---- main.c ---- */

extern const struct command *const commands[]; /* ends with NULL */
#define CLIENT_NAME "hutch " HUTCH_VERSION     /* in the broker's log */
/* A connection to the broker, or NULL with the failure printed. */
struct hutch *cli_open(struct cli *cli);
/* One call on a connection of its own; NULL: the failure was printed. */
struct hutch_doc *cli_request(struct cli *cli, const char *method, const char *vm,
			      const struct hutch_pair *params, size_t count, uint64_t timeout_ms);
/* Calls that the broker answers from memory: it is stuck when it takes longer. */
#define PROMPT_MS 30000

/* ---- error.c. Each returns the command's status for it. ---- */

int cli_fail(const struct cli *cli, const struct hutch_failure *why);
int cli_error(const struct cli *cli, const char *kind, int errnum, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int cli_usage(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A word beside the command's output, on stderr. */
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Flush stdout. status, or the status for a failure when something could not be written. */
int cli_finish(const struct cli *cli, int status);

/* ---- parse.c: 0, or -1 with a usage error printed. what names the option. ---- */

int parse_duration(const struct cli *cli, const char *what, const char *text, uint64_t *ms);
int parse_number(const struct cli *cli, const char *what, const char *text, uint64_t min,
		 uint64_t max, uint64_t *n);
int parse_size(const struct cli *cli, const char *what, const char *text, uint64_t *bytes);

#endif
