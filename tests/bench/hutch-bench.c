/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timing half of tests/bench/run: does one thing N times over the wire (or starts one program N times) and prints
 * one sample a line. It speaks the protocol with plain blocking reads, so that what is measured is hutch and
 * not a client library.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "protocol/msg.h"
#include "protocol/msg_exec.h"

extern char **environ;

struct conn {
	int fd;
	size_t have; /* bytes in buf */
	uint8_t buf[HUTCH_FRAME_HEADER + HUTCH_MAX_CALL];
};

static void die(const char *what) __attribute__((noreturn));
static void die(const char *what)
{
	fprintf(stderr, "hutch-bench: %s: %s\n", what, errno ? strerror(errno) : "failed");
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void send_all(struct conn *c, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(c->fd, p, len, MSG_NOSIGNAL);

		if (n < 0)
			die("send");
		p += n;
		len -= (size_t)n;
	}
}

/* Wait for one whole frame; its payload is at c->buf + HUTCH_FRAME_HEADER until next(). */
static struct frame peek(struct conn *c)
{
	struct frame f = {0};
	struct hutch_error err = {0};

	for (;;) {
		ssize_t n;

		if (c->have >= HUTCH_FRAME_HEADER) {
			if (frame_decode(c->buf, &f, &err) < 0) {
				fprintf(stderr, "hutch-bench: %s\n", err.message);
				exit(1);
			}
			if (c->have >= HUTCH_FRAME_HEADER + f.length)
				return f;
		}
		n = recv(c->fd, c->buf + c->have, sizeof(c->buf) - c->have, 0);
		if (n <= 0)
			die("the connection ended");
		c->have += (size_t)n;
	}
}

static void next(struct conn *c, const struct frame *f)
{
	size_t size = HUTCH_FRAME_HEADER + f->length;

	memmove(c->buf, c->buf + size, c->have - size);
	c->have -= size;
}

static struct conn *dial(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION, .role = ROLE_CLIENT};
	struct conn *c = calloc(1, sizeof(*c));
	struct mp_buf out;
	struct frame f;

	if (c == NULL || strlen(path) >= sizeof(addr.sun_path))
		die(path);
	memcpy(addr.sun_path, path, strlen(path));
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		die(path);
	strcpy(hello.name, "hutch-bench");
	mp_buf_init(&out, HUTCH_MAX_CALL);
	msg_hello_encode(&out, &hello);
	send_all(c, out.data, out.len);
	mp_buf_free(&out);
	f = peek(c);
	if (f.type != FRAME_HELLO)
		die("no HELLO");
	next(c, &f);
	return c;
}

static void encode_call(struct mp_buf *out, const char *method, const char *vm,
			const struct exec_start *start, unsigned flags)
{
	struct msg_call call = {0};
	struct mp_buf params;

	mp_buf_init(&params, HUTCH_MAX_CALL);
	snprintf(call.method, sizeof(call.method), "%s", method);
	snprintf(call.vm, sizeof(call.vm), "%s", vm);
	if (start != NULL) {
		exec_start_encode_params(&params, start);
		call.params = params.data;
		call.params_len = params.len;
	}
	if (msg_call_encode(out, &call, flags) < 0)
		die("encode");
	mp_buf_free(&params);
}

/* Read up to the RESULT. An ERROR, or an exec that did not exit with 0, ends the run. */
static void finish(struct conn *c, bool exec)
{
	struct hutch_error err = {0}, bad = {0};
	struct exec_result result;

	for (;;) {
		struct frame f = peek(c);
		const uint8_t *payload = c->buf + HUTCH_FRAME_HEADER;

		if (f.type == FRAME_ERROR) {
			msg_error_decode(&err, payload, f.length, &bad);
			fprintf(stderr, "hutch-bench: %s\n", err.message);
			exit(1);
		}
		if (f.type == FRAME_RESULT && exec &&
		    (exec_result_decode(&result, payload, f.length, &bad) < 0 ||
		     result.exit_code != 0)) {
			fprintf(stderr, "hutch-bench: exit code %u\n", result.exit_code);
			exit(1);
		}
		next(c, &f);
		if (f.type == FRAME_RESULT)
			return;
	}
}

static void calls(struct conn *c, const char *method, const char *vm,
		  const struct exec_start *start, long n)
{
	struct mp_buf out;

	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_call(&out, method, vm, start, FRAME_END);
	for (long i = -3; i < n; i++) { /* three to warm up */
		double t = now_us();

		send_all(c, out.data, out.len);
		finish(c, start != NULL && !start->detach);
		if (i >= 0)
			printf("%.4f\n", (now_us() - t) / 1e3);
	}
	mp_buf_free(&out);
}

static void hold(struct conn *c, const char *vm, struct exec_start *start, long n)
{
	struct mp_buf out;

	mp_buf_init(&out, HUTCH_MAX_CALL);
	start->detach = true;
	encode_call(&out, "exec.start", vm, start, FRAME_END);
	for (long i = 0; i < n; i++) {
		send_all(c, out.data, out.len);
		finish(c, false);
	}
	mp_buf_free(&out);
}

