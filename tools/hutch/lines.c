/* SPDX-License-Identifier: Apache-2.0 */
/* A map as lines of "key: value", for people. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/hutch/lines.h"
#include "tools/hutch/text.h"

static void print_pairs(const struct hutch_value *map)
{
	for (size_t i = 0; i < map->as.map.count; i++) {
		fputs(i ? ", " : "", stdout);
		text_put(stdout, map->as.map.pairs[i].key, strlen(map->as.map.pairs[i].key), false);
		fputs("=", stdout);
		line_value(&map->as.map.pairs[i].value);
	}
	if (map->as.map.count == 0)
		fputs("-", stdout);
}

static void print_items(const struct hutch_value *array)
{
	for (size_t i = 0; i < array->as.array.count; i++) {
		fputs(i ? ", " : "", stdout);
		line_value(&array->as.array.items[i]);
	}
	if (array->as.array.count == 0)
		fputs("-", stdout);
}

void line_value(const struct hutch_value *v)
{
	switch (v->type) {
	case HUTCH_NIL:
		fputs("-", stdout);
		break;
	case HUTCH_BOOL:
		fputs(v->as.boolean ? "yes" : "no", stdout);
		break;
	case HUTCH_UINT:
		printf("%" PRIu64, v->as.u);
		break;
	case HUTCH_INT:
		printf("%" PRId64, v->as.i);
		break;
	case HUTCH_REAL:
		printf("%g", v->as.real);
		break;
	case HUTCH_TEXT:
		text_put(stdout, v->as.text.data, v->as.text.len, false);
		break;
	case HUTCH_ARRAY:
		print_items(v);
		break;
	case HUTCH_MAP:
		print_pairs(v);
		break;
	}
}

void line_print(const char *key, const struct hutch_value *v)
{
	char text[64] = "";

	if (v->type == HUTCH_UINT && strcmp(key, "created_ms") == 0)
		text_date(text, sizeof(text), v->as.u);
	else if (v->type == HUTCH_UINT &&
		 (strcmp(key, "expires_in_ms") == 0 || strcmp(key, "uptime_ms") == 0))
		text_duration(text, sizeof(text), v->as.u);
	if (text[0] != '\0') {
		printf("%.*s: %s\n", (int)strlen(key) - 3, key, text);
		return;
	}
	text_put(stdout, key, strlen(key), false);
	fputs(": ", stdout);
	line_value(v);
	fputc('\n', stdout);
}

void lines_print(const struct hutch_value *map)
{
	for (size_t i = 0; map->type == HUTCH_MAP && i < map->as.map.count; i++)
		line_print(map->as.map.pairs[i].key, &map->as.map.pairs[i].value);
}
