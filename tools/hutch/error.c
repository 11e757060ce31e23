/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: a sentence on stderr, or a JSON document there. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/hutch/cli.h"
#include "tools/hutch/json.h"
#include "tools/hutch/text.h"

int cli_fail(const struct cli *cli, const struct hutch_failure *why)
{
	fflush(stdout);
	if (cli->json) {
		json_print(stderr, json_from_failure(why));
	} else {
		fputs("hutch: ", stderr);
		text_put(stderr, why->message, strlen(why->message), true);
		fputc('\n', stderr);
	}
	return cli->command->failed;
}

static int verror(const struct cli *cli, const char *kind, int errnum, const char *fmt, va_list ap)
	__attribute__((format(printf, 4, 0)));

static int verror(const struct cli *cli, const char *kind, int errnum, const char *fmt, va_list ap)
{
	struct hutch_failure why = {.errnum = errnum};

	snprintf(why.kind, sizeof(why.kind), "%s", kind);
	vsnprintf(why.message, sizeof(why.message), fmt, ap);
	return cli_fail(cli, &why);
}

int cli_error(const struct cli *cli, const char *kind, int errnum, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = verror(cli, kind, errnum, fmt, ap);
	va_end(ap);
	return r;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	verror(cli, "invalid", 0, fmt, ap);
	va_end(ap);
	if (!cli->json)
		fprintf(stderr, "Try: hutch %s%s--help\n", cli->command->name,
			*cli->command->name ? " " : "");
	return cli->command->usage;
}

void cli_note(const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fputs("hutch: ", stderr);
	text_put(stderr, line, strlen(line), true);
	fputc('\n', stderr);
}

int cli_finish(const struct cli *cli, int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	return cli_error(cli, "io", errno, "cannot write to standard output: %s", strerror(errno));
}
