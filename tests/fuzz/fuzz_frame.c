/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of frames: what is accepted is within its limits and encodes to the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "protocol/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[HUTCH_FRAME_HEADER];
	struct hutch_error err;
	struct frame f;

	while (size >= HUTCH_FRAME_HEADER) {
		if (frame_decode(data, &f, &err) < 0) {
			if (err.kind != HUTCH_E_PROTOCOL || !err.message[0])
				abort();
			return 0;
		}
		if (f.length > frame_max(f.type) || (f.flags & ~FRAME_END) ||
		    frame_type_name(f.type)[0] == '?')
			abort();
		frame_encode(again, &f);
		if (memcmp(again, data, sizeof(again)) != 0)
			abort();
		data += HUTCH_FRAME_HEADER;
		size -= HUTCH_FRAME_HEADER;
		if (f.length > size)
			return 0;
		data += f.length;
		size -= f.length;
	}
	return 0;
}
