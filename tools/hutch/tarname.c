/* SPDX-License-Identifier: Apache-2.0 */
/* Names in an archive from a guest; see tarname.h. */
#include <string.h>

#include "tools/hutch/tarname.h"

char *tarname(char *name)
{
	size_t len;

	if (*name == '\0' || *name == '/')
		return NULL;
	for (const char *p = name; *p != '\0'; p += strspn(p, "/")) {
		len = strcspn(p, "/");
		if (len == 2 && p[0] == '.' && p[1] == '.')
			return NULL;
		p += len;
	}
	while (name[0] == '.' && name[1] == '/')
		name += 1 + strspn(name + 1, "/");
	for (len = strlen(name); len > 0 && name[len - 1] == '/'; len--)
		name[len - 1] = '\0';
	if (*name != '\0')
		return name;
	return memcpy(name - 1, ".", 1), name - 1; /* it was "./": there is one before */
}
