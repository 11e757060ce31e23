/* SPDX-License-Identifier: Apache-2.0 */
/* A call that is waited for. */
#include "tools/client/client.h"

static uint64_t deadline(uint64_t timeout_ms)
{
	return timeout_ms > 0 ? conn_now_ms() + timeout_ms : 0;
}

struct hutch_doc *hutch_request(struct hutch *h, const struct hutch_call *call, uint64_t timeout_ms,
				struct hutch_failure *why)
{
	struct hutch_call plain = *call;
	uint64_t until = deadline(timeout_ms);
	struct hutch_item item;

	plain.input = false;
	if (hutch_start(h, &plain, why) < 0)
		return NULL;
	for (;;) {
		switch (hutch_next(h, &item, why)) {
		case HUTCH_AGAIN:
			conn_wait(h, until); /* what it breaks, hutch_next tells */
			break;
		case HUTCH_EVENT:
			hutch_doc_free(item.doc);
			break;
		case HUTCH_STDOUT:
		case HUTCH_STDERR:
			break;
		case HUTCH_RESULT:
			return item.doc;
		case HUTCH_FAILED:
			return NULL;
		}
	}
}

const char *hutch_version(void)
{
	return HUTCH_VERSION;
}
