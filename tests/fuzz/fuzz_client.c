/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhutch reads what a broker might say: the input is everything that arrives after the call was
 * sent.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/client/hutch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern unsigned fuzz_client_sum;
unsigned fuzz_client_sum; /* what was looked at: seen from outside, so not optimised away */

/* Every byte that it is given is looked at, so that a sanitizer would see one that is not there. */
static unsigned sum_bytes(const char *p, size_t n)
{
	unsigned sum = 0;

	while (n-- > 0)
		sum += (unsigned char)p[n];
	return sum;
}

static unsigned walk(const struct hutch_value *v)
{
	unsigned sum = v->type;

	if (v->type == HUTCH_TEXT)
		return sum_bytes(v->as.text.data, v->as.text.len + 1);
	if (v->type == HUTCH_ARRAY)
		for (size_t i = 0; i < v->as.array.count; i++)
			sum += walk(&v->as.array.items[i]);
	if (v->type == HUTCH_MAP)
		for (size_t i = 0; i < v->as.map.count; i++)
			sum += walk(&v->as.map.pairs[i].value) +
			       (unsigned char)*v->as.map.pairs[i].key;
	return sum;
}

static void read_answer(struct hutch *h)
{
	struct hutch_exec_result result;
	struct hutch_failure why;
	struct hutch_item item;

	for (;;) {
		switch (hutch_next(h, &item, &why)) {
		case HUTCH_STDOUT:
		case HUTCH_STDERR:
			fuzz_client_sum += sum_bytes(item.data, item.len);
			break;
		case HUTCH_EVENT:
			fuzz_client_sum += walk(hutch_doc_root(item.doc));
			hutch_doc_free(item.doc);
			break;
		case HUTCH_RESULT:
			fuzz_client_sum += walk(hutch_doc_root(item.doc));
			if (hutch_exec_result_read(item.doc, &result, &why) == 0)
				fuzz_client_sum += result.exit_code;
			hutch_doc_free(item.doc);
			return;
		case HUTCH_AGAIN: /* the other end is shut, so this is never said */
			abort();
		case HUTCH_FAILED:
			return;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct hutch_call call = {.method = "exec.start", .vm = "box", .input = true};
	struct hutch_failure why;
	struct hutch *h;
	int fds[2];

	if (size > 100000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		return 0;
	if (write(fds[1], data, size) != (ssize_t)size)
		abort();
	shutdown(fds[1], SHUT_WR);
	h = hutch_open_fd(fds[0], "fuzz", &why);
	/* A second call goes on with what the first one left. */
	for (int i = 0; i < 4 && hutch_alive(h); i++) {
		if (hutch_start(h, &call, &why) < 0)
			break;
		hutch_send(h, "x", 1);
		read_answer(h);
	}
	hutch_close(h);
	close(fds[1]);
	return 0;
}
