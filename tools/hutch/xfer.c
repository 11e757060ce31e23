/* SPDX-License-Identifier: Apache-2.0 */
/* A call that carries bytes; see xfer.h. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/hutch/signals.h"
#include "tools/hutch/text.h"
#include "tools/hutch/xfer.h"

#define SHOW_AFTER_MS 500
#define SHOW_EVERY_MS 100
/* So that each side finds work when it gets the processor. */
#define SOCKET_BUFFER (1 << 20)

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int xfer_open(struct xfer *x, struct cli *cli, const char *vm, const char *user)
{
	const int size = SOCKET_BUFFER;

	*x = (struct xfer){.cli = cli, .vm = vm, .user = user, .status = cli->command->failed};
	x->h = cli_open(cli);
	if (x->h == NULL)
		return -1;
	setsockopt(hutch_fd(x->h), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	return 0;
}

static void forget(struct xfer *x)
{
	hutch_doc_free(x->result);
	hutch_doc_free(x->event);
	x->result = x->event = NULL;
}

void xfer_close(struct xfer *x)
{
	xfer_quiet(x);
	forget(x);
	hutch_close(x->h);
	x->h = NULL;
}

/* ---- The bar ---- */

static void show(struct xfer *x, uint64_t now)
{
	char done[32], rate[32], part[16] = "";

	text_bytes(done, sizeof(done), x->done);
	text_bytes(rate, sizeof(rate), x->done * 1000 / (now - x->began_ms));
	if (x->total > 0 && x->done <= x->total)
		snprintf(part, sizeof(part), "%3u%%  ", (unsigned)(x->done * 100 / x->total));
	fputs("\r\033[K", stderr);
	text_put(stderr, x->label, strlen(x->label), false);
	fprintf(stderr, "  %s%s  %s/s", part, done, rate);
	x->shown_ms = now;
}

static void count(struct xfer *x, size_t n)
{
	uint64_t now;

	x->done += n;
	if (!x->show)
		return;
	now = now_ms();
	if (now >= x->began_ms + SHOW_AFTER_MS && now >= x->shown_ms + SHOW_EVERY_MS)
		show(x, now);
}

void xfer_quiet(struct xfer *x)
{
	if (x->shown_ms != 0)
		fputs("\r\033[K", stderr);
	x->shown_ms = 0;
	x->show = false;
}

/* ---- The call ---- */

static int broken_off(struct xfer *x, int status)
{
	xfer_quiet(x);
	x->status = status;
	x->over = true;
	return -1;
}

static int failed(struct xfer *x, const struct hutch_failure *why)
{
	xfer_quiet(x);
	return broken_off(x, cli_fail(x->cli, why));
}

/* Wait for the connection, at most wait_ms. -1: a signal came. */
static int wait_ready(struct xfer *x, int wait_ms)
{
	struct pollfd fd = {hutch_fd(x->h), hutch_poll_events(x->h), 0};

	signals_poll(&fd, 1, wait_ms);
	if (signals_ending() != 0)
		return broken_off(x, EXIT_SIGNAL + signals_ending());
	if (signals_interrupts() > 0)
		return broken_off(x, EXIT_SIGNAL + SIGINT);
	return 0;
}

int xfer_start(struct xfer *x, const char *method, const struct hutch_pair *params, size_t count_,
	       bool input)
{
	struct hutch_pair all[XFER_PARAMS + 1];
	struct hutch_call call = {.method = method, .vm = x->vm, .params = all, .input = input};
	struct hutch_failure why;

	forget(x);
	memcpy(all, params, count_ * sizeof(*params));
	call.param_count = count_;
	if (x->user != NULL)
		all[call.param_count++] = (struct hutch_pair){"user", hutch_text(x->user)};
	x->over = false;
	x->began_ms = now_ms();
	if (hutch_start(x->h, &call, &why) < 0)
		return failed(x, &why);
	return 0;
}

/* One step of the answer: 1 data, 2 an event, 0 nothing yet, -1 the call is over. */
static int step(struct xfer *x, struct hutch_item *item, struct hutch_failure *told)
{
	struct hutch_failure why;

	switch (hutch_next(x->h, item, &why)) {
	case HUTCH_AGAIN:
		return 0;
	case HUTCH_STDOUT:
	case HUTCH_STDERR:
		return 1;
	case HUTCH_EVENT:
		hutch_doc_free(x->event);
		x->event = item->doc;
		return 2;
	case HUTCH_RESULT:
		x->result = item->doc;
		x->over = true;
		return -1;
	case HUTCH_FAILED:
		break;
	}
	if (told == NULL)
		return failed(x, &why);
	*told = why;
	x->over = true;
	return -1;
}

int xfer_send(struct xfer *x, const void *data, size_t len)
{
	const char *p = data;
	struct hutch_item item;

	while (len > 0) {
		size_t n = hutch_send(x->h, p, len);

		p += n;
		len -= n;
		count(x, n);
		/* An ERROR may come at any time, and a signal. */
		if (step(x, &item, NULL) < 0 || wait_ready(x, n > 0 ? 0 : -1) < 0)
			return -1;
	}
	return 0;
}

ssize_t xfer_recv(struct xfer *x, const void **data, bool *event)
{
	struct hutch_item item;

	if (event != NULL)
		*event = false;
	while (!x->over) {
		switch (step(x, &item, NULL)) {
		case 0:
			wait_ready(x, -1);
			break;
		case 1:
			count(x, item.len);
			*data = item.data;
			return (ssize_t)item.len;
		case 2:
			if (event == NULL)
				break;
			*event = true;
			return 1;
		}
	}
	return x->result != NULL ? 0 : -1;
}

static int finish(struct xfer *x, struct hutch_failure *told)
{
	struct hutch_item item;

	if (!x->over)
		hutch_send_end(x->h);
	while (!x->over)
		if (step(x, &item, told) == 0)
			wait_ready(x, -1);
	return x->result != NULL ? 0 : -1;
}

int xfer_finish(struct xfer *x)
{
	return finish(x, NULL);
}

int xfer_request(struct xfer *x, const char *method, const struct hutch_pair *params, size_t n,
		 struct hutch_failure *why)
{
	if (why != NULL)
		*why = (struct hutch_failure){0};
	if (xfer_start(x, method, params, n, false) < 0)
		return -1;
	return finish(x, why);
}
