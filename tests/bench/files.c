/* SPDX-License-Identifier: Apache-2.0 */
/* Files and trees over the wire; see bench.h. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/msg_fs.h"
#include "tests/bench/bench.h"

#define PIECE  65536
#define PIECES 16 /* frames in one send */
#define MIB    1048576.0

static void encode_fs(struct mp_buf *out, const char *vm, const struct fs_call *call,
		      unsigned flags)
{
	struct mp_buf params;

	mp_buf_init(&params, HUTCH_MAX_CALL);
	fs_call_encode_params(&params, call);
	encode_params(out, fs_method_name(call->method), vm, &params, flags);
	mp_buf_free(&params);
}

static void request(struct conn *c, const char *vm, const struct fs_call *call, unsigned flags)
{
	struct mp_buf out;

	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_fs(&out, vm, call, flags);
	send_all(c, out.data, out.len);
	mp_buf_free(&out);
}

/* size bytes of input, ended: those at data, or, when it is NULL, any. */
static void send_input(struct conn *c, const uint8_t *data, uint64_t size)
{
	static uint8_t buf[PIECES][HUTCH_FRAME_HEADER + PIECE];
	size_t used = 0;
	uint64_t at = 0;

	if (data == NULL && buf[0][HUTCH_FRAME_HEADER] == 0)
		for (size_t i = 0; i < sizeof(buf); i++)
			((uint8_t *)buf)[i] = (uint8_t)(i * 7 + 1);
	while (at < size) {
		uint32_t len = size - at < PIECE ? (uint32_t)(size - at) : PIECE;
		uint8_t *p = (uint8_t *)buf + used;

		at += len;
		frame_encode(p, &(struct frame){.type = FRAME_STDIN,
						.flags = at == size ? FRAME_END : 0,
						.length = len});
		if (data != NULL)
			memcpy(p + HUTCH_FRAME_HEADER, data + at - len, len);
		used += HUTCH_FRAME_HEADER + len;
		if (used == sizeof(buf) || at == size) {
			send_all(c, buf, used);
			used = 0;
		}
	}
}

static struct fs_call write_call(const char *path, uint64_t size)
{
	return (struct fs_call){.method = FS_WRITE,
				.given = FS_P_PATH | FS_P_SIZE,
				.path = path,
				.size = size};
}

static struct fs_call path_call(enum fs_method method, const char *path)
{
	return (struct fs_call){.method = method, .given = FS_P_PATH, .path = path};
}

static void write_file(struct conn *c, const char *vm, const char *path, uint64_t size)
{
	const struct fs_call call = write_call(path, size);

	request(c, vm, &call, 0);
	send_input(c, NULL, size);
	finish(c, false);
}

void file_in(struct conn *c, const char *vm, long n, const char *path, uint64_t size)
{
	for (long i = 0; i < n; i++) {
		double t = now_us();

		write_file(c, vm, path, size);
		printf("%.2f\n", (double)size / MIB / ((now_us() - t) / 1e6));
	}
}

/* Read output up to the RESULT; returns how much there was. */
static uint64_t take_output(struct conn *c)
{
	uint64_t bytes = 0;

	for (;;) {
		struct frame f = peek(c);

		if (f.type == FRAME_ERROR || f.type == FRAME_RESULT) {
			finish(c, false);
			return bytes;
		}
		if (f.type == FRAME_STDOUT)
			bytes += f.length;
		next(c, &f);
	}
}

void file_out(struct conn *c, const char *vm, long n, const char *path)
{
	const struct fs_call call = path_call(FS_READ, path);

	for (long i = 0; i < n; i++) {
		double t = now_us();
		uint64_t bytes;

		request(c, vm, &call, FRAME_END);
		bytes = take_output(c);
		printf("%.2f\n", (double)bytes / MIB / ((now_us() - t) / 1e6));
	}
}

/* A small file written, then read: two calls. */
void file_rw(struct conn *c, const char *vm, long n, const char *path, uint64_t size)
{
	const struct fs_call call = path_call(FS_READ, path);

	for (long i = -3; i < n; i++) {
		double t = now_us();

		write_file(c, vm, path, size);
		request(c, vm, &call, FRAME_END);
		if (take_output(c) != size)
			die("not what was written");
		if (i >= 0)
			printf("%.4f\n", (now_us() - t) / 1e3);
	}
}

void tar_in(struct conn *c, const char *vm, long n, const char *path, const char *archive)
{
	struct fs_call away = path_call(FS_REMOVE, path), call = path_call(FS_TAR_IN, path);
	int fd = open(archive, O_RDONLY | O_CLOEXEC);
	struct stat st;
	const uint8_t *data;

	if (fd < 0 || fstat(fd, &st) < 0)
		die(archive);
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (data == MAP_FAILED)
		die(archive);
	away.given |= FS_P_RECURSIVE | FS_P_MISSING_OK;
	away.recursive = away.missing_ok = true;
	call.given |= FS_P_PARENTS;
	call.parents = true;
	for (long i = 0; i < n; i++) {
		double t;

		request(c, vm, &away, FRAME_END);
		finish(c, false);
		t = now_us();
		request(c, vm, &call, 0);
		send_input(c, data, (uint64_t)st.st_size);
		finish(c, false);
		printf("%.4f\n", (now_us() - t) / 1e6);
	}
	close(fd);
}

void tar_out(struct conn *c, const char *vm, long n, const char *path)
{
	const struct fs_call call = path_call(FS_TAR_OUT, path);

	for (long i = 0; i < n; i++) {
		double t = now_us();

		request(c, vm, &call, FRAME_END);
		take_output(c);
		printf("%.4f\n", (now_us() - t) / 1e6);
	}
}

/* Pings while another connection writes a file, again and again. */
void ping_under_bulk(const char *socket, const char *vm, long n, const char *path, uint64_t size)
{
	int begun[2];
	pid_t writer;
	char byte;

	if (pipe(begun) < 0)
		die("pipe");
	writer = fork();
	if (writer < 0)
		die("fork");
	if (writer == 0) {
		struct conn *c = dial(socket);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		write_file(c, vm, path, 1);
		if (write(begun[1], "x", 1) < 0)
			die("pipe");
		for (;;)
			write_file(c, vm, path, size);
	}
	if (read(begun[0], &byte, 1) != 1)
		die("nothing was written");
	calls(dial(socket), "ping", vm, NULL, n);
	kill(writer, SIGKILL);
	waitpid(writer, NULL, 0);
	close(begun[0]);
	close(begun[1]);
}
