/* SPDX-License-Identifier: Apache-2.0 */
/* ID:PATH, a file in a VM; see remote.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/hutch/remote.h"

bool remote_is(const char *word)
{
	size_t n = strcspn(word, ":/");

	return n > 0 && word[n] == ':';
}

void remote_split(char *word, const char **vm, const char **path)
{
	char *colon = strchr(word, ':');

	*colon = '\0';
	*vm = word;
	*path = colon[1] != '\0' ? colon + 1 : "/";
}

/* The end of path without the slashes at its end. */
static const char *trimmed(const char *path)
{
	const char *end = path + strlen(path);

	while (end > path && end[-1] == '/')
		end--;
	return end;
}

char *path_base(const char *path)
{
	const char *end = trimmed(path), *start = end;

	if (end == path)
		return strdup("/");
	while (start > path && start[-1] != '/')
		start--;
	return strndup(start, (size_t)(end - start));
}

char *path_dir(const char *path)
{
	const char *end = trimmed(path);

	while (end > path && end[-1] != '/')
		end--;
	if (end == path)
		return strdup(*path == '/' ? "/" : ".");
	return strndup(path, (size_t)(end - path));
}

char *path_join(const char *dir, const char *base)
{
	char *out = NULL;
	size_t n = strlen(dir);

	if (asprintf(&out, "%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/", base) < 0)
		return NULL;
	return out;
}
