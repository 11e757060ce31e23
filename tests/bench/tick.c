/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in a VM: dirties so many MiB, then writes a dot every millisecond. Whoever reads sees how long it stood still. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoul(argv[1], NULL, 10) << 20 : 0;
	const struct timespec tick = {.tv_nsec = 1000000};
	char *memory = malloc(size + 1);

	if (memory == NULL)
		return 1;
	memset(memory, 'x', size + 1);
	while (write(STDOUT_FILENO, memory + size, 1) == 1)
		nanosleep(&tick, NULL);
	free(memory);
	return 0;
}
