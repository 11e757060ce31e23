/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel modules from the image: MODULES_LIST names one per line, in the order of loading: a path (absolute, or
 * below MODULES_DIR), then its parameters. '#' starts a comment. Compressed ones are left to the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/boot.h"
#include "guest/lines.h"

/* linux/module.h, since Linux 5.17 */
#define INIT_COMPRESSED_FILE 4

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

static void load(const char *path, const char *params)
{
	int flags = ends_with(path, ".ko") ? 0 : INIT_COMPRESSED_FILE;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		boot_failed("module %s", path);
		return;
	}
	if (syscall(SYS_finit_module, fd, params, flags) < 0 && errno != EEXIST)
		boot_failed("module %s cannot be loaded", path);
	close(fd);
}

static void load_line(char *line, bool forget)
{
	char path[512], *params;

	line[strcspn(line, "#")] = '\0';
	line += strspn(line, " \t");
	params = line + strcspn(line, " \t");
	if (*params)
		*params++ = '\0';
	if (!*line)
		return;
	snprintf(path, sizeof(path), "%s%s", line[0] == '/' ? "" : MODULES_DIR "/", line);
	load(path, params + strspn(params, " \t"));
	if (forget)
		unlink(path);
}

void boot_modules(bool forget)
{
	struct lines l;

	if (!lines_open(&l, AT_FDCWD, MODULES_LIST)) {
		if (errno != ENOENT)
			boot_failed("%s", MODULES_LIST);
		return; /* a kernel with all built in */
	}
	while (lines_next(&l))
		load_line(l.line, forget);
	lines_close(&l);
	if (forget)
		unlink(MODULES_LIST);
}
