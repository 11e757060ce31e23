/* SPDX-License-Identifier: Apache-2.0 */
/* Options from a table, which also makes the help text. */
#include <stdio.h>
#include <string.h>

#include "tools/hutch/cli.h"

enum { COMMON_SOCKET = 1, COMMON_JSON, COMMON_HELP };

static const struct opt common[] = {
	{COMMON_JSON, "json", NULL, "print JSON"},
	{COMMON_SOCKET, "socket", "PATH",
	 "the broker's socket (default: HUTCH_SOCKET, or the usual place)"},
	{COMMON_HELP, "help", NULL, "print this help"},
	{0},
};

void args_init(struct args *a, struct cli *cli, int argc, char **argv)
{
	*a = (struct args){.cli = cli, .argc = argc, .argv = argv, .operands = argv};
	a->status = cli->command->usage;
}

static const struct opt *find_long(const struct opt *table, const char *name, size_t len)
{
	for (; table != NULL && table->id != 0; table++)
		if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
			return table;
	return NULL;
}

static const struct opt *find_letter(const struct opt *table, char letter)
{
	for (; table != NULL && table->id != 0; table++)
		if (table->id == (unsigned char)letter)
			return table;
	return NULL;
}

static int bad(struct args *a, const char *what, const char *word, int len)
{
	cli_usage(a->cli, "%s%.*s", what, len, word);
	return -1;
}

static int common_option(struct args *a, const struct opt *o)
{
	switch (o->id) {
	case COMMON_JSON:
		a->cli->json = true;
		return 0;
	case COMMON_SOCKET:
		a->cli->socket = a->value;
		return 0;
	default:
		help_command(a->cli->command);
		a->status = cli_finish(a->cli, EXIT_OK);
		return -1;
	}
}

/* The option's value: what is attached to it (may be NULL), else the next word. */
static int take_value(struct args *a, const struct opt *o, char *attached)
{
	a->value = attached;
	if (o->arg == NULL || attached != NULL)
		return 0;
	if (a->next == a->argc)
		return bad(a, "an argument is missing after --", o->name, (int)strlen(o->name));
	a->value = a->argv[a->next++];
	return 0;
}

/* 0: it was a common option and is done with. */
static int long_option(struct args *a, char *word)
{
	size_t len = strcspn(word + 2, "=");
	char *attached = word[2 + len] == '=' ? word + 3 + len : NULL;
	const struct opt *o = find_long(a->cli->command->opts, word + 2, len);
	bool own = o != NULL;

	if (!own)
		o = find_long(common, word + 2, len);
	if (o == NULL)
		return bad(a, "there is no option ", word, (int)len + 2);
	if (o->arg == NULL && attached != NULL)
		return bad(a, "no argument is taken by ", word, (int)len + 2);
	if (take_value(a, o, attached) < 0)
		return -1;
	return own ? o->id : common_option(a, o);
}

static int letter_option(struct args *a)
{
	char *at = a->cluster;
	const struct opt *o = find_letter(a->cli->command->opts, *at);

	if (o == NULL && *at == 'h')
		return common_option(a, &common[2]);
	if (o == NULL)
		return bad(a, "there is no option -", at, 1);
	a->cluster = at[1] != '\0' ? at + 1 : NULL;
	if (o->arg != NULL) {
		char *attached = a->cluster;

		a->cluster = NULL;
		if (take_value(a, o, attached) < 0)
			return -1;
	}
	return o->id;
}

static void take_rest(struct args *a)
{
	while (a->next < a->argc)
		a->operands[a->count++] = a->argv[a->next++];
}

int args_next(struct args *a)
{
	unsigned literal = a->cli->command->literal;

	for (;;) {
		char *word;
		int r;

		if (a->cluster != NULL)
			return letter_option(a);
		if (a->next == a->argc)
			break;
		word = a->argv[a->next++];
		if (word[0] != '-' || word[1] == '\0') {
			a->operands[a->count++] = word;
			if (literal > 0 && (unsigned)a->count == literal)
				take_rest(a);
			continue;
		}
		if (strcmp(word, "--") == 0) {
			take_rest(a);
			break;
		}
		if (word[1] != '-') {
			a->cluster = word + 1;
			continue;
		}
		r = long_option(a, word);
		if (r != 0)
			return r;
	}
	a->operands[a->count] = NULL;
	return 0;
}

int args_operands(struct args *a, int min, int max)
{
	int r = args_next(a);

	if (r < 0)
		return -1;
	if (a->count < min)
		cli_usage(a->cli, "%s is missing", a->cli->command->operands);
	else if (a->count > max)
		cli_usage(a->cli, "there are too many arguments: %s", a->operands[max]);
	else
		return 0;
	return -1;
}

static void help_options(const struct opt *table)
{
	for (; table != NULL && table->id != 0; table++) {
		char left[64];
		int n = 0;

		if (table->id >= '0' && table->id < OPT_LONG)
			n = snprintf(left, sizeof(left), "-%c, ", table->id);
		snprintf(left + n, sizeof(left) - (size_t)n, "--%s%s%s", table->name,
			 table->arg ? " " : "", table->arg ? table->arg : "");
		printf("  %-28s %s\n", left, table->help);
	}
}

void help_command(const struct command *c)
{
	printf("usage: hutch %s%s%s%s\n\n%s.\n\noptions:\n", c->name, c->opts ? " [OPTION]..." : "",
	       *c->operands ? " " : "", c->operands, c->summary);
	help_options(c->opts);
	help_options(common);
	if (c->details != NULL)
		printf("\n%s", c->details);
}