/* width execs at once, each on its own connection; a sample is the time until all are done. */
static void parallel(const char *path, const char *vm, const struct exec_start *start, long n,
		     long width)
{
	struct conn **c = calloc((size_t)width, sizeof(struct conn *));
	struct mp_buf out;

	if (c == NULL)
		die("memory");
	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_call(&out, "exec.start", vm, start, FRAME_END);
	for (long k = 0; k < width; k++)
		c[k] = dial(path);
	for (long i = -1; i < n; i++) {
		double t = now_us();

		for (long k = 0; k < width; k++)
			send_all(c[k], out.data, out.len);
		for (long k = 0; k < width; k++)
			finish(c[k], true);
		if (i >= 0)
			printf("%.4f\n", (now_us() - t) / 1e3);
	}
	for (long k = 0; k < width; k++) {
		close(c[k]->fd);
		free(c[k]);
	}
	free(c);
	mp_buf_free(&out);
}

/* Pings while another connection reads all that a program writes. */
static void ping_under_output(const char *path, const char *vm, const struct exec_start *start,
			      long n)
{
	pid_t reader = fork();

	if (reader < 0)
		die("fork");
	if (reader == 0) {
		struct conn *c = dial(path);
		struct mp_buf out;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mp_buf_init(&out, HUTCH_MAX_CALL);
		encode_call(&out, "exec.start", vm, start, FRAME_END);
		send_all(c, out.data, out.len);
		finish(c, false);
		_exit(0);
	}
	calls(dial(path), "ping", vm, NULL, n);
	kill(reader, SIGKILL);
	waitpid(reader, NULL, 0);
}

/* One byte to `cat` on a PTY in raw mode, until it comes back. */
static void pty_echo(struct conn *c, const char *vm, long n)
{
	struct exec_start start = {.pty = true, .rows = 24, .cols = 80, .term = "xterm"};
	char *argv[] = {"sh", "-c", "stty raw -echo; echo ready; exec cat", NULL};
	static const uint8_t one[] = {0, 0, 0, 1, FRAME_STDIN, 0, 0, 0, 'x'};
	struct mp_buf out;
	struct frame f;

	start.argv = argv;
	start.argc = 3;
	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_call(&out, "exec.start", vm, &start, 0);
	send_all(c, out.data, out.len);
	mp_buf_free(&out);
	for (bool ready = false; !ready;) {
		f = peek(c);
		if (f.type != FRAME_STDOUT)
			die("no output from the PTY");
		ready = memchr(c->buf + HUTCH_FRAME_HEADER, '\n', f.length) != NULL;
		next(c, &f);
	}
	for (long i = -3; i < n; i++) {
		double t = now_us();

		send_all(c, one, sizeof(one));
		f = peek(c);
		if (f.type != FRAME_STDOUT)
			die("no echo from the PTY");
		next(c, &f);
		if (i >= 0)
			printf("%.4f\n", (now_us() - t) / 1e3);
	}
}

static void spawn(char **argv, long n)
{
	posix_spawn_file_actions_t quiet;
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", 0, 0);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", 1, 0);
	for (long i = 0; i < n; i++) {
		double t = now_us();

		errno = posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ);
		if (errno != 0 || waitpid(pid, &status, 0) != pid)
			die(argv[0]);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			errno = 0;
			die(argv[0]);
		}
		printf("%.4f\n", (now_us() - t) / 1e3);
	}
	posix_spawn_file_actions_destroy(&quiet);
}

static int usage(void)
{
	fputs("usage: hutch-bench spawn N COMMAND...\n"
	      "       hutch-bench ping|pty-echo SOCKET VM N\n"
	      "       hutch-bench exec|hold|ping-under SOCKET VM N COMMAND...\n"
	      "       hutch-bench parallel SOCKET VM N WIDTH COMMAND...\n"
	      "VM is '' when SOCKET is an agent's own.\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct exec_start start = {.drain_ms = HUTCH_DEFAULT_DRAIN_MS};
	const char *mode = argc > 1 ? argv[1] : "";
	int at = strcmp(mode, "parallel") == 0 ? 6 : 5;
	long n;

	if (strcmp(mode, "spawn") == 0 && argc > 3) {
		spawn(argv + 3, strtol(argv[2], NULL, 10));
		return 0;
	}
	if (argc < 5)
		return usage();
	n = strtol(argv[4], NULL, 10);
	start.argv = argv + at;
	start.argc = argc > at ? (size_t)(argc - at) : 0;
	if (strcmp(mode, "ping") == 0)
		calls(dial(argv[2]), "ping", argv[3], NULL, n);
	else if (strcmp(mode, "pty-echo") == 0)
		pty_echo(dial(argv[2]), argv[3], n);
	else if (start.argc == 0)
		return usage();
	else if (strcmp(mode, "exec") == 0)
		calls(dial(argv[2]), "exec.start", argv[3], &start, n);
	else if (strcmp(mode, "hold") == 0)
		hold(dial(argv[2]), argv[3], &start, n);
	else if (strcmp(mode, "ping-under") == 0)
		ping_under_output(argv[2], argv[3], &start, n);
	else if (strcmp(mode, "parallel") == 0)
		parallel(argv[2], argv[3], &start, n, strtol(argv[5], NULL, 10));
	else
		return usage();
	return 0;
}
