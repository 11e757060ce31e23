/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command in a VM, connected to this process.
 *
 * The loop has at most one piece of output in hand (p->pending, which lies in the connection's
 * buffer). While its sink takes no more, nothing further is read from the broker, which in turn
 * stops reading from the agent; input and signals are served all the same. Input is read only when
 * the connection has sent what it had.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/hutch/pump.h"
#include "tools/hutch/signals.h"

#define INPUT_SIZE 65536
/* An exec that the agent does not know has ended, and its result is near; or it has not begun. */
#define UNKNOWN_GRACE_MS 1000

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Leave the command to the broker, which ends it. */
static void give_up(struct pump *p, int status)
{
	p->status = status;
	p->over = true;
	p->pending_len = 0;
	hutch_close(p->h);
	p->h = NULL;
}

/* ---- Output ---- */

static void write_failed(struct pump *p)
{
	int saved = errno;

	if (saved != EPIPE)
		cli_error(p->cli, "io", saved, "cannot write to standard %s: %s",
			  p->sink == &p->out ? "output" : "error", strerror(saved));
	give_up(p, saved == EPIPE ? EXIT_SIGNAL + SIGPIPE : EXIT_HUTCH);
}

static void write_pending(struct pump *p)
{
	while (p->pending_len > 0) {
		ssize_t n = sink_write(p->sink, p->pending, p->pending_len);

		if (n == 0)
			return;
		if (n < 0) {
			write_failed(p);
			return;
		}
		p->pending += n;
		p->pending_len -= (size_t)n;
	}
}

static void stop_input(struct pump *p)
{
	p->input = false;
	hutch_send_end(p->h);
}

static void on_event(struct pump *p, struct hutch_doc *doc)
{
	const struct hutch_value *e = hutch_doc_root(doc);
	const char *what = hutch_get_text(e, "event", "");

	if (strcmp(what, "stdin_closed") == 0)
		stop_input(p);
	else if (strcmp(what, "gap") == 0)
		cli_note("%" PRIu64 " bytes of %s are missing here",
			 hutch_get_uint(e, "to", 0) - hutch_get_uint(e, "from", 0),
			 hutch_get_text(e, "stream", "output"));
	hutch_doc_free(doc);
}

static void on_failure(struct pump *p, const struct hutch_failure *why)
{
	p->status = cli_fail(p->cli, why);
	p->over = true;
}

static void take(struct pump *p, struct sink *to, const struct hutch_item *item)
{
	p->sink = to;
	p->pending = item->data;
	p->pending_len = item->len;
}

/* Take one thing that the broker has said. False: there is nothing, or the output is stuck. */
static bool step_output(struct pump *p)
{
	struct hutch_failure why;
	struct hutch_item item;

	if (p->pending_len == 0) {
		switch (hutch_next(p->h, &item, &why)) {
		case HUTCH_AGAIN:
			return false;
		case HUTCH_STDOUT:
			take(p, &p->out, &item);
			break;
		case HUTCH_STDERR:
			take(p, &p->err, &item);
			break;
		case HUTCH_EVENT:
			on_event(p, item.doc);
			return true;
		case HUTCH_RESULT:
			p->doc = item.doc;
			p->over = true;
			return true;
		case HUTCH_FAILED:
			on_failure(p, &why);
			return true;
		}
	}
	write_pending(p);
	return p->pending_len == 0;
}

/* ---- Input ---- */

static void step_input(struct pump *p)
{
	static char buf[INPUT_SIZE];
	size_t room = hutch_send_room(p->h);
	ssize_t n;

	if (!p->input || room == 0)
		return;
	n = read(STDIN_FILENO, buf, room < sizeof(buf) ? room : sizeof(buf));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		/* Not the end of the input: the command must not take what it got for all of it. */
		cli_error(p->cli, "io", errno, "cannot read standard input: %s", strerror(errno));
		give_up(p, EXIT_HUTCH);
	} else if (n == 0) {
		stop_input(p);
	} else {
		hutch_send(p->h, buf, (size_t)n);
	}
}

/* ---- Signals ---- */

static void step_side(struct pump *p)
{
	struct hutch_failure why;
	struct hutch_item item;

	switch (hutch_next(p->side, &item, &why)) {
	case HUTCH_AGAIN:
	case HUTCH_STDOUT:
	case HUTCH_STDERR:
		return;
	case HUTCH_EVENT:
		hutch_doc_free(item.doc);
		return;
	case HUTCH_RESULT:
		hutch_doc_free(item.doc);
		break;
	case HUTCH_FAILED:
		if (strcmp(why.kind, "not_found") == 0)
			p->give_up_ms = now_ms() + UNKNOWN_GRACE_MS;
		else
			cli_note("%s", why.message);
		break;
	}
	hutch_close(p->side);
	p->side = NULL;
}

