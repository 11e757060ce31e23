/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker says, as JSON. */
#ifndef HUTCH_JSON_H
#define HUTCH_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "tools/client/hutch.h"

/* A text that is UTF-8 is a string; any other is {"base64": "..."}. */
json_t *json_from_bytes(const char *data, size_t len);
json_t *json_from_value(const struct hutch_value *v);
json_t *json_from_failure(const struct hutch_failure *why); /* {"error": {...}} */
/* One line; frees j. -1: j is NULL (memory was short) or f could not be written. */
int json_print(FILE *f, json_t *j);

#endif
