/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run when the agent is built: takes the section headers off its executable, which the kernel does not read (elf(5)),
 * and all that lies behind the last byte of its segments. 1 KB that is better used.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *path)
{
	perror(path);
	return 1;
}

int main(int argc, char **argv)
{
	const char *path = argc == 2 ? argv[1] : "";
	int fd = open(path, O_RDWR | O_CLOEXEC);
	Elf64_Phdr segments[16];
	off_t end = 0;
	Elf64_Ehdr h;

	if (fd < 0 || pread(fd, &h, sizeof(h), 0) != sizeof(h))
		return fail(path);
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_phnum > 16 ||
	    pread(fd, segments, h.e_phnum * sizeof(*segments), (off_t)h.e_phoff) !=
		    (ssize_t)(h.e_phnum * sizeof(*segments))) {
		fprintf(stderr, "%s is not an executable as expected\n", path);
		return 1;
	}
	for (int i = 0; i < h.e_phnum; i++)
		if ((off_t)(segments[i].p_offset + segments[i].p_filesz) > end)
			end = (off_t)(segments[i].p_offset + segments[i].p_filesz);
	h.e_shoff = 0;
	h.e_shnum = h.e_shstrndx = 0;
	if (pwrite(fd, &h, sizeof(h), 0) != sizeof(h) || ftruncate(fd, end) < 0 || close(fd) < 0)
		return fail(path);
	return 0;
}
