/* SPDX-License-Identifier: Apache-2.0 */
/* vm.*, template.*, snapshot.* and pool.*; the first byte selects. As fuzz_msg_exec. */
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_snapshot.h"
#include "protocol/msg_vm.h"

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

static void check_create(const struct vm_create *m)
{
	size_t bytes = 0;

	require(hutch_name_valid(m->template_name, strlen(m->template_name), 64));
	require(!m->name[0] || hutch_name_valid(m->name, strlen(m->name), 128));
	require(m->ttl_ms >= 1 && m->ttl_ms <= HUTCH_MAX_TTL_MS && m->timeout_ms >= 1);
	require(!m->memory_mib || (m->memory_mib >= 64 && m->memory_mib <= 65536));
	require(m->vcpus <= 32 && m->metadata_pairs <= HUTCH_MAX_METADATA);
	for (size_t i = 0; i < 2 * m->metadata_pairs; i++)
		bytes += strlen(m->metadata[i]);
	require(bytes <= HUTCH_MAX_METADATA_BYTES);
	require(!m->metadata || !m->metadata[2 * m->metadata_pairs]);
}

static void create(const uint8_t *data, size_t size)
{
	struct mp_buf a = {0}, b = {0};
	struct vm_create m, again;
	struct hutch_error err;

	if (vm_create_decode(&m, data, size, &err) < 0) {
		refused(&err);
		vm_create_free(&m);
		return;
	}
	check_create(&m);
	vm_create_encode_params(&a, &m);
	vm_create_free(&m);
	require(!a.failed && vm_create_decode(&again, a.data, a.len, &err) == 0);
	check_create(&again);
	vm_create_encode_params(&b, &again);
	vm_create_free(&again);
	require(!b.failed && a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
	mp_buf_free(&a);
	mp_buf_free(&b);
}

static int fork_vm(const uint8_t *data, size_t size, struct hutch_error *err)
{
	struct vm_fork m;
	int rc = vm_fork_decode(&m, data, size, err);

	require(rc < 0 || (m.count >= 1 && m.count <= HUTCH_MAX_FORK));
	require(rc < 0 || !m.name[0] || hutch_name_valid(m.name, strlen(m.name), 128));
	vm_fork_free(&m);
	return rc;
}

static int snapshots(unsigned which, const uint8_t *data, size_t size, struct hutch_error *err)
{
	char name[HUTCH_MAX_SNAPSHOT_NAME + 1];
	struct template_snapshot t;
	struct snapshot_create c;
	struct pool_set p;
	int rc;

	if (which == 0) {
		rc = snapshot_create_decode(&c, data, size, err);
		require(rc < 0 || hutch_name_valid(c.name, strlen(c.name), 64));
	} else if (which == 1) {
		rc = snapshot_name_decode(name, "snapshot.info", data, size, err);
		require(rc < 0 || hutch_name_valid(name, strlen(name), 64));
	} else if (which == 2) {
		rc = template_snapshot_decode(&t, data, size, err);
		require(rc < 0 || hutch_name_valid(t.name, strlen(t.name), 64));
	} else {
		rc = pool_set_decode(&p, data, size, err);
		require(rc < 0 || p.size <= HUTCH_MAX_POOL);
	}
	return rc;
}

static int set_idle(const uint8_t *data, size_t size, struct hutch_error *err)
{
	struct vm_idle m;
	int rc = vm_set_idle_decode(&m, data, size, err);

	require(rc < 0 || !m.pause_after_ms || m.pause_after_ms >= HUTCH_MIN_IDLE_MS);
	require(rc < 0 || m.park_after_ms <= HUTCH_MAX_TTL_MS);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char name[HUTCH_MAX_TEMPLATE_NAME + 1];
	struct hutch_error err;
	uint64_t ttl;
	bool all;
	int rc;

	if (size == 0)
		return 0;
	switch (data[0] % 10) {
	case 0:
		create(data + 1, size - 1);
		return 0;
	case 1:
		rc = vm_set_ttl_decode(&ttl, data + 1, size - 1, &err);
		require(rc < 0 || (ttl >= 1 && ttl <= HUTCH_MAX_TTL_MS));
		break;
	case 2:
		rc = vm_kill_decode(&all, data + 1, size - 1, &err);
		break;
	case 4:
		rc = fork_vm(data + 1, size - 1, &err);
		break;
	case 5:
	case 6:
	case 7:
	case 8:
		rc = snapshots(data[0] % 10u - 5, data + 1, size - 1, &err);
		break;
	case 9:
		rc = set_idle(data + 1, size - 1, &err);
		break;
	default:
		rc = template_remove_decode(name, data + 1, size - 1, &err);
		require(rc < 0 || hutch_name_valid(name, strlen(name), 64));
		break;
	}
	if (rc < 0)
		refused(&err);
	return 0;
}
