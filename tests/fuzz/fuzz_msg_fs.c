/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.*: the first byte selects the method, or a record. What decodes is within its limits, and encodes to bytes
 * that decode and encode alike.
 */
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_fs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int good)
{
	if (!good)
		abort();
}

static void refused(const struct hutch_error *err)
{
	require(err->kind > HUTCH_OK && err->kind < HUTCH_E_COUNT && err->message[0]);
}

static void same_bytes(struct mp_buf *a, struct mp_buf *b)
{
	require(!a->failed && !b->failed && a->len == b->len);
	require(memcmp(a->data, b->data, a->len) == 0);
	mp_buf_free(a);
	mp_buf_free(b);
}

static void check_text(const char *s, size_t max)
{
	require(!s || (s[0] && strlen(s) <= max));
}

static void check_texts(char **v, size_t n, size_t max)
{
	require(n <= max && (n == 0) == !v);
	for (size_t i = 0; i < n; i++)
		check_text(v[i], HUTCH_MAX_PATH);
	require(!v || !v[n]);
}

static void check_call(const struct fs_call *m)
{
	require(m->path && (m->given & FS_P_PATH));
	check_text(m->path, HUTCH_MAX_PATH);
	check_text(m->root, HUTCH_MAX_PATH);
	check_text(m->to, HUTCH_MAX_PATH);
	check_text(m->target, HUTCH_MAX_PATH);
	check_text(m->user, HUTCH_MAX_USER);
	check_text(m->owner, HUTCH_MAX_USER);
	check_text(m->sha256, 64);
	check_text(m->if_sha256, 64);
	check_texts(m->names, m->nnames, HUTCH_MAX_FS_NAMES);
	check_texts(m->exclude, m->nexclude, HUTCH_MAX_FS_EXCLUDE);
	require(!m->root || m->root[0] == '/');
	require(m->mode <= 07777 && m->sync <= FS_SYNC_ALL);
	require(m->offset <= HUTCH_MAX_UINT && m->length <= HUTCH_MAX_UINT);
	require(m->method != FS_MOVE || m->to);
}

static void call(enum fs_method method, const uint8_t *data, size_t size)
{
	struct mp_buf a = {0}, b = {0};
	struct fs_call m, again;
	struct hutch_error err;

	if (fs_call_decode(&m, method, data, size, &err) < 0) {
		refused(&err);
		fs_call_free(&m);
		return;
	}
	check_call(&m);
	fs_call_encode_params(&a, &m);
	fs_call_free(&m);
	if (a.failed) { /* longer than it came: map16 where there was a fixmap */
		require(size > HUTCH_MAX_CALL / 2);
		mp_buf_free(&a);
		return;
	}
	require(fs_call_decode(&again, method, a.data, a.len, &err) == 0);
	check_call(&again);
	fs_call_encode_params(&b, &again);
	fs_call_free(&again);
	same_bytes(&a, &b);
}

static void record(const uint8_t *data, size_t size)
{
	struct mp_buf a = {0}, b = {0};
	struct fs_record m;
	struct hutch_error err;
	struct mp_reader r;
	struct mp_doc doc;

	for (int pass = 0; pass < 2; pass++) {
		if (mp_params_open(&doc, &r, pass ? a.data : data, pass ? a.len : size, "record",
				   &err) < 0) {
			require(!pass);
			refused(&err);
			return;
		}
		fs_record_get(&r, &m);
		if (!mp_ok(&r)) {
			require(!pass);
			refused(&err);
			mp_close(&r);
			return;
		}
		fs_record_put(pass ? &b : &a, &m);
		mp_close(&r);
		if (a.failed) {
			require(size > HUTCH_MAX_CALL / 2);
			mp_buf_free(&a);
			return;
		}
	}
	same_bytes(&a, &b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] % (FS_METHODS + 1) == FS_METHODS)
		record(data + 1, size - 1);
	else
		call((enum fs_method)(data[0] % (FS_METHODS + 1)), data + 1, size - 1);
	return 0;
}
