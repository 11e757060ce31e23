/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.*, agent.identity and snapshot.*; the first byte selects. What decodes is within its limits and
 * terminated, and encodes to bytes that decode and encode alike.
 */
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_exec.h"

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

static void check_start(const struct exec_start *m)
{
	size_t n = 0;

	require(m->argc >= 1 && m->argc <= HUTCH_MAX_ARGV && m->argv[0][0]);
	while (m->argv[n])
		n += strlen(m->argv[n]) < SIZE_MAX;
	require(n == m->argc);
	for (size_t i = 0; i < m->env_pairs; i++) {
		require(m->env[2 * i][0] && !strchr(m->env[2 * i], '='));
		require(!m->env[2 * i + 1] || strlen(m->env[2 * i + 1]) < SIZE_MAX);
	}
	require(!m->env || !m->env[2 * m->env_pairs]);
	require(!m->cwd || (m->cwd[0] && strlen(m->cwd) <= HUTCH_MAX_PATH));
	require(!m->user || (m->user[0] && strlen(m->user) <= HUTCH_MAX_USER));
	require(m->timeout_ms <= HUTCH_MAX_TIMEOUT_MS && m->grace_ms <= HUTCH_MAX_GRACE_MS);
	require(!m->pty || (m->rows >= 1 && m->rows <= 65535 && m->cols >= 1 && m->cols <= 65535));
	require(!m->pty || (m->term[0] && strlen(m->term) <= HUTCH_MAX_TERM));
}

static void start(const uint8_t *data, size_t size)
{
	struct mp_buf a = {0}, b = {0};
	struct exec_start m, again;
	struct hutch_error err;

	if (exec_start_decode(&m, data, size, &err) < 0) {
		refused(&err);
		exec_start_free(&m);
		return;
	}
	check_start(&m);
	exec_start_encode_params(&a, &m);
	exec_start_free(&m);
	if (a.failed) { /* longer than it came: map16 where there was a fixmap */
		require(size > HUTCH_MAX_CALL / 2);
		mp_buf_free(&a);
		return;
	}
	require(exec_start_decode(&again, a.data, a.len, &err) == 0);
	check_start(&again);
	exec_start_encode_params(&b, &again);
	exec_start_free(&again);
	same_bytes(&a, &b);
}

static void result(const uint8_t *data, size_t size)
{
	struct mp_buf b = {0};
	struct exec_result m, again;
	struct hutch_error err;

	if (exec_result_decode(&m, data, size, &err) < 0) {
		refused(&err);
		return;
	}
	require(m.exit_code <= 255 && m.signal <= 64);
	require(exec_result_encode(&b, &m) == 0);
	require(exec_result_decode(&again, b.data + 8, b.len - 8, &err) == 0);
	/* A start_error without a kind is none. */
	if (m.start_error.kind[0])
		require(memcmp(&m, &again, sizeof(m)) == 0);
	mp_buf_free(&b);
}

static void event(const uint8_t *data, size_t size)
{
	struct mp_buf b = {0};
	struct exec_event m, again;
	struct hutch_error err;

	if (exec_event_decode(&m, data, size, &err) < 0) {
		refused(&err);
		return;
	}
	if (m.type != EXEC_EVENT_OTHER) {
		require(exec_event_encode(&b, &m) == 0);
		require(exec_event_decode(&again, b.data + 8, b.len - 8, &err) == 0);
		require(memcmp(&m, &again, sizeof(m)) == 0);
	}
	mp_buf_free(&b);
}

static void identity(const uint8_t *data, size_t size)
{
	struct mp_buf a = {0}, b = {0};
	struct agent_identity m, again;
	struct hutch_error err;

	if (agent_identity_decode(&m, data, size, &err) < 0) {
		refused(&err);
		agent_identity_free(&m);
		return;
	}
	require(m.generation >= 1 && strlen(m.machine_id) == 32 && m.hostname[0]);
	require(m.entropy_len >= HUTCH_MIN_ENTROPY && m.entropy_len <= HUTCH_MAX_ENTROPY);
	agent_identity_encode_params(&a, &m);
	agent_identity_free(&m);
	require(!a.failed && agent_identity_decode(&again, a.data, a.len, &err) == 0);
	agent_identity_encode_params(&b, &again);
	agent_identity_free(&again);
	same_bytes(&a, &b);
}

static void small(unsigned which, const uint8_t *data, size_t size)
{
	struct exec_attach attach;
	struct exec_signal sig;
	struct exec_resize resize;
	struct agent_prepared prepared;
	struct agent_resume resume;
	struct hutch_error err;
	uint64_t timeout;
	uint32_t grace;
	bool close;
	int rc;

	switch (which) {
	case 0:
		rc = exec_attach_decode(&attach, data, size, &err);
		require(rc < 0 || !attach.tail || !attach.has_stdout_after);
		break;
	case 1:
		rc = exec_signal_decode(&sig, data, size, &err);
		require(rc < 0 || (sig.signal >= 1 && sig.signal <= 64));
		break;
	case 2:
		rc = exec_resize_decode(&resize, data, size, &err);
		require(rc < 0 || (resize.rows >= 1 && resize.cols <= 65535));
		break;
	case 3:
		rc = msg_timeout_decode(&timeout, data, size, &err);
		require(rc < 0 || timeout <= HUTCH_MAX_TIMEOUT_MS);
		break;
	case 4:
		rc = msg_grace_decode(&grace, 1000, data, size, &err);
		require(rc < 0 || grace <= HUTCH_MAX_GRACE_MS);
		break;
	case 5:
		rc = msg_close_decode(&close, data, size, &err);
		break;
	case 6:
		rc = agent_prepare_decode(&grace, data, size, &err);
		require(rc < 0 || (grace >= 1 && grace <= HUTCH_MAX_FREEZE_MS));
		break;
	case 7:
		rc = agent_prepared_decode(&prepared, data, size, &err);
		require(rc < 0 || prepared.generation <= HUTCH_MAX_UINT);
		break;
	default:
		rc = agent_resume_decode(&resume, data, size, &err);
		require(rc < 0 || resume.realtime_ns <= HUTCH_MAX_UINT);
		break;
	}
	if (rc < 0)
		refused(&err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0] % 13) {
	case 0:
		start(data + 1, size - 1);
		break;
	case 1:
		result(data + 1, size - 1);
		break;
	case 2:
		event(data + 1, size - 1);
		break;
	case 3:
		identity(data + 1, size - 1);
		break;
	default:
		small(data[0] % 13 - 4, data + 1, size - 1);
		break;
	}
	return 0;
}
