/* SPDX-License-Identifier: Apache-2.0 */
/* Shell patterns; see glob.h. */
#include "guest/glob.h"

#include <stddef.h>

/* p is behind a '['. Where the set ends; NULL: it does not, and the '[' stands for itself. */
static const char *match_set(const char *p, unsigned char c, bool *matched)
{
	bool negated = *p == '!' || *p == '^', in = false;
	const char *first;

	p += negated;
	for (first = p; *p && (*p != ']' || p == first);) {
		unsigned char low, high;

		if (*p == '\\' && p[1])
			p++;
		low = high = (unsigned char)*p++;
		if (*p == '-' && p[1] && p[1] != ']') {
			p += p[1] == '\\' && p[2] ? 2 : 1;
			high = (unsigned char)*p++;
		}
		in |= low <= c && c <= high;
	}
	if (!*p)
		return NULL;
	*matched = in != negated;
	return p + 1;
}

/* One character by one element of the pattern. The pattern behind it; NULL: it does not match. */
static const char *match_one(const char *p, char c)
{
	bool matched;
	const char *end;

	if (*p == '?')
		return p + 1;
	if (*p == '[' && (end = match_set(p + 1, (unsigned char)c, &matched)))
		return matched ? end : NULL;
	if (*p == '\\' && p[1])
		p++;
	return *p == c ? p + 1 : NULL;
}

bool glob_match(const char *p, const char *s)
{
	const char *star = NULL, *from = NULL, *next;

	while (*s) {
		if (*p == '*') {
			star = ++p;
			from = s;
		} else if ((next = *p ? match_one(p, *s) : NULL)) {
			p = next;
			s++;
		} else if (star) { /* the last * takes one more */
			p = star;
			s = ++from;
		} else {
			return false;
		}
	}
	while (*p == '*')
		p++;
	return !*p;
}
