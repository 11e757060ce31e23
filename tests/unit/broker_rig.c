/* SPDX-License-Identifier: Apache-2.0 */
/* A broker without launcher and socket, and its peers. */
#include "tests/unit/broker_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uuid.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"

struct rig *rig_new(void)
{
	struct rig *r = calloc(1, sizeof(*r));

	ck_assert_ptr_nonnull(r);
	log_setup("test", LOG_LEVEL_ERROR, 0);
	strcpy(r->dir, "/tmp/hutch-unit-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(r->dir));
	r->dir_fd = dir_open(AT_FDCWD, r->dir);
	config_defaults(&r->config);
	r->b.config = &r->config;
	r->b.uid = geteuid();
	r->b.state_fd = r->b.templates_fd = -1;
	r->b.vms_fd = r->dir_fd;
	r->b.claim = (struct claim){.state_lock = -1, .socket_lock = -1, .dir_fd = -1};
	TAILQ_INIT(&r->b.vms);
	TAILQ_INIT(&r->b.tombs);
	TAILQ_INIT(&r->b.clients);
	ck_assert_int_eq(loop_init(&r->b.loop), 0);
	ck_assert_int_eq(vm_ttl_init(&r->b), 0);
	return r;
}

void rig_free(struct rig *r)
{
	char path[128];

	r->b.stopping = true;
	while (!TAILQ_EMPTY(&r->b.clients))
		client_close(TAILQ_FIRST(&r->b.clients));
	while (!TAILQ_EMPTY(&r->b.vms))
		vm_free(TAILQ_FIRST(&r->b.vms));
	while (!TAILQ_EMPTY(&r->b.tombs))
		vm_free(TAILQ_FIRST(&r->b.tombs));
	vm_ttl_free(&r->b);
	loop_free(&r->b.loop);
	close(r->dir_fd);
	snprintf(path, sizeof(path), "%s", r->dir + strlen("/tmp/"));
	r->dir_fd = dir_open(AT_FDCWD, "/tmp");
	tree_remove(r->dir_fd, path);
	close(r->dir_fd);
	free(r);
}

void rig_turn(struct rig *r)
{
	for (int i = 0; i < 8; i++)
		event_base_loop(r->b.loop.base, EVLOOP_NONBLOCK);
}

bool rig_until(struct rig *r, unsigned ms, bool (*cond)(void *arg), void *arg)
{
	const struct timeval tick = {.tv_usec = 2000};
	uint64_t end = clock_us() + ms * 1000ull;

	while (!(cond && cond(arg))) {
		if (clock_us() > end)
			return false;
		event_base_loopexit(r->b.loop.base, &tick);
		event_base_loop(r->b.loop.base, EVLOOP_ONCE);
	}
	return true;
}

struct vm *rig_vm(struct rig *r, uint32_t uid, const char *name, int *listen_fd)
{
	struct vm_record rec = {.owner_uid = uid, .step = STEP_RUNNING, .cid = 3, .generation = 1};
	struct vm *vm;
	uuid_t id;
	int fd;

	uuid_generate_random(id);
	uuid_unparse_lower(id, rec.id);
	snprintf(rec.name, sizeof(rec.name), "%s", name);
	fd = dir_make(r->dir_fd, rec.id);
	ck_assert_int_ge(fd, 0);
	*listen_fd = unix_listen(fd, "vsock", SOCK_STREAM, 64);
	ck_assert_int_ge(*listen_fd, 0);
	vm = vm_new(&r->b, &rec, fd);
	ck_assert_ptr_nonnull(vm);
	ck_assert(vm_state_set(&vm->state, VM_RUNNING, vm->object));
	guest_pool_open(&vm->pool, false);
	return vm;
}

int rig_client(struct rig *r, uint32_t uid)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
			 0);
	ck_assert_ptr_nonnull(client_new(&r->b, pair[0], uid, getpid()));
	return pair[1];
}

int rig_client_open(struct rig *r, uint32_t uid)
{
	int fd = rig_client(r, uid);

	peer_hello_as(fd, ROLE_CLIENT);
	peer_expect(r, fd, FRAME_HELLO, 0, NULL);
	return fd;
}