/* What it is sent over is another connection: this one is busy with the exec. */
static void send_aside(struct pump *p, const char *method, const struct hutch_pair *params,
		       size_t count)
{
	struct hutch_call call = {
		.method = method, .vm = p->vm, .id = p->id, .params = params, .param_count = count};
	struct hutch_failure why;

	hutch_close(p->side);
	p->side = hutch_open(hutch_socket(p->h), CLIENT_NAME, &why);
	if (p->side == NULL || hutch_start(p->side, &call, &why) < 0)
		cli_note("%s", why.message);
	else
		step_side(p);
}

static void step_signals(struct pump *p)
{
	static const struct hutch_pair interrupt = {"signal",
						    {.type = HUTCH_TEXT, .as.text = {"INT", 3}}};
	unsigned n = signals_interrupts();

	if (signals_ending() != 0) {
		give_up(p, EXIT_SIGNAL + signals_ending());
		return;
	}
	if (p->give_up_ms != 0 && now_ms() >= p->give_up_ms) {
		give_up(p, EXIT_SIGNAL + SIGINT);
		return;
	}
	if (n == p->interrupts_seen)
		return;
	if (n > 2)
		give_up(p, EXIT_SIGNAL + SIGINT);
	else if (n == 2)
		send_aside(p, "exec.kill", NULL, 0);
	else
		send_aside(p, "exec.signal", &interrupt, 1);
	p->interrupts_seen = n;
}

/* ---- The loop ---- */

/* Wait for something to do. progress: only look. */
static void wait_for_work(struct pump *p, bool progress)
{
	bool held = p->pending_len > 0;
	struct pollfd fds[4] = {
		{.fd = hutch_fd(p->h), .events = hutch_poll_events(p->h)},
		{.fd = p->side ? hutch_fd(p->side) : -1},
		{.fd = p->input && hutch_send_room(p->h) > 0 ? STDIN_FILENO : -1, .events = POLLIN},
		{.fd = held ? sink_fd(p->sink) : -1, .events = POLLOUT},
	};
	int wait_ms = progress ? 0 : -1;

	if (held)
		fds[0].events &= ~POLLIN;
	if (fds[0].events == 0)
		fds[0].fd = -1; /* its hang-up must not wake us while the output is stuck */
	if (p->side != NULL)
		fds[1].events = hutch_poll_events(p->side);
	if (p->give_up_ms != 0 && !progress) {
		uint64_t now = now_ms();

		wait_ms = p->give_up_ms > now ? (int)(p->give_up_ms - now) : 0;
	}
	if (signals_poll(fds, 4, wait_ms) <= 0)
		return;
	if (fds[1].revents != 0)
		step_side(p);
	if (held && fds[3].revents != 0)
		p->sink->ready = true;
	if (held && fds[0].revents != 0)
		hutch_send(p->h, NULL, 0);
	if (fds[2].revents != 0)
		step_input(p);
}

void pump_run(struct pump *p, const struct hutch_exec_options *x)
{
	struct hutch_failure why;
	bool progress;

	if (hutch_start_exec(p->h, p->vm, x, &why) < 0) {
		on_failure(p, &why);
		return;
	}
	while (!p->over) {
		progress = step_output(p);
		if (!p->over)
			step_signals(p);
		if (!p->over)
			wait_for_work(p, progress);
	}
	hutch_close(p->side);
	p->side = NULL;
}

void pump_free(struct pump *p)
{
	hutch_close(p->h);
	hutch_doc_free(p->doc);
	sink_free(&p->out);
	sink_free(&p->err);
}

struct hutch_doc *pump_request(struct cli *cli, struct hutch *h, const struct hutch_call *call,
			       uint64_t timeout_ms, int *status)
{
	uint64_t now, until = now_ms() + timeout_ms;
	struct hutch_failure why;
	struct hutch_item item;
	enum hutch_next what = HUTCH_FAILED;

	if (hutch_start(h, call, &why) == 0) {
		while ((what = hutch_next(h, &item, &why)) == HUTCH_AGAIN) {
			struct pollfd fd = {hutch_fd(h), hutch_poll_events(h), 0};

			now = now_ms();
			if (now >= until) {
				*status = cli_error(cli, "timeout", 0,
						    "the broker did not answer %s in time",
						    call->method);
				return NULL;
			}
			signals_poll(&fd, 1, (int)(until - now));
			if (signals_interrupts() > 0 || signals_ending() != 0) {
				*status = EXIT_SIGNAL +
					  (signals_ending() ? signals_ending() : SIGINT);
				return NULL;
			}
		}
	}
	if (what == HUTCH_RESULT)
		return item.doc;
	if (what == HUTCH_EVENT)
		hutch_doc_free(item.doc);
	if (what != HUTCH_FAILED)
		snprintf(why.message, sizeof(why.message),
			 "%s was answered with something else than a result", call->method);
	*status = cli_fail(cli, &why);
	return NULL;
}
