/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hutch command against a broker that is played here: each connection has a thread, which
 * answers calls by method, and exec.start by the name of the command.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/msg_exec.h"
#include "protocol/msg_vm.h"
#include "tests/unit/client_peer.h"

extern char **environ;

#define BULK (4u << 20)

/* ---- What the broker heard ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char heard[1 << 16]; /* a line for each call, and for what was noticed */

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *fmt, ...)
{
	va_list ap;
	size_t len;

	pthread_mutex_lock(&lock);
	len = strlen(heard);
	va_start(ap, fmt);
	vsnprintf(heard + len, sizeof(heard) - len, fmt, ap);
	va_end(ap);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

/* Until text was heard. */
static void await(const char *text)
{
	pthread_mutex_lock(&lock);
	while (strstr(heard, text) == NULL)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static bool was_heard(const char *text)
{
	bool r;

	pthread_mutex_lock(&lock);
	r = strstr(heard, text) != NULL;
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- Commands that it plays ---- */

static void play_cat(struct peer *p)
{
	struct frame f = {0};

	if (p->call_flags & FRAME_END) {
		peer_exit(p, 0);
		return;
	}
	while (peer_frame(p, &f) && f.type == FRAME_STDIN) {
		peer_data(p, FRAME_STDOUT, p->payload, f.length);
		if (f.flags & FRAME_END)
			break;
	}
	peer_exit(p, 0);
}

static void play_bulk(struct peer *p)
{
	static char chunk[HUTCH_MAX_DATA];

	for (size_t at = 0; at < BULK; at += sizeof(chunk))
		peer_data(p, FRAME_STDOUT, chunk, sizeof(chunk));
	peer_exit(p, 0);
}

static void play_head(struct peer *p)
{
	struct frame f;

	peer_frame(p, &f);
	peer_event(p, "stdin_closed");
	while (peer_frame(p, &f) && !(f.flags & FRAME_END))
		;
	note("input ended\n");
	peer_text(p, FRAME_STDOUT, "line\n");
	peer_exit(p, 0);
}

/* Output until the client is gone. */
static void play_yes(struct peer *p)
{
	char byte;

	while (recv(p->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) != 0 &&
	       send(p->fd, "\0\0\0\2\21\0\0\0y\n", 10, MSG_NOSIGNAL) == 10)
		;
	note("client gone\n");
}

/* Until it is told otherwise by another connection. */
static void play_sleep(struct peer *p)
{
	struct exec_result r = {.started = true, .pid = 7, .exit_code = 130, .signal = 2};
	struct mp_buf b;
	char byte;

	note("asleep %s\n", p->call.id);
	if (strcmp(p->call.vm, "stubborn") == 0)
		await("exec.kill");
	else if (strcmp(p->call.vm, "deaf") != 0)
		await("exec.signal");
	else if (recv(p->fd, &byte, 1, 0) == 0) {
		note("client gone\n");
		return;
	}
	strcpy(r.id, p->call.id);
	mp_buf_init(&b, 1 << 16);
	exec_result_encode(&b, &r);
	peer_bytes(p, b.data, b.len);
	mp_buf_free(&b);
}

static void play_result(struct peer *p, const char *how)
{
	struct exec_result r = {.started = true, .pid = 7, .duration_us = 5};
	struct mp_buf b;

	strcpy(r.id, p->call.id);
	if (strcmp(how, "timed-out") == 0) {
		r.timed_out = true;
		r.exit_code = 0;
	} else if (strcmp(how, "killed") == 0) {
		r.exit_code = 137;
		r.signal = 9;
	} else {
		r = (struct exec_result){.exit_code = 127};
		strcpy(r.id, p->call.id);
		strcpy(r.start_error.kind, "not_found");
		r.start_error.errnum = ENOENT;
		strcpy(r.start_error.message, "no\033[31msuch: not found");
	}
	mp_buf_init(&b, 1 << 16);
	exec_result_encode(&b, &r);
	peer_bytes(p, b.data, b.len);
	mp_buf_free(&b);
}

static void note_params(const struct exec_start *m)
{
	for (size_t i = 0; i < m->argc; i++)
		note("argv[%zu]=%s\n", i, m->argv[i]);
	for (size_t i = 0; i < m->env_pairs; i++)
		note("env %s=%s\n", m->env[2 * i], m->env[2 * i + 1]);
	note("cwd=%s user=%s timeout=%u limit=%u\n", m->cwd ? m->cwd : "-", m->user ? m->user : "-",
	     (unsigned)m->timeout_ms, (unsigned)m->output_limit);
}

/* False: the connection is to be closed. */
static bool play_exec(struct peer *p)
{
	struct hutch_error err = {0};
	struct exec_start m;
	const char *cmd;
	bool go_on = true;

	ck_assert_int_eq(exec_start_decode(&m, p->call.params, p->call.params_len, &err), 0);
	cmd = m.argv[0];
	if (strcmp(cmd, "cat") == 0) {
		play_cat(p);
	} else if (strcmp(cmd, "bulk") == 0) {
		play_bulk(p);
	} else if (strcmp(cmd, "head") == 0) {
		play_head(p);
	} else if (strcmp(cmd, "yes") == 0) {
		play_yes(p);
		go_on = false;
	} else if (strcmp(cmd, "sleep") == 0) {
		play_sleep(p);
	} else if (strcmp(cmd, "exit") == 0) {
		peer_data(p, FRAME_STDOUT, "o\0\377\r\n", 5);
		peer_text(p, FRAME_STDERR, "e\n");
		peer_exit(p, (unsigned)atoi(m.argv[1]));
	} else if (strcmp(cmd, "vanish") == 0) {
		peer_text(p, FRAME_STDOUT, "part");
		go_on = false;
	} else if (strcmp(cmd, "garbage") == 0) {
		peer_text(p, (enum frame_type)77, "?");
		go_on = false;
	} else if (strcmp(cmd, "fail") == 0) {
		peer_error(p, HUTCH_E_VM_DIED, 0, "the VM died: \033]0;x\a guest panic\nlast line");
	} else if (strcmp(cmd, "params") == 0 || strcmp(cmd, "/bin/sh") == 0) {
		note_params(&m);
		peer_exit(p, 0);
	} else {
		play_result(p, cmd);
	}
	exec_start_free(&m);
	return go_on;
}

/* ---- The other methods ---- */

static void play_list(struct peer *p, const char *key, const char *name)
{
	struct mp_buf b;

	mp_buf_init(&b, 1 << 16);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_key(&b, key);
	mp_array_begin(&b);
	mp_map_begin(&b);
	mp_kv_str(&b, "id", "0123-id");
	mp_kv_str(&b, "name", name);
	mp_kv_str(&b, "state", "running");
	mp_kv_uint(&b, "memory_mib", 256);
	mp_kv_uint(&b, "expires_in_ms", 90000);
	mp_map_end(&b);
	mp_array_end(&b);
	mp_map_end(&b);
	peer_finish(p, &b, FRAME_RESULT, FRAME_END);
}

static void play_map(struct peer *p, const char *key, const char *value, const char *number,
		     uint64_t n)
{
	struct mp_buf b;

	mp_buf_init(&b, 1 << 16);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	if (key != NULL)
		mp_kv_str(&b, key, value);
	if (number != NULL)
		mp_kv_uint(&b, number, n);
	mp_map_end(&b);
	peer_finish(p, &b, FRAME_RESULT, FRAME_END);
}

static char root[] = "/tmp/hutch-cli-XXXXXX";

static void play_create(struct peer *p)
{
	struct hutch_error err = {0};
	struct vm_create m;
	char byte;

	ck_assert_int_eq(vm_create_decode(&m, p->call.params, p->call.params_len, &err), 0);
	note("template=%s name=%s ttl=%u memory=%u vcpus=%u timeout=%u\n", m.template_name, m.name,
	     (unsigned)m.ttl_ms, m.memory_mib, m.vcpus, (unsigned)m.timeout_ms);
	for (size_t i = 0; i < m.metadata_pairs; i++)
		note("meta %s=%s\n", m.metadata[2 * i], m.metadata[2 * i + 1]);
	if (strcmp(m.name, "never") == 0 && recv(p->fd, &byte, 1, 0) == 0)
		note("client gone\n");
	else
		play_map(p, "id", strcmp(m.name, "deaf") == 0 ? "deaf" : "new-id", NULL, 0);
	vm_create_free(&m);
}

static bool answer(struct peer *p)
{
	const char *m = p->call.method;
	bool all = false;
	struct hutch_error err = {0};

	note("%s vm=%s id=%s end=%u\n", m, p->call.vm, p->call.id, p->call_flags);
	if (strcmp(m, "exec.start") == 0)
		return play_exec(p);
	if (strcmp(p->call.vm, "nosuch") == 0)
		peer_error(p, HUTCH_E_NOT_FOUND, 0, "there is no VM nosuch");
	else if (strcmp(m, "vm.create") == 0)
		play_create(p);
	else if (strcmp(m, "vm.list") == 0)
		play_list(p, "vms", "a\033[2Jname\302\233");
	else if (strcmp(m, "template.list") == 0)
		play_list(p, "templates", "made");
	else if (strcmp(m, "vm.info") == 0)
		play_map(p, "note", "caf\303\251 \377", "created_ms", 1000);
	else if (strcmp(m, "vm.set_ttl") == 0)
		play_map(p, NULL, NULL, "expires_in_ms", 300000);
	else if (strcmp(m, "broker.info") == 0)
		play_map(p, "template_dir", root, "pid", 4);
	else if (strcmp(m, "vm.kill") == 0 &&
		 vm_kill_decode(&all, p->call.params, p->call.params_len, &err) == 0 && all)
		play_map(p, NULL, NULL, "killed", 3);
	else
		peer_empty(p);
	return true;
}

static void *serve(void *arg)
{
	struct peer *p = arg;

	peer_hello(p);
	while (peer_call(p) && answer(p))
		;
	peer_free(p);
	free(p);
	return NULL;
}

static int listener = -1;
static char socket_path[sizeof(root) + 16];

static void *accept_all(void *arg)
{
	pthread_t t;

	(void)arg;
	for (;;) {
		struct peer *p = calloc(1, sizeof(*p));

		p->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		ck_assert_int_ge(p->fd, 0);
		pthread_create(&t, NULL, serve, p);
		pthread_detach(t);
	}
	return NULL;
}

static void start_broker(void)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	pthread_t t;

	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(socket_path, sizeof(socket_path), "%s/s", root);
	strcpy(addr.sun_path, socket_path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(listener, 16), 0);
	setenv("HUTCH_SOCKET", socket_path, 1);
	pthread_create(&t, NULL, accept_all, NULL);
	pthread_detach(t);
}

static void remove_root(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

/* ---- Running hutch ---- */

#define ARGV(...) ((const char *const[]){"hutch", __VA_ARGS__, NULL})

static pid_t spawn(const char *const *argv, int in, int out, int err)
{
	posix_spawn_file_actions_t fa;
	char *words[32];
	pid_t pid;
	size_t n = 0;

	for (; argv[n] != NULL; n++)
		words[n] = strdup(argv[n]);
	words[n] = NULL;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, in, 0);
	posix_spawn_file_actions_adddup2(&fa, out, 1);
	posix_spawn_file_actions_adddup2(&fa, err, 2);
	ck_assert_int_eq(posix_spawn(&pid, HUTCH_CLI, &fa, NULL, words, environ), 0);
	posix_spawn_file_actions_destroy(&fa);
	while (n > 0)
		free(words[--n]);
	return pid;
}

static int wait_for(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static char out[1 << 16], err[1 << 16];
static size_t out_len;

static size_t slurp(int fd, char *to, size_t size)
{
	ssize_t n;
	size_t len;

	lseek(fd, 0, SEEK_SET);
	n = read(fd, to, size - 1);
	len = n > 0 ? (size_t)n : 0;
	to[len] = '\0';
	close(fd);
	return len;
}

static int temporary(void)
{
	return open(root, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

/* Run it to its end with out and err kept; its exit status. */
static int hutch(const char *const *argv)
{
	int in = open("/dev/null", O_RDONLY | O_CLOEXEC), o = temporary(), e = temporary(), status;

	status = wait_for(spawn(argv, in, o, e));
	close(in);
	out_len = slurp(o, out, sizeof(out));
	slurp(e, err, sizeof(err));
	return status;
}

/* ---- exec: status and output ---- */

START_TEST(test_exec_passes_status_and_output_on)
{
	ck_assert_int_eq(hutch(ARGV("exec", "box", "--", "exit", "7")), 7);
	ck_assert_uint_eq(out_len, 5);
	ck_assert_mem_eq(out, "o\0\377\r\n", 5);
	ck_assert_str_eq(err, "e\n");
	ck_assert(was_heard("exec.start vm=box id="));
	ck_assert(was_heard(" end=1\n"));
	ck_assert_int_eq(hutch(ARGV("exec", "box", "exit", "0")), 0);
	ck_assert_int_eq(hutch(ARGV("exec", "box", "exit", "255")), 255);
	ck_assert_int_eq(hutch(ARGV("exec", "box", "killed")), 137);
	ck_assert_int_eq(hutch(ARGV("exec", "box", "timed-out")), 124);
	ck_assert_str_eq(err, "");
	ck_assert_int_eq(hutch(ARGV("exec", "box", "unstarted")), 127);
	ck_assert_str_eq(err, "hutch: no\\x1b[31msuch: not found\n");
}
END_TEST

START_TEST(test_exec_json)
{
	ck_assert_int_eq(hutch(ARGV("exec", "--json", "box", "exit", "7")), 7);
	ck_assert_ptr_nonnull(strstr(out, "\"exit_code\":7"));
	ck_assert_ptr_nonnull(strstr(out, "\"stdout\":{\"base64\":\"bwD/DQo=\"}"));
	ck_assert_ptr_nonnull(strstr(out, "\"stderr\":\"e\\n\""));
	ck_assert_str_eq(err, "");
	ck_assert_int_eq(hutch(ARGV("--json", "exec", "box", "fail")), 125);
	ck_assert_str_eq(out, "");
	ck_assert_ptr_nonnull(strstr(err,
				     "{\"error\":{\"kind\":\"vm_died\",\"message\":\"the VM died: "
				     "?]0;x? guest panic\\nlast line\""));
}
END_TEST

START_TEST(test_exec_failures)
{
	ck_assert_int_eq(hutch(ARGV("exec", "box", "vanish")), 125);
	ck_assert_str_eq(out, "part");
	ck_assert_ptr_nonnull(strstr(err, "may or may not"));
	ck_assert_int_eq(hutch(ARGV("--json", "exec", "box", "vanish")), 125);
	ck_assert_ptr_nonnull(strstr(err, "\"kind\":\"outcome_unknown\""));
	ck_assert_int_eq(hutch(ARGV("exec", "box", "garbage")), 125);
	ck_assert_int_eq(hutch(ARGV("exec", "box", "fail")), 125);
	ck_assert_str_eq(err, "hutch: the VM died: ?]0;x? guest panic\nlast line\n");
	ck_assert_int_eq(hutch(ARGV("--socket", "/nonexistent/s", "exec", "box", "exit", "0")),
			 125);
	ck_assert_ptr_nonnull(strstr(err, "/nonexistent/s"));
	ck_assert_int_eq(hutch(ARGV("exec", "--socket=/nonexistent/s", "box", "exit", "0")), 125);
}
END_TEST

START_TEST(test_exec_options)
{
	setenv("MINE", "own", 1);
	unsetenv("NOT_MINE");
	ck_assert_int_eq(hutch(ARGV("exec", "-e", "A=1", "-eB=x=y", "-e", "A=2", "--env=C=", "-e",
				    "MINE", "-e", "NOT_MINE", "-w", "/d", "-u", "u:g", "--timeout",
				    "1.5", "--output-limit", "64K", "box", "--", "params", "-e",
				    "--", "")),
			 0);
	ck_assert(was_heard("argv[0]=params\nargv[1]=-e\nargv[2]=--\nargv[3]=\nenv A=2\nenv B=x=y\n"
			    "env C=\nenv MINE=own\ncwd=/d user=u:g timeout=1500 limit=65536\n"));
	ck_assert_int_eq(hutch(ARGV("exec", "box", "--shell", "echo $HOME")), 0);
	ck_assert(was_heard("argv[0]=/bin/sh\nargv[1]=-c\nargv[2]=echo $HOME\ncwd=- user=-"));
}
END_TEST

START_TEST(test_exec_wrong_usage)
{
	const char *const *const wrong[] = {
		ARGV("exec"),
		ARGV("exec", "box"),
		ARGV("exec", "box", "--"),
		ARGV("exec", "--nosuch", "box", "params"),
		ARGV("exec", "-Z", "box", "params"),
		ARGV("exec", "-e", "=x", "box", "params"),
		ARGV("exec", "--timeout", "soon", "box", "params"),
		ARGV("exec", "--timeout", "-1", "box", "params"),
		ARGV("exec", "--timeout", "99999999999999999999", "box", "params"),
		ARGV("exec", "--shell", "x", "box", "params"),
		ARGV("exec", "--timeout"),
		ARGV("exec", "--stdin=yes", "box", "params"),
		ARGV("exec", "-di", "box", "params"),
		ARGV("exec", "--detach-keys", "ctrl-", "box", "params"),
		ARGV("run", "--detach-keys", "a", "params"),
		ARGV("shell"),
		ARGV("shell", "--shell", "x", "box"),
		ARGV("attach", "box"),
		ARGV("attach", "-i", "--view", "box", "x"),
		ARGV("wait", "box"),
		ARGV("run"),
		ARGV("run", "--memory", "1.5", "params"),
		ARGV("run", "--ttl", "0", "params"),
		ARGV("run", "--meta", "K", "params"),
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(hutch(wrong[i]), 125);
		ck_assert_int_eq(strncmp(err, "hutch: ", 7), 0);
		ck_assert_ptr_nonnull(strstr(err, "--help"));
	}
	ck_assert_str_eq(heard, "");
}
END_TEST

/* ---- exec: input ---- */

struct feed {
	int fd;
	size_t len; /* 0: until nobody reads */
};

static void *feed(void *arg)
{
	static const char y[4096] = "y\n";
	struct feed *f = arg;
	size_t sent = 0;

	while (f->len == 0 || sent < f->len) {
		ssize_t n = write(f->fd, y, sizeof(y));

		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	close(f->fd);
	return NULL;
}

static pthread_t start_feed(struct feed *f, int *in, size_t len)
{
	pthread_t t;
	int fds[2];

	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	*in = fds[0];
	*f = (struct feed){fds[1], len};
	pthread_create(&t, NULL, feed, f);
	return t;
}

START_TEST(test_input_from_a_pipe)
{
	int in, o = temporary(), e = temporary();
	struct feed f;
	pthread_t t = start_feed(&f, &in, BULK);
	struct stat st;
	pid_t pid = spawn(ARGV("exec", "-i", "box", "cat"), in, o, e);

	close(in);
	ck_assert_int_eq(wait_for(pid), 0);
	pthread_join(t, NULL);
	ck_assert_int_eq(fstat(o, &st), 0);
	ck_assert_int_eq(st.st_size, BULK);
	ck_assert(was_heard(" end=0\n"));
}
END_TEST

START_TEST(test_input_from_a_file_and_none)
{
	int in = temporary(), o = temporary(), e = temporary(), null = open("/dev/null", O_RDONLY);
	struct stat st;

	ck_assert_int_eq(ftruncate(in, 300000), 0);
	ck_assert_int_eq(wait_for(spawn(ARGV("exec", "-i", "box", "cat"), in, o, e)), 0);
	ck_assert_int_eq(fstat(o, &st), 0);
	ck_assert_int_eq(st.st_size, 300000);
	ck_assert_int_eq(wait_for(spawn(ARGV("exec", "-i", "box", "cat"), null, o, e)), 0);
	ck_assert_int_eq(wait_for(spawn(ARGV("exec", "-i", "box", "cat"), open("/", O_RDONLY), o,
					e)),
			 125);
}
END_TEST

/* The feed goes on until the client stops reading; nothing waits for its end. */
START_TEST(test_input_that_is_not_wanted)
{
	int in, o = temporary(), e = temporary();
	struct feed f;
	pthread_t t = start_feed(&f, &in, 0);
	pid_t pid = spawn(ARGV("exec", "-i", "box", "head"), in, o, e);

	close(in);
	ck_assert_int_eq(wait_for(pid), 0);
	pthread_join(t, NULL);
	ck_assert(was_heard("input ended\n"));
	slurp(o, out, sizeof(out));
	ck_assert_str_eq(out, "line\n");
}
END_TEST

/* ---- exec: output that is not taken ---- */

static size_t drain(int fd)
{
	char buf[5000];
	size_t total = 0;
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		total += (size_t)n;
	close(fd);
	return total;
}

START_TEST(test_output_to_a_pipe)
{
	bool nonblocking = _i & 1, as_socket = _i & 2;
	int fds[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), flags;
	pid_t pid;

	if (as_socket)
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	else
		ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	flags = fcntl(fds[1], F_GETFL);
	if (nonblocking)
		flags |= O_NONBLOCK;
	fcntl(fds[1], F_SETFL, flags);
	pid = spawn(ARGV("exec", "box", "bulk"), null, fds[1], null);
	/* Its mode is shared with others and is left alone. */
	ck_assert_int_eq(fcntl(fds[1], F_GETFL), flags);
	close(fds[1]);
	ck_assert_uint_eq(drain(fds[0]), BULK);
	ck_assert_int_eq(wait_for(pid), 0);
}
END_TEST

/*
 * While the reader stands still, input is taken until everything between is full, and signals are
 * heard.
 */
START_TEST(test_signals_while_output_is_stuck)
{
	int fds[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	pid = spawn(ARGV("exec", "box", "yes"), null, fds[1], null);
	close(fds[1]);
	await("exec.start");
	kill(pid, SIGINT);
	await("exec.signal");
	kill(pid, SIGTERM);
	ck_assert_int_eq(wait_for(pid), 128 + SIGTERM);
	await("client gone");
	close(fds[0]);
}
END_TEST

START_TEST(test_output_that_nobody_reads)
{
	int fds[2], null = open("/dev/null", O_RDWR | O_CLOEXEC),
		    full = open("/dev/full", O_WRONLY);
	pid_t pid;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	pid = spawn(ARGV("exec", "box", "yes"), null, fds[1], null);
	close(fds[1]);
	close(fds[0]);
	ck_assert_int_eq(wait_for(pid), 128 + SIGPIPE);
	await("client gone");
	ck_assert_int_eq(wait_for(spawn(ARGV("exec", "box", "yes"), null, full, null)), 125);
	ck_assert_int_eq(wait_for(spawn(ARGV("ls"), null, full, null)), 1);
	ck_assert_int_eq(wait_for(spawn(ARGV("help"), null, full, null)), 1);
}
END_TEST

/* ---- Signals ---- */

START_TEST(test_interrupt)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char text[128];
	const char *id;
	pid_t pid;

	pid = spawn(ARGV("exec", "box", "sleep"), null, null, null);
	await("asleep");
	id = strstr(heard, "asleep ") + 7;
	snprintf(text, sizeof(text), "exec.signal vm=box id=%.*s end=1", (int)strcspn(id, "\n"),
		 id);
	kill(pid, SIGINT);
	ck_assert_int_eq(wait_for(pid), 130);
	ck_assert(was_heard(text));
	ck_assert(!was_heard("exec.kill"));
}
END_TEST

START_TEST(test_second_interrupt_kills)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid = spawn(ARGV("exec", "stubborn", "sleep"), null, null, null);

	await("asleep");
	kill(pid, SIGINT);
	await("exec.signal");
	kill(pid, SIGINT);
	await("exec.kill vm=stubborn");
	ck_assert_int_eq(wait_for(pid), 130);
}
END_TEST

START_TEST(test_third_interrupt_leaves)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid = spawn(ARGV("exec", "deaf", "sleep"), null, null, null);

	await("asleep");
	kill(pid, SIGINT);
	await("exec.signal");
	kill(pid, SIGINT);
	await("exec.kill");
	kill(pid, SIGINT);
	ck_assert_int_eq(wait_for(pid), 130);
	await("client gone");
}
END_TEST

START_TEST(test_ignored_interrupt_stays_ignored)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid;

	signal(SIGINT, SIG_IGN);
	pid = spawn(ARGV("exec", "deaf", "sleep"), null, null, null);
	await("asleep");
	kill(pid, SIGINT);
	kill(pid, SIGHUP);
	ck_assert_int_eq(wait_for(pid), 128 + SIGHUP);
	ck_assert(!was_heard("exec.signal"));
}
END_TEST

/* ---- run ---- */

START_TEST(test_run)
{
	ck_assert_int_eq(hutch(ARGV("run", "-t", "other", "--ttl", "5m", "--memory", "512",
				    "--vcpus", "2", "--name", "n", "--meta", "k=a=b", "--meta",
				    "k=c", "--boot-timeout", "9", "--", "exit", "9")),
			 9);
	ck_assert_str_eq(err, "e\n");
	ck_assert(was_heard("template=other name=n ttl=300000 memory=512 vcpus=2 timeout=9000\n"
			    "meta k=c\n"));
	ck_assert(was_heard("exec.start vm=new-id "));
	ck_assert(was_heard("vm.kill vm=new-id "));
}
END_TEST

/* Whatever happened to the command, its VM goes. */
START_TEST(test_run_kills_after_failures)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fds[2];
	pid_t pid;

	switch (_i) {
	case 0:
		ck_assert_int_eq(hutch(ARGV("run", "vanish")), 125);
		break;
	case 1:
		ck_assert_int_eq(hutch(ARGV("run", "fail")), 125);
		break;
	case 2:
		pid = spawn(ARGV("run", "--name", "deaf", "sleep"), null, null, null);
		await("asleep");
		kill(pid, SIGTERM);
		ck_assert_int_eq(wait_for(pid), 128 + SIGTERM);
		break;
	case 3:
		ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
		pid = spawn(ARGV("run", "yes"), null, fds[1], null);
		close(fds[1]);
		close(fds[0]);
		ck_assert_int_eq(wait_for(pid), 128 + SIGPIPE);
		break;
	}
	ck_assert(was_heard("vm.kill vm="));
}
END_TEST

START_TEST(test_run_interrupted_before_the_vm_is_there)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	pid_t pid = spawn(ARGV("run", "--name", "never", "exit", "0"), null, null, null);

	await("name=never");
	kill(pid, SIGINT);
	ck_assert_int_eq(wait_for(pid), 130);
	await("client gone");
	ck_assert(!was_heard("exec.start"));
}
END_TEST

/* ---- The rest ---- */

START_TEST(test_create)
{
	ck_assert_int_eq(hutch(ARGV("create")), 0);
	ck_assert_str_eq(out, "new-id\n");
	ck_assert(was_heard("template=base name= ttl=3600000 memory=0 vcpus=0 timeout=60000\n"));
	ck_assert_int_eq(hutch(ARGV("create", "--timeout", "30", "--ttl=90", "--json")), 0);
	ck_assert_str_eq(out, "{\"id\":\"new-id\"}\n");
	ck_assert(was_heard("ttl=90000 memory=0 vcpus=0 timeout=30000\n"));
	ck_assert_int_eq(hutch(ARGV("create", "extra")), 2);
}
END_TEST

START_TEST(test_texts_are_made_harmless)
{
	ck_assert_int_eq(hutch(ARGV("ls")), 0);
	ck_assert_str_eq(
		out, "ID       NAME                  STATE    TEMPLATE  MIB  VCPUS  EXPIRES\n"
		     "0123-id  a\\x1b[2Jname\\xc2\\x9b  running  -         256  0      1m 30s\n");
	ck_assert_int_eq(hutch(ARGV("ls", "-q")), 0);
	ck_assert_str_eq(out, "0123-id\n");
	ck_assert_int_eq(hutch(ARGV("info", "box")), 0);
	ck_assert_str_eq(out, "note: caf\303\251 \\xff\ncreated: 1970-01-01 00:00:01 UTC\n");
	ck_assert_int_eq(hutch(ARGV("info", "box", "--json")), 0);
	ck_assert_str_eq(out, "{\"note\":{\"base64\":\"Y2Fmw6kg/w==\"},\"created_ms\":1000}\n");
}
END_TEST

START_TEST(test_kill_and_ttl)
{
	ck_assert_int_eq(hutch(ARGV("kill", "a", "nosuch", "b")), 1);
	ck_assert_str_eq(err, "hutch: there is no VM nosuch\n");
	ck_assert(was_heard("vm.kill vm=a ") && was_heard("vm.kill vm=b "));
	ck_assert_int_eq(hutch(ARGV("kill", "--all")), 0);
	ck_assert_str_eq(out, "3\n");
	ck_assert_int_eq(hutch(ARGV("kill")), 2);
	ck_assert_int_eq(hutch(ARGV("kill", "--all", "a")), 2);
	ck_assert_int_eq(hutch(ARGV("ttl", "a", "5m")), 0);
	ck_assert_str_eq(out, "5m 0s\n");
	ck_assert_int_eq(hutch(ARGV("ttl", "a", "x")), 2);
	ck_assert_int_eq(hutch(ARGV("ttl", "nosuch", "5m", "--json")), 1);
	ck_assert_ptr_nonnull(strstr(err, "{\"error\":{\"kind\":\"not_found\""));
}
END_TEST

START_TEST(test_help)
{
	static const char *const verbs[] = {"create", "exec",	"run",	  "ls",	    "info",
					    "kill",   "ttl",	"doctor", "help",   "version",
					    "shell",  "attach", "ps",	  "signal", "cancel",
					    "wait",   "cp"};

	ck_assert_int_eq(hutch(ARGV("--help")), 0);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		ck_assert_int_eq(hutch(ARGV("help")), 0);
		ck_assert_ptr_nonnull(strstr(out, verbs[i]));
		ck_assert_int_eq(hutch(ARGV(verbs[i], "--help")), 0);
		ck_assert_int_eq(strncmp(out, "usage: hutch ", 13), 0);
		ck_assert_str_eq(err, "");
	}
	ck_assert_int_eq(hutch(ARGV("help", "template", "build")), 0);
	ck_assert_ptr_nonnull(strstr(out, "hutch template build [OPTION]... [NAME]"));
	ck_assert_int_eq(hutch(ARGV("help", "nosuch")), 2);
	ck_assert_int_eq(hutch(ARGV("nosuch")), 2);
	ck_assert_int_eq(hutch(ARGV("template")), 2);
	ck_assert_int_eq(hutch(ARGV("--nosuch", "ls")), 2);
	ck_assert_int_eq(hutch(ARGV("version")), 0);
	ck_assert_str_eq(out, "hutch " HUTCH_VERSION "\n");
	ck_assert_str_eq(heard, "");
}
END_TEST

