/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker without launcher and socket, for tests of what stands between client and agent: clients are socketpairs,
 * VMs are records in a temporary directory whose vsock socket the test itself listens on. The test is
 * both peers and turns the loop; nothing else runs.
 */
#ifndef HUTCH_TESTS_BROKER_RIG_H
#define HUTCH_TESTS_BROKER_RIG_H

#include "host/hutchd/client.h"
#include "host/hutchd/vm.h"

struct rig {
	struct broker b;
	struct config config;
	char dir[64];
	int dir_fd;
};

struct rig *rig_new(void);
void rig_free(struct rig *r);
/* Turn the loop until nothing is ready. */
void rig_turn(struct rig *r);
/* Turn it for ms at most, or until cond(arg) holds. Returns whether it held. */
bool rig_until(struct rig *r, unsigned ms, bool (*cond)(void *arg), void *arg);

/* A running VM of uid with an open pool; its rundir is its own, *listen_fd the test's end of its vsock socket. */
struct vm *rig_vm(struct rig *r, uint32_t uid, const char *name, int *listen_fd);

/* The peer's end of a client's connection. */
int rig_client(struct rig *r, uint32_t uid);
/* The same with HELLO said and the broker's HELLO read. */
int rig_client_open(struct rig *r, uint32_t uid);

/* Accept a dial of the broker's, answer OK and exchange HELLO. -1: nobody dials. */
int rig_agent(struct rig *r, int listen_fd);
/* Only accept, and read the CONNECT line. */
int rig_accept(struct rig *r, int listen_fd);

/* Peers: blocking towards the kernel, non-blocking towards the broker. */
void peer_send(int fd, enum frame_type type, unsigned flags, const void *payload, size_t len);
void peer_raw(int fd, const void *data, size_t len);
void peer_hello_as(int fd, enum msg_role role);
void peer_call(int fd, const struct msg_call *call, unsigned flags);

struct peer_frame {
	struct frame f;
	uint8_t *payload; /* malloc'ed */
};
/* Read one frame, turning the loop; false at the end of the stream or after ms. */
bool peer_read(struct rig *r, int fd, unsigned ms, struct peer_frame *out);
/* Read one and compare type and flags; the payload is kept in *out (freed when out is NULL). */
void peer_expect(struct rig *r, int fd, enum frame_type type, unsigned flags,
		 struct peer_frame *out);
/* Read an ERROR. */
enum hutch_error_kind peer_expect_error(struct rig *r, int fd, struct hutch_error *said);
/* The stream ends without another frame. */
void peer_expect_end(struct rig *r, int fd);

#endif
