/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, durations and sizes from the command line. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "tools/hutch/cli.h"

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit *find_unit(const struct unit *u, const char *name)
{
	while (u->name != NULL && strcmp(u->name, name) != 0)
		u++;
	return u->name != NULL ? u : NULL;
}

/* DIGITS[.DIGITS][UNIT], exact to a millionth of the unit. -1: it is none, or too large. */
static int parse_units(const char *text, const struct unit *units, uint64_t *out)
{
	uint64_t whole = 0, part = 0, scale = 1000000;
	const struct unit *u;
	const char *p = text;

	if (!isdigit((unsigned char)*p))
		return -1;
	for (; isdigit((unsigned char)*p); p++) {
		if (whole > UINT32_MAX * 100000ull)
			return -1;
		whole = whole * 10 + (uint64_t)(*p - '0');
	}
	if (*p == '.') {
		for (p++; isdigit((unsigned char)*p); p++) {
			scale /= 10;
			part += scale * (uint64_t)(*p - '0');
		}
	}
	u = find_unit(units, p);
	if (u == NULL || (whole > 0 && u->factor > INT64_MAX / whole))
		return -1;
	*out = whole * u->factor + (uint64_t)((double)part * (double)u->factor / 1e6);
	return 0;
}

int parse_duration(const struct cli *cli, const char *what, const char *text, uint64_t *ms)
{
	static const struct unit units[] = {{"", 1000},	  {"ms", 1},	  {"s", 1000},
					    {"m", 60000}, {"h", 3600000}, {"d", 86400000},
					    {NULL, 0}};

	if (parse_units(text, units, ms) == 0)
		return 0;
	cli_usage(cli, "%s is \"%s\": a time is wanted, such as 90, 1.5s, 5m, 1h or 2d", what,
		  text);
	return -1;
}

int parse_size(const struct cli *cli, const char *what, const char *text, uint64_t *bytes)
{
	static const struct unit units[] = {{"", 1},	     {"k", 1u << 10}, {"K", 1u << 10},
					    {"M", 1u << 20}, {"G", 1u << 30}, {NULL, 0}};

	if (parse_units(text, units, bytes) == 0)
		return 0;
	cli_usage(cli, "%s is \"%s\": a number of bytes is wanted, such as 4096, 64K or 1M", what,
		  text);
	return -1;
}

int parse_number(const struct cli *cli, const char *what, const char *text, uint64_t min,
		 uint64_t max, uint64_t *n)
{
	static const struct unit units[] = {{"", 1}, {NULL, 0}};

	if (strchr(text, '.') == NULL && parse_units(text, units, n) == 0 && *n >= min && *n <= max)
		return 0;
	cli_usage(cli, "%s is \"%s\": a number from %" PRIu64 " to %" PRIu64 " is wanted", what,
		  text, min, max);
	return -1;
}
