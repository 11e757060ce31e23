/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile VMM may write to its QMP socket: cut into lines in pieces of varying size, each
 * line parsed. The first byte seeds the sizes.
 */
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/linebuf.h"
#include "host/hutchd/qmp_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const char *line, size_t len)
{
	struct qmp_message m;

	if (line[len] != '\0')
		abort();
	if (qmp_parse(&m, line, len) < 0) {
		if (m.body)
			abort();
		return;
	}
	if (m.kind < QMP_GREETING || m.kind > QMP_EVENT || (m.kind == QMP_RETURN && !m.body) ||
	    (m.kind == QMP_GREETING && !m.version[0]))
		abort();
	qmp_message_clear(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct linebuf b = {.max = 512};
	unsigned step = size > 0 ? data[0] : 0;
	size_t at = 1;
	char *line;
	size_t len;

	while (at < size) {
		size_t n = 1 + step % 64;

		step = step * 5 + 1;
		n = n < size - at ? n : size - at;
		if (linebuf_add(&b, data + at, n) < 0)
			break;
		at += n;
		while (linebuf_next(&b, &line, &len))
			parse(line, len);
		if (b.len > b.max + 64)
			abort();
	}
	linebuf_free(&b);
	return 0;
}
