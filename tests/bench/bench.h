/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timing half of tests/bench/run. It speaks the protocol with plain blocking reads, so that what is measured is
 * hutch and not a client library. Whatever fails ends the program.
 */
#ifndef HUTCH_BENCH_H
#define HUTCH_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/msg.h"
#include "protocol/msg_exec.h"

struct conn {
	int fd;
	size_t at, have; /* where in buf what was received is, and how much */
	uint8_t buf[HUTCH_FRAME_HEADER + HUTCH_MAX_CALL];
};

void die(const char *what) __attribute__((noreturn));
double now_us(void);

struct conn *dial(const char *path);
/* The same without HELLO. */
struct conn *dial_plain(const char *path);
void send_all(struct conn *c, const void *data, size_t len);
/* Wait for one whole frame; its payload is there until next(). */
struct frame peek(struct conn *c);
const uint8_t *payload(const struct conn *c);
void next(struct conn *c, const struct frame *f);
/* A whole CALL. params, start: NULL: none. */
void encode_params(struct mp_buf *out, const char *method, const char *vm,
		   const struct mp_buf *params, unsigned flags);
void encode_call(struct mp_buf *out, const char *method, const char *vm,
		 const struct exec_start *start, unsigned flags);
/* Read up to the RESULT; of an exec it must be an exit with 0. */
void finish(struct conn *c, bool exec);

/* n times the same call; start: of an exec, else NULL. Prints ms. */
void calls(struct conn *c, const char *method, const char *vm, const struct exec_start *start,
	   long n);

/* ---- files.c: each prints what its usage line says ---- */

void file_in(struct conn *c, const char *vm, long n, const char *path, uint64_t size);
void file_out(struct conn *c, const char *vm, long n, const char *path);
void file_rw(struct conn *c, const char *vm, long n, const char *path, uint64_t size);
void tar_in(struct conn *c, const char *vm, long n, const char *path, const char *archive);
void tar_out(struct conn *c, const char *vm, long n, const char *path);
void ping_under_bulk(const char *socket, const char *vm, long n, const char *path, uint64_t size);

/* ---- vms.c ---- */

/* vm.create and a ping of it; then its first exec: two numbers a sample, ms. */
void vm_create_ping(struct conn *c, const char *template_name, long n,
		    const struct exec_start *start);
/* One vm.fork of count children, until each has answered an exec: ms. */
void fork_exec(const char *socket, const char *vm, long n, long count,
	       const struct exec_start *start);
/* The longest silence of a command that writes all the time, around a vm.fork and in the 100 ms before it: two numbers, ms. */
void fork_gap(const char *socket, const char *vm, long n, const struct exec_start *start);

/* vm.park, and then a ping, which wakes it: two numbers, ms. */
void park_wake(struct conn *c, const char *vm, long n);

/* ---- raw.c ---- */

#define RAW_BYTES ((size_t)256 << 20)

/* raw-ping, raw-exec (ms), raw-in, raw-out (MiB/s): n times with raw-guest, which listens on port of the VM of that socket. */
void raw(const char *mode, const char *socket, long port, long n);

#endif
