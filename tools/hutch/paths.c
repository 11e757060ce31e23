/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that come with this program. The build tree has share/hutch/rootfs as a link to the
 * sources.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "tools/hutch/paths.h"

/* rel from the directory of this program, if it is there with the given access. */
static int beside(char *out, size_t size, const char *rel, int access_mode)
{
	char self[PATH_MAX], path[2 * PATH_MAX], *real;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return -1;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash == NULL)
		return -1;
	*slash = '\0';
	snprintf(path, sizeof(path), "%s/%s", self, rel);
	real = realpath(path, NULL);
	n = real != NULL ? snprintf(out, size, "%s", real) : -1;
	free(real);
	return n < 0 || (size_t)n >= size ? -1 : access(out, access_mode);
}

int path_rootfs(char *out, size_t size)
{
	const char *given = getenv("HUTCH_ROOTFS_DIR");

	if (given != NULL && *given != '\0')
		return snprintf(out, size, "%s", given) < (int)size ? 0 : -1;
	return beside(out, size, "../share/hutch/rootfs", X_OK);
}

int path_agent(char *out, size_t size)
{
	if (beside(out, size, "hutch-agent", R_OK) == 0)
		return 0;
	return beside(out, size, "../libexec/hutch/hutch-agent", R_OK);
}
