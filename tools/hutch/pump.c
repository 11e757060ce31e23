/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command in a VM, connected to this process.
 *
 * The loop has at most one piece of output in hand (p->pending, which lies in the connection's
 * buffer). While its sink takes no more, nothing further is read from the broker, which in turn
 * stops reading from the agent; input and signals are served all the same. Input is read only when
 * the connection has sent what it had.
 *
 * With a PTY, the size of our terminal follows ours over a connection of its own: one exec.resize at
 * a time, and again when the size changed meanwhile. Raw mode is undone before anything is said.
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
#include "tools/hutch/tty.h"

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
	tty_restore();
	hutch_close(p->h);
	p->h = NULL;
}

/* ---- Output ---- */

static void write_failed(struct pump *p)
{
	int saved = errno;

	tty_restore();
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

/* The first event: the command runs, on a PTY of this size. */
static void on_running(struct pump *p, const struct hutch_value *e)
{
	p->running = true;
	p->rows = (uint32_t)hutch_get_uint(e, "rows", p->rows);
	p->cols = (uint32_t)hutch_get_uint(e, "cols", p->cols);
}

static void on_event(struct pump *p, struct hutch_doc *doc)
{
	const struct hutch_value *e = hutch_doc_root(doc);
	const char *what = hutch_get_text(e, "event", "");

	if (strcmp(what, "stdin_closed") == 0)
		stop_input(p);
	else if (strcmp(what, "started") == 0 || strcmp(what, "attached") == 0)
		on_running(p, e);
	else if (strcmp(what, "gap") == 0 && !tty_is_raw())
		cli_note("%" PRIu64 " bytes of %s are missing here",
			 hutch_get_uint(e, "to", 0) - hutch_get_uint(e, "from", 0),
			 hutch_get_text(e, "stream", "output"));
	hutch_doc_free(doc);
}

static void on_failure(struct pump *p, const struct hutch_failure *why)
{
	tty_restore();
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

static void detach(struct pump *p)
{
	p->detaching = hutch_send_event(p->h, "detach") == 0;
	p->input = false;
}

/* What was typed or read, to the command; the keys that detach are taken out. */
static void pass_on(struct pump *p, const char *buf, size_t n)
{
	static char filtered[INPUT_SIZE + KEYS_MAX];
	bool leave = false;

	if (tty_is_raw() && p->keys.len > 0) {
		n = keys_filter(&p->keys, buf, n, filtered, &leave);
		buf = filtered;
	}
	if (n > 0)
		hutch_send(p->h, buf, n);
	if (leave)
		detach(p);
}

static void end_of_input(struct pump *p)
{
	char held[KEYS_MAX];
	size_t n = keys_flush(&p->keys, held);

	if (n > 0)
		hutch_send(p->h, held, n);
	stop_input(p);
}

static void step_input(struct pump *p)
{
	static char buf[INPUT_SIZE];
	size_t room = hutch_send_room(p->h);
	ssize_t n;

	if (!p->input || room <= KEYS_MAX)
		return;
	room -= KEYS_MAX;
	n = read(STDIN_FILENO, buf, room < sizeof(buf) ? room : sizeof(buf));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) {
		int saved = errno;

		/* Not the end of the input: the command must not take what it got for all of it. */
		tty_restore();
		cli_error(p->cli, "io", saved, "cannot read standard input: %s", strerror(saved));
		give_up(p, EXIT_HUTCH);
	} else if (n == 0) {
		end_of_input(p);
	} else {
		pass_on(p, buf, (size_t)n);
	}
}

/* ---- The terminal's size ---- */

/* What is typed reaches the command after the size that it was typed at, when it comes back. */
static bool may_type(const struct pump *p)
{
	return p->input && hutch_send_room(p->h) > KEYS_MAX &&
	       (!p->tty || (p->running && (p->settled || !p->resizing)));
}

static void close_sizer(struct pump *p)
{
	hutch_close(p->sizer);
	p->sizer = NULL;
	p->resizing = false;
	p->settled = true;
}

/* One exec.resize if the size is another than the PTY's. A failure leaves it as it is. */
static void step_size(struct pump *p)
{
	struct hutch_pair size[] = {{"rows", hutch_uint(p->rows)}, {"cols", hutch_uint(p->cols)}};
	struct hutch_call call = {.method = "exec.resize",
				  .vm = p->vm,
				  .id = p->id,
				  .params = size,
				  .param_count = 2};
	uint32_t rows, cols;

	if (!p->tty || p->view || !p->running || p->resizing || !tty_size(&rows, &cols) ||
	    (rows == p->rows && cols == p->cols))
		return;
	p->rows = rows;
	p->cols = cols;
	size[0].value = hutch_uint(rows);
	size[1].value = hutch_uint(cols);
	if (p->sizer == NULL)
		p->sizer = hutch_open(hutch_socket(p->h), CLIENT_NAME, NULL);
	if (p->sizer != NULL && hutch_start(p->sizer, &call, NULL) == 0)
		p->resizing = true;
	else
		close_sizer(p);
}

static void step_sizer(struct pump *p)
{
	struct hutch_item item;

	switch (hutch_next(p->sizer, &item, NULL)) {
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
		break;
	}
	p->resizing = false;
	p->settled = true;
	if (!hutch_alive(p->sizer))
		close_sizer(p);
	step_size(p);
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

static void step_tty_signals(struct pump *p)
{
	bool raw = tty_is_raw();

	if (signals_stop_asked()) {
		tty_restore();
		signals_stop();
		if (raw)
			tty_raw();
	}
	/* Whoever had the terminal meanwhile may have left it in another mode. */
	if (signals_continued() && raw) {
		tty_restore();
		tty_raw();
	}
	signals_resized();
	step_size(p);
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
	if (p->tty)
		step_tty_signals(p);
	if (n == p->interrupts_seen)
		return;
	if (n > 2 || p->view || tty_is_raw())
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
	struct pollfd fds[5] = {
		{.fd = hutch_fd(p->h), .events = hutch_poll_events(p->h)},
		{.fd = p->side ? hutch_fd(p->side) : -1},
		{.fd = may_type(p) ? STDIN_FILENO : -1, .events = POLLIN},
		{.fd = held ? sink_fd(p->sink) : -1, .events = POLLOUT},
		{.fd = p->resizing ? hutch_fd(p->sizer) : -1},
	};
	int wait_ms = progress ? 0 : -1;

	if (held)
		fds[0].events &= ~POLLIN;
	if (fds[0].events == 0)
		fds[0].fd = -1; /* its hang-up must not wake us while the output is stuck */
	if (p->side != NULL)
		fds[1].events = hutch_poll_events(p->side);
	if (p->resizing)
		fds[4].events = hutch_poll_events(p->sizer);
	if (p->give_up_ms != 0 && !progress) {
		uint64_t now = now_ms();

		wait_ms = p->give_up_ms > now ? (int)(p->give_up_ms - now) : 0;
	}
	if (signals_poll(fds, 5, wait_ms) <= 0)
		return;
	if (fds[1].revents != 0)
		step_side(p);
	if (fds[4].revents != 0)
		step_sizer(p);
	if (held && fds[3].revents != 0)
		p->sink->ready = true;
	if (held && fds[0].revents != 0)
		hutch_send(p->h, NULL, 0);
	if (fds[2].revents != 0)
		step_input(p);
}

void pump_prepare(struct pump *p)
{
	signals_hold();
	if (!p->tty)
		return;
	signals_hold_tty();
	if (p->input)
		tty_raw();
}

void pump_serve(struct pump *p)
{
	bool progress;

	while (!p->over) {
		progress = step_output(p);
		if (!p->over)
			step_signals(p);
		if (!p->over)
			wait_for_work(p, progress);
	}
	tty_restore();
	hutch_close(p->side);
	p->side = NULL;
	close_sizer(p);
}

void pump_run(struct pump *p, struct hutch_exec_options *x)
{
	struct hutch_failure why;

	pump_prepare(p);
	if (p->tty) {
		p->rows = 24;
		p->cols = 80;
		tty_size(&p->rows, &p->cols);
		x->rows = p->rows;
		x->cols = p->cols;
		x->notify = true;
	}
	if (hutch_start_exec(p->h, p->vm, x, &why) < 0)
		on_failure(p, &why);
	else
		pump_serve(p);
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
			if (timeout_ms > 0 && now >= until) {
				*status = cli_error(cli, "timeout", 0,
						    "the broker did not answer %s in time",
						    call->method);
				return NULL;
			}
			signals_poll(&fd, 1, timeout_ms > 0 ? (int)(until - now) : -1);
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
