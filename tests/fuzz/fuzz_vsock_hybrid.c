/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines that the vsock part reads: CONNECT, against a second, plain reading of the rule; and
 * the control socket's.
 */
#include <stdlib.h>
#include <string.h>

#include "host/vsock/hybrid.h"
#include "host/vsock/vmm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The same rule, said with the library's words: what a whole line means, or -1. */
static int64_t reading(const char *line, size_t len)
{
	char text[HYBRID_LINE_MAX + 1];
	unsigned long value;
	size_t digits;

	if (len > HYBRID_LINE_MAX || len < 10 || memcmp(line, "CONNECT ", 8) != 0)
		return -1;
	memcpy(text, line + 8, len - 8);
	text[len - 8] = '\0';
	digits = strspn(text, "0123456789");
	if (digits == 0 || digits > 10 || digits != len - 9)
		return -1;
	value = strtoul(text, NULL, 10);
	return value <= 0xfffffffeUL ? (int64_t)value : -1;
}

static void check_connect(const char *buf, size_t size)
{
	const char *nl = memchr(buf, '\n', size);
	size_t line = nl ? (size_t)(nl - buf) + 1 : 0;
	uint32_t port = 0;
	int64_t want = line ? reading(buf, line) : -1;
	int got = hybrid_parse_connect(buf, size, &port);

	if (got > 0 && ((size_t)got != line || want != (int64_t)port))
		abort();
	if (got <= 0 && want >= 0)
		abort();
	if (got == 0 && (line || size >= HYBRID_LINE_MAX))
		abort(); /* a whole line, or more than one can have, is never "wait" */
	/* Once refused, more bytes don't help; once accepted, they don't change it. */
	for (size_t n = 0; n < size; n++) {
		int early = hybrid_parse_connect(buf, n, &port);

		if ((early < 0 && got >= 0) || (early > 0 && early != got))
			abort();
	}
}

static void check_control(const uint8_t *data, size_t size)
{
	static struct vmm vmm;
	static struct loop loop;
	char line[VMM_CTL_LINE], reply[VMM_CTL_REPLY];
	size_t len;

	if (!vmm.dev) {
		const struct vsock_config cfg = {.loop = &loop, .listen_fd = -1};

		if (loop_init(&loop) < 0 || vmm_deadline_open(&vmm.deadline, &loop) < 0)
			abort();
		vmm.dev = vsock_dev_create(&cfg);
	}
	if (size >= sizeof(line))
		size = sizeof(line) - 1;
	memcpy(line, data, size);
	line[size] = '\0';
	len = vmm_ctl_answer(&vmm, line, reply);
	if (len < 3 || len > sizeof(reply) || reply[len - 1] != '\n' ||
	    memchr(reply, '\n', len - 1))
		abort();
	if (memcmp(reply, "ok", 2) != 0 && memcmp(reply, "err ", 4) != 0)
		abort();
	vmm_deadline_set(&vmm.deadline, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = malloc(size ? size : 1); /* of the exact size: reads beyond it are seen */

	if (size)
		memcpy(copy, data, size);
	check_connect(copy, size);
	check_control(data, size);
	free(copy);
	return 0;
}