static void write_script(const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/build", root);
	f = fopen(path, "w");
	fputs(text, f);
	fclose(f);
	chmod(path, 0755);
	setenv("HUTCH_ROOTFS_DIR", root, 1);
}

START_TEST(test_template_build)
{
	char text[256];

	write_script("#!/bin/sh\necho working \"$@\"; exit 0\n");
	ck_assert_int_eq(hutch(ARGV("template", "build", "made", "--", "--extra")), 0);
	ck_assert_str_eq(out, "made\n");
	snprintf(text, sizeof(text), " --out %s/made --name made --like made --extra\n", root);
	ck_assert_ptr_nonnull(strstr(err, "working --agent "));
	ck_assert_ptr_nonnull(strstr(err, text));
	ck_assert_int_eq(hutch(ARGV("template", "build", "--from", "../made.tar.gz", "--", "-x")),
			 0);
	snprintf(text, sizeof(text), " --out %s/made --name made --from ../made.tar.gz -x\n", root);
	ck_assert_ptr_nonnull(strstr(err, text));
	ck_assert_int_eq(hutch(ARGV("template", "build", "--from", "/a/b/", "--name", "made")), 0);
	ck_assert_ptr_nonnull(strstr(err, " --name made --from /a/b/\n"));
	ck_assert_int_eq(hutch(ARGV("template", "build", "--name", "made", "base")), 0);
	ck_assert_ptr_nonnull(strstr(err, " --name made --like base\n"));
	ck_assert_int_eq(hutch(ARGV("template", "build", "made", "--from", "/a/b/")), 0);
	ck_assert_ptr_nonnull(strstr(err, " --name made --from /a/b/\n"));
	ck_assert_int_eq(hutch(ARGV("template", "build")), 2);
	ck_assert_int_eq(hutch(ARGV("template", "build", "--from", "/")), 2);
	ck_assert_int_eq(hutch(ARGV("template", "build", "unlisted")), 1);
	ck_assert_ptr_nonnull(strstr(err, "unlisted"));
	ck_assert_int_eq(hutch(ARGV("template", "build", "../x")), 2);
	write_script("#!/bin/sh\nexit 3\n");
	ck_assert_int_eq(hutch(ARGV("template", "build", "made")), 1);
	ck_assert_ptr_nonnull(strstr(err, "exit status 3"));
	ck_assert_int_eq(hutch(ARGV("template", "ls")), 0);
	ck_assert_ptr_nonnull(strstr(out, "made"));
	ck_assert_int_eq(hutch(ARGV("template", "rm", "made")), 0);
	ck_assert(was_heard("template.remove"));
}
END_TEST

