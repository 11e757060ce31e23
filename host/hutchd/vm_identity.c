/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a VM itself. */
#include "host/hutchd/vm_identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <uuid.h>

#include "protocol/msg_exec.h"

#define ENTROPY_BYTES 64u

/* The VM's name where it is a host name label (RFC 1123), else one made of its id. */
static void host_name(const struct vm *vm, char *out, size_t size)
{
	const char *name = vm->r.name;
	size_t len = strlen(name);
	bool fits = len > 0 && len <= 63 && name[0] != '-' && name[len - 1] != '-';

	for (size_t i = 0; i < len && fits; i++)
		fits = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
		       (name[i] >= '0' && name[i] <= '9') || name[i] == '-';
	if (fits)
		snprintf(out, size, "%s", name);
	else
		snprintf(out, size, "vm-%.8s", vm->r.id);
}

static uint64_t realtime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Its own for life. */
static void machine_id(struct vm *vm, char *out, size_t size)
{
	uuid_t machine;

	if (!vm->r.machine_id[0]) {
		uuid_generate_random(machine);
		for (size_t i = 0; i < sizeof(machine); i++)
			snprintf(vm->r.machine_id + 2 * i, 3, "%02x", machine[i]);
	}
	snprintf(out, size, "%s", vm->r.machine_id);
}

static int fill(struct agent_identity *id, struct vm *vm, uint8_t *entropy)
{
	if (getrandom(entropy, ENTROPY_BYTES, 0) != (ssize_t)ENTROPY_BYTES)
		return -1;
	*id = (struct agent_identity){.generation = vm->r.generation,
				      .realtime_ns = realtime_ns(),
				      .entropy = entropy,
				      .entropy_len = ENTROPY_BYTES,
				      .disk_bytes = vm->disk_grows ? (uint64_t)vm->r.disk_mib << 20
								   : 0,
				      .keep_keys = vm->state == VM_PARKED};
	host_name(vm, id->hostname, sizeof(id->hostname));
	machine_id(vm, id->machine_id, sizeof(id->machine_id));
	return 0;
}

struct guest_call *vm_identity_give(struct vm *vm, struct guest_link *link, guest_call_done *done,
				    void *arg)
{
	struct msg_call call = {.method = "agent.identity"};
	struct guest_call *started = NULL;
	uint8_t entropy[ENTROPY_BYTES];
	struct agent_identity id;
	struct mp_buf params;

	mp_buf_init(&params, 4096);
	if (fill(&id, vm, entropy) == 0) {
		agent_identity_encode_params(&params, &id);
		call.params = params.data;
		call.params_len = params.len;
		if (!params.failed)
			started = guest_call_start(&vm->pool, link, &call, 0, done, arg);
	}
	mp_buf_free(&params);
	explicit_bzero(entropy, sizeof(entropy));
	return started;
}

int vm_identity_confirmed(const struct vm *vm, const uint8_t *payload, size_t len,
			  struct hutch_error *err)
{
	struct mp_reader reader;
	uint64_t generation = 0;
	struct mp_doc doc;

	if (mp_doc_parse(&doc, payload, len, err) < 0)
		return -1;
	mp_reader_init(&reader, &doc, &doc.root, "agent.identity's result", err);
	mp_get_uint(&reader, "generation", 0, UINT64_MAX, &generation);
	mp_doc_free(&doc);
	if (err->kind)
		return -1;
	if (generation == vm->r.generation)
		return 0;
	return hutch_error_set(err, HUTCH_E_INTERNAL, 0,
			       "the agent confirms generation %llu, and was given %llu",
			       (unsigned long long)generation,
			       (unsigned long long)vm->r.generation);
}

struct guest_call *vm_identity_resume(struct vm *vm, struct guest_link *link, uint64_t timeout_ms,
				      guest_call_done *done, void *arg)
{
	const struct agent_resume resume = {.generation = vm->r.generation,
					    .realtime_ns = realtime_ns()};
	struct msg_call call = {.method = "snapshot.resume"};
	struct guest_call *started = NULL;
	struct mp_buf params;

	mp_buf_init(&params, 256);
	agent_resume_encode_params(&params, &resume);
	call.params = params.data;
	call.params_len = params.len;
	if (!params.failed)
		started = guest_call_start(&vm->pool, link, &call, timeout_ms, done, arg);
	mp_buf_free(&params);
	return started;
}
