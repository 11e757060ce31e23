/* SPDX-License-Identifier: Apache-2.0 */
/* agent.warm: the agent calls itself; see warm.h. */
#include "guest/warm.h"

#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/calls.h"
#include "guest/cgroup.h"
#include "guest/exec_table.h"
#include "guest/listen.h"
#include "protocol/frame.h"

/* clang-format off */
#define ID	   "hutch-warm"
#define PATH	   "/tmp/.hutch-warm"
#define EXEC(text) "\x83\xa6method\xaa" "exec.start" "\xa2id\xaa" ID "\xa6params" text
#define FILE(verb) "\x82\xa6method" verb "\xa6params\x81\xa4path\xb0" PATH

#define HELLO	   "\x82\xa5proto\1\xa4role\xa6" "client"
#define SHELL	   EXEC("\x81\xa5shell\xd9\x28" "(:);/bin/true;echo a b;. /etc/hutch.warm") /* if there is one */
#define ON_PTY	   EXEC("\x82\xa5shell\xa4" "exit" "\xa3pty\x80")
#define WRITE	   FILE("\xa8" "fs.write")
#define DATA	   "0123456789abcdef"
#define REMOVE	   FILE("\xa9" "fs.remove")
/* Valid, and rehearsed only (call_agent_identity). */
#define ZEROS	   "00000000000000000000000000000000"
#define IDENTITY   "\x82\xa6method\xae" "agent.identity" "\xa6params\x85\xaa" "generation\1" "\xa8" "hostname\xa1" "h" \
		   "\xaa" "machine_id\xd9\x20" ZEROS "\xab" "realtime_ns\1" "\xa7" "entropy\xc4\x20" ZEROS

#if __has_attribute(nonstring)
#define NO_NUL __attribute__((nonstring))
#else
#define NO_NUL
#endif

/* A frame whose payload is the text. */
#define FRAME(text)                                                                  \
	struct {                                                                     \
		uint8_t head[HUTCH_FRAME_HEADER];                                    \
		char body[sizeof(text) - 1] NO_NUL;                                  \
	}
#define INIT(type, flags, text) {{0, 0, 0, sizeof(text) - 1, type, flags, 0, 0}, text}
/* clang-format on */

static const FRAME(HELLO) hello = INIT(FRAME_HELLO, 0, HELLO);
static const FRAME(SHELL) on_pipes = INIT(FRAME_CALL, FRAME_END, SHELL);
static const FRAME(ON_PTY) on_pty = INIT(FRAME_CALL, FRAME_END, ON_PTY);
static const struct {
	FRAME(WRITE) call;
	FRAME(DATA) data;
} write_file = {INIT(FRAME_CALL, 0, WRITE), INIT(FRAME_STDIN, FRAME_END, DATA)};
static const FRAME(REMOVE) remove_file = INIT(FRAME_CALL, FRAME_END, REMOVE);
static const FRAME(IDENTITY) identity = INIT(FRAME_CALL, FRAME_END, IDENTITY);

static const struct {
	const void *p;
	size_t n;
} steps[] = {{&on_pipes, sizeof(on_pipes)},
	     {&on_pty, sizeof(on_pty)},
	     {&write_file, sizeof(write_file)},
	     {&remove_file, sizeof(remove_file)},
	     {&identity, sizeof(identity)}};
#define STEPS (sizeof(steps) / sizeof(*steps))

static struct { /* not initialized: it is to take no room in the file */
	bool runs;
	struct loop_source src; /* the calling side */
	struct conn *caller;	/* of agent.warm; NULL: it was lost */
	unsigned step, failed;
	size_t len;
	uint8_t buf[1024]; /* what came since the last call */
} warm;

bool warm_runs(void)
{
	return warm.runs;
}

static void finish(void)
{
	struct exec *e = exec_find(ID);
	struct conn *c = warm.caller;

	warm.runs = false;
	loop_close(&warm.src);
	if (e)
		exec_make_way(e);
	cgroup_stock();
	if (agent.held) /* a copy: its host may connect ahead */
		listen_hold(false);
	if (c)
		conn_answer(c, "failed", warm.failed);
}

/* An exec's result that says why it never ran. */
static bool not_started(const uint8_t *payload, size_t n)
{
	static const char key[] = "start_error";

	for (size_t i = 0; i + sizeof(key) - 1 <= n; i++)
		if (memcmp(payload + i, key, sizeof(key) - 1) == 0)
			return true;
	return false;
}

/* Did the answer to the last call come whole? Notes whether it was a good one. */
static bool answered(void)
{
	struct hutch_error err;
	struct frame f;

	for (size_t at = 0; warm.len - at >= HUTCH_FRAME_HEADER; at += f.length) {
		const uint8_t *payload = warm.buf + at + HUTCH_FRAME_HEADER;

		if (frame_decode(warm.buf + at, &f, &err) < 0)
			break;
		at += HUTCH_FRAME_HEADER;
		if (warm.len - at < f.length)
			break;
		if (!(f.flags & FRAME_END))
			continue;
		warm.failed += f.type == FRAME_ERROR || not_started(payload, f.length);
		return true;
	}
	return false;
}

static void next_step(void)
{
	warm.len = 0;
	if (warm.step == STEPS || write(warm.src.fd, steps[warm.step].p, steps[warm.step].n) !=
					  (ssize_t)steps[warm.step].n)
		finish();
}

static void ready(struct loop_source *src, uint32_t events)
{
	ssize_t n = read(src->fd, warm.buf + warm.len, sizeof(warm.buf) - warm.len);

	(void)events;
	if (n <= 0) {
		warm.failed += STEPS - warm.step;
		finish();
		return;
	}
	warm.len += (size_t)n;
	if (answered()) {
		warm.step++;
		next_step();
	}
}

static void over(struct conn *c, bool lost)
{
	(void)c;
	(void)lost;
	warm.caller = NULL;
}

static const struct call_ops ops = {.over = over};

int call_agent_warm(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	struct conn *own = NULL;
	int fds[2];

	if (!warm_runs() &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0) {
		loop_source_init(&warm.src, fds[0], ready);
		own = conn_open(fds[1]);
		if (!own || loop_watch(&warm.src, EPOLLIN) < 0)
			loop_close(&warm.src);
	}
	if (!own)
		return hutch_error_set(err, HUTCH_E_BUSY, 0, "%s runs, or connections are short",
				       call->method);
	warm.runs = own->warm = true;
	warm.caller = c;
	c->ops = &ops;
	warm.step = warm.failed = 0;
	if (write(warm.src.fd, &hello, sizeof(hello)) > 0)
		next_step();
	return 0;
}