/* ---- The suite ---- */

static TCase *add_case(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_add_checked_fixture(t, start_broker, remove_root);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return t;
}

static Suite *cli_suite(void)
{
	Suite *s = suite_create("client_cli");
	TCase *exec = add_case(s, "exec"), *streams = add_case(s, "streams"),
	      *signals = add_case(s, "signals"), *rest = add_case(s, "rest");

	tcase_add_test(exec, test_exec_passes_status_and_output_on);
	tcase_add_test(exec, test_exec_json);
	tcase_add_test(exec, test_exec_failures);
	tcase_add_test(exec, test_exec_options);
	tcase_add_test(exec, test_exec_wrong_usage);
	tcase_add_test(streams, test_input_from_a_pipe);
	tcase_add_test(streams, test_input_from_a_file_and_none);
	tcase_add_test(streams, test_input_that_is_not_wanted);
	tcase_add_loop_test(streams, test_output_to_a_pipe, 0, 4);
	tcase_add_test(streams, test_signals_while_output_is_stuck);
	tcase_add_test(streams, test_output_that_nobody_reads);
	tcase_add_test(signals, test_interrupt);
	tcase_add_test(signals, test_second_interrupt_kills);
	tcase_add_test(signals, test_third_interrupt_leaves);
	tcase_add_test(signals, test_ignored_interrupt_stays_ignored);
	tcase_add_test(signals, test_run);
	tcase_add_loop_test(signals, test_run_kills_after_failures, 0, 4);
	tcase_add_test(signals, test_run_interrupted_before_the_vm_is_there);
	tcase_add_test(rest, test_create);
	tcase_add_test(rest, test_texts_are_made_harmless);
	tcase_add_test(rest, test_kill_and_ttl);
	tcase_add_test(rest, test_help);
	tcase_add_test(rest, test_template_build);
	return s;
}

int main(void)
{
	SRunner *r = srunner_create(cli_suite());
	int failed;

	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
