/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct hutch_failure: the protocol's error, with its kind as text, so that a newer broker's kinds
 * pass through.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/client/client.h"

int fail_from(struct hutch_failure *why, const struct hutch_error *err)
{
	if (why == NULL)
		return -1;
	*why = (struct hutch_failure){.errnum = err->errnum, .retryable = err->retryable};
	snprintf(why->kind, sizeof(why->kind), "%s", hutch_error_kind_name(err->kind));
	snprintf(why->stage, sizeof(why->stage), "%s", err->stage);
	snprintf(why->path, sizeof(why->path), "%s", err->path);
	snprintf(why->message, sizeof(why->message), "%s", err->message);
	return -1;
}

int fail_set(struct hutch_failure *why, enum hutch_error_kind kind, int errnum, const char *fmt,
	     ...)
{
	struct hutch_error err = {0};
	char text[sizeof(err.message)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	hutch_error_set(&err, kind, errnum, "%s", text);
	return fail_from(why, &err);
}