static bool readable(void *arg)
{
	struct pollfd p = {.fd = *(int *)arg, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

int rig_accept(struct rig *r, int listen_fd)
{
	char line[32] = "";
	size_t n = 0;
	int fd;

	if (!rig_until(r, 2000, readable, &listen_fd))
		return -1;
	fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	while (n == 0 || line[n - 1] != '\n') {
		ck_assert(rig_until(r, 2000, readable, &fd));
		ck_assert_int_eq(read(fd, line + n, 1), 1);
		n++;
	}
	ck_assert_str_eq(line, "CONNECT 520\n");
	return fd;
}

int rig_agent(struct rig *r, int listen_fd)
{
	int fd = rig_accept(r, listen_fd);

	if (fd < 0)
		return -1;
	peer_raw(fd, "OK 1024\n", 8);
	peer_hello_as(fd, ROLE_AGENT);
	peer_expect(r, fd, FRAME_HELLO, 0, NULL);
	return fd;
}

void peer_raw(int fd, const void *data, size_t len)
{
	ck_assert_int_eq(send(fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

void peer_send(int fd, enum frame_type type, unsigned flags, const void *payload, size_t len)
{
	const struct frame f = {.type = type, .flags = (uint8_t)flags, .length = (uint32_t)len};
	uint8_t *raw = malloc(HUTCH_FRAME_HEADER + len);

	frame_encode(raw, &f);
	if (len)
		memcpy(raw + HUTCH_FRAME_HEADER, payload, len);
	peer_raw(fd, raw, HUTCH_FRAME_HEADER + len);
	free(raw);
}

void peer_hello_as(int fd, enum msg_role role)
{
	const struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION,
					.role = role,
					.name = "test/1",
					.boot_id = "11111111-2222-3333-4444-555555555555",
					.generation = 1};
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_HELLO + HUTCH_FRAME_HEADER);
	ck_assert_int_eq(msg_hello_encode(&b, &hello), 0);
	peer_raw(fd, b.data, b.len);
	mp_buf_free(&b);
}

void peer_call(int fd, const struct msg_call *call, unsigned flags)
{
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_CALL + HUTCH_FRAME_HEADER);
	ck_assert_int_eq(msg_call_encode(&b, call, flags), 0);
	peer_raw(fd, b.data, b.len);
	mp_buf_free(&b);
}

static bool read_all(struct rig *r, int fd, unsigned ms, uint8_t *out, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = read(fd, out + at, len - at);

		if (n == 0 || (n < 0 && errno != EAGAIN))
			return false;
		if (n > 0)
			at += (size_t)n;
		else if (!rig_until(r, ms, readable, &fd))
			return false;
	}
	return true;
}

bool peer_read(struct rig *r, int fd, unsigned ms, struct peer_frame *out)
{
	uint8_t header[HUTCH_FRAME_HEADER];
	struct hutch_error err;

	hutch_error_clear(&err);
	out->payload = NULL;
	if (!read_all(r, fd, ms, header, sizeof(header)))
		return false;
	ck_assert_int_eq(frame_decode(header, &out->f, &err), 0);
	out->payload = malloc(out->f.length + 1);
	return read_all(r, fd, ms, out->payload, out->f.length);
}

void peer_expect(struct rig *r, int fd, enum frame_type type, unsigned flags,
		 struct peer_frame *out)
{
	struct peer_frame got;

	ck_assert_msg(peer_read(r, fd, 3000, &got), "no %s came", frame_type_name(type));
	if (got.f.type == FRAME_ERROR && type != FRAME_ERROR) {
		struct hutch_error said, err;

		msg_error_decode(&said, got.payload, got.f.length, &err);
		ck_abort_msg("ERROR {%s} instead of %s: %s", hutch_error_kind_name(said.kind),
			     frame_type_name(type), said.message);
	}
	ck_assert_str_eq(frame_type_name(got.f.type), frame_type_name(type));
	ck_assert_uint_eq(got.f.flags, flags);
	if (out)
		*out = got;
	else
		free(got.payload);
}

enum hutch_error_kind peer_expect_error(struct rig *r, int fd, struct hutch_error *said)
{
	struct hutch_error own, err;
	struct peer_frame got;

	if (!said)
		said = &own;
	hutch_error_clear(&err);
	peer_expect(r, fd, FRAME_ERROR, FRAME_END, &got);
	ck_assert_int_eq(msg_error_decode(said, got.payload, got.f.length, &err), 0);
	free(got.payload);
	return said->kind;
}

void peer_expect_end(struct rig *r, int fd)
{
	uint8_t byte;

	ck_assert(rig_until(r, 2000, readable, &fd));
	ck_assert_int_le(read(fd, &byte, 1), 0);
}
