/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-bench: does one thing N times over the wire (or starts one program N times); prints a sample a line. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

extern char **environ;

void calls(struct conn *c, const char *method, const char *vm, const struct exec_start *start,
	   long n)
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
		ready = memchr(payload(c), '\n', f.length) != NULL;
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
	      "       hutch-bench parallel|fork SOCKET VM N COUNT COMMAND...\n"
	      "       hutch-bench fork-gap SOCKET VM N COMMAND...\n"
	      "       hutch-bench create SOCKET TEMPLATE N COMMAND...\n"
	      "       hutch-bench file-in|file-rw|ping-under-bulk SOCKET VM N PATH BYTES\n"
	      "       hutch-bench file-out|tar-out SOCKET VM N PATH\n"
	      "       hutch-bench tar-in SOCKET VM N PATH ARCHIVE\n"
	      "       hutch-bench raw-ping|raw-exec|raw-in|raw-out VSOCK PORT N\n"
	      "file-in, file-out, raw-in, raw-out: MiB/s; tar-in, tar-out: s; all others: ms (create, fork-gap, park: two numbers). VM is '' when SOCKET is an agent's\n"
	      "own.\n",
	      stderr);
	return 2;
}

static int exec_mode(const char *mode, char **argv, int argc, long n)
{
	struct exec_start start = {.drain_ms = HUTCH_DEFAULT_DRAIN_MS};
	int at = strcmp(mode, "parallel") == 0 || strcmp(mode, "fork") == 0 ? 6 : 5;

	if (argc <= at)
		return usage();
	start.argv = argv + at;
	start.argc = (size_t)(argc - at);
	if (strcmp(mode, "exec") == 0)
		calls(dial(argv[2]), "exec.start", argv[3], &start, n);
	else if (strcmp(mode, "hold") == 0)
		hold(dial(argv[2]), argv[3], &start, n);
	else if (strcmp(mode, "create") == 0)
		vm_create_ping(dial(argv[2]), argv[3], n, &start);
	else if (strcmp(mode, "fork") == 0)
		fork_exec(argv[2], argv[3], n, strtol(argv[5], NULL, 10), &start);
	else if (strcmp(mode, "fork-gap") == 0)
		fork_gap(argv[2], argv[3], n, &start);
	else if (strcmp(mode, "ping-under") == 0)
		ping_under_output(argv[2], argv[3], &start, n);
	else if (strcmp(mode, "parallel") == 0)
		parallel(argv[2], argv[3], &start, n, strtol(argv[5], NULL, 10));
	else
		return usage();
	return 0;
}

/* -1: it is none of these. */
static int file_mode(const char *mode, char **argv, int argc, long n)
{
	uint64_t size = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;

	if (argc == 6 && strcmp(mode, "file-out") == 0)
		file_out(dial(argv[2]), argv[3], n, argv[5]);
	else if (argc == 6 && strcmp(mode, "tar-out") == 0)
		tar_out(dial(argv[2]), argv[3], n, argv[5]);
	else if (argc == 7 && strcmp(mode, "file-in") == 0)
		file_in(dial(argv[2]), argv[3], n, argv[5], size);
	else if (argc == 7 && strcmp(mode, "file-rw") == 0)
		file_rw(dial(argv[2]), argv[3], n, argv[5], size);
	else if (argc == 7 && strcmp(mode, "tar-in") == 0)
		tar_in(dial(argv[2]), argv[3], n, argv[5], argv[6]);
	else if (argc == 7 && strcmp(mode, "ping-under-bulk") == 0)
		ping_under_bulk(argv[2], argv[3], n, argv[5], size);
	else
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	long n;

	if (strcmp(mode, "spawn") == 0 && argc > 3) {
		spawn(argv + 3, strtol(argv[2], NULL, 10));
		return 0;
	}
	if (argc < 5)
		return usage();
	n = strtol(argv[4], NULL, 10);
	if (strcmp(mode, "ping") == 0)
		calls(dial(argv[2]), "ping", argv[3], NULL, n);
	else if (strncmp(mode, "raw-", 4) == 0)
		raw(mode, argv[2], strtol(argv[3], NULL, 10), n);
	else if (strcmp(mode, "park") == 0)
		park_wake(dial(argv[2]), argv[3], n);
	else if (strcmp(mode, "pty-echo") == 0)
		pty_echo(dial(argv[2]), argv[3], n);
	else if (file_mode(mode, argv, argc, n) < 0)
		return exec_mode(mode, argv, argc, n);
	return 0;
}
