/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket. */
#include "host/vsock/vmm_ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_fork.h"

#define ACCEPT_RETRY_MS 100

/* ---- requests ---- */

/*
 * A request's answer, without the newline; arg is what follows the verb and one space, "" for none.
 */
typedef void (*answer_fn)(struct vmm *vmm, const char *arg, char *reply, size_t size);

static bool parse_number(const char *arg, uint64_t most, uint64_t *number)
{
	uint64_t value = 0;

	if (!*arg)
		return false;
	for (; *arg; arg++) {
		if (*arg < '0' || *arg > '9')
			return false;
		value = value * 10 + (uint64_t)(*arg - '0');
		if (value > most)
			return false;
	}
	*number = value;
	return true;
}

static void answer_renew(struct vmm *vmm, const char *arg, char *reply, size_t size)
{
	uint64_t ms;

	if (!parse_number(arg, VMM_DEADLINE_MAX_MS, &ms))
		snprintf(reply, size, "err renew wants milliseconds, at most %llu",
			 VMM_DEADLINE_MAX_MS);
	else if (vmm_deadline_set(&vmm->deadline, ms) < 0)
		snprintf(reply, size, "err timer: %s", strerrordesc_np(errno));
	else
		snprintf(reply, size, "ok");
}

static void answer_status(struct vmm *vmm, const char *arg, char *reply, size_t size)
{
	struct vsock_stats st;

	if (*arg) {
		snprintf(reply, size, "err status takes no argument");
		return;
	}
	vsock_dev_stats(vmm->dev, &st);
	snprintf(reply, size,
		 "ok running=%d broken=%d cid=%" PRIu64 " deadline_ms=%" PRIu64
		 " conns=%u handshakes=%u to_guest_bytes=%" PRIu64 " to_guest_packets=%" PRIu64
		 " to_host_bytes=%" PRIu64 " to_host_packets=%" PRIu64 " signals=%" PRIu64
		 " kicks=%" PRIu64 " bad_cid=%" PRIu64 " violations=%" PRIu64,
		 st.running, st.broken != NULL, st.cid, vmm_deadline_left(&vmm->deadline), st.conns,
		 st.handshakes, st.to_guest_bytes, st.to_guest_packets, st.to_host_bytes,
		 st.to_host_packets, st.signals, st.kicks, st.bad_cid, st.violations);
}

static const struct {
	const char *verb;
	answer_fn answer;
} requests[] = {
	{"renew", answer_renew},
	{"status", answer_status},
};

size_t vmm_ctl_answer(struct vmm *vmm, const char *line, char reply[VMM_CTL_REPLY])
{
	size_t verb_len = strcspn(line, " ");
	const char *arg = line + verb_len + (line[verb_len] == ' ');
	size_t len;

	snprintf(reply, VMM_CTL_REPLY, "err unknown request");
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		if (strlen(requests[i].verb) == verb_len &&
		    memcmp(requests[i].verb, line, verb_len) == 0)
			requests[i].answer(vmm, arg, reply, VMM_CTL_REPLY - 1);
	}
	len = strlen(reply);
	reply[len++] = '\n';
	return len;
}

/* ---- connections ---- */

static void drop_fds(struct vmm_ctl_conn *c)
{
	while (c->nfds > 0)
		close(c->fds[--c->nfds]);
}

static void conn_close(struct vmm_ctl_conn *c)
{
	if (c->src.fd < 0)
		return;
	drop_fds(c);
	c->waiting = false;
	loop_del(&c->ctl->vmm->loop, &c->src);
	close(c->src.fd);
	c->src.fd = -1;
	c->len = 0;
}

/* A peer that does not read its answers is closed. */
static void conn_reply(struct vmm_ctl_conn *c, const char *reply, size_t len)
{
	if (send(c->src.fd, reply, len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)len)
		conn_close(c);
}

/* "delta N": N, and *what becomes "delta". */
static unsigned take_below(const char **what)
{
	static const char delta[] = "delta ";
	const char *number = *what + sizeof(delta) - 1;
	uint64_t below;

	if (strncmp(*what, delta, sizeof(delta) - 1) != 0 ||
	    !parse_number(number, VMM_RAM_MAX_LAYERS, &below))
		return VMM_RAM_MAX_LAYERS;
	*what = "delta";
	return (unsigned)below;
}

/* Starts it, and waits; or refuses. The descriptors are used up. */
static void conn_capture(struct vmm_ctl_conn *c, const char *what)
{
	static const char *const kinds[] = {
		[CAPTURE_DELTA] = "delta", [CAPTURE_WHOLE] = "whole", [CAPTURE_AHEAD] = "ahead"};
	unsigned kind = 0, wanted, below = take_below(&what);
	char reply[VMM_CTL_REPLY];
	const char *why;

	while (kind < sizeof(kinds) / sizeof(kinds[0]) && strcmp(what, kinds[kind]) != 0)
		kind++;
	wanted = kind == CAPTURE_DELTA ? 2 : 1;
	if (kind == sizeof(kinds) / sizeof(kinds[0])) {
		why = "capture wants whole, delta (and a layer's number) or ahead";
	} else if (c->nfds != wanted) {
		why = "a data file's descriptor is wanted, and for delta an extents file's";
	} else {
		c->nfds = 0;
		why = vmm_capture_start(c->ctl->vmm, (enum vmm_capture_kind)kind, below, c->fds[0],
					wanted == 2 ? c->fds[1] : -1);
	}
	c->waiting = !why;
	if (why)
		conn_reply(c, reply, (size_t)snprintf(reply, sizeof(reply), "err %s\n", why));
}

static void conn_fork(struct vmm_ctl_conn *c)
{
	char reply[VMM_CTL_REPLY];
	int fds[VMM_FORK_FDS];
	bool child = false;
	const char *why;

	if (c->nfds != VMM_FORK_FDS) {
		why = "fork wants six descriptors";
	} else {
		c->nfds = 0;
		memcpy(fds, c->fds, sizeof(fds));
		why = vmm_fork(c->ctl->vmm, fds, &child);
		for (int i = 0; i < VMM_FORK_FDS; i++)
			close(fds[i]);
	}
	if (child)
		return;
	conn_reply(c, reply,
		   (size_t)snprintf(reply, sizeof(reply), why ? "err fork: %s\n" : "ok\n", why));
}

static void conn_line(struct vmm_ctl_conn *c)
{
	static const char capture[] = "capture ";
	char reply[VMM_CTL_REPLY];

	if (strncmp(c->line, capture, sizeof(capture) - 1) == 0)
		conn_capture(c, c->line + sizeof(capture) - 1);
	else if (strcmp(c->line, "fork") == 0)
		conn_fork(c);
	else
		conn_reply(c, reply, vmm_ctl_answer(c->ctl->vmm, c->line, reply));
	drop_fds(c);
}

/* Answers every whole line that is there. */
static void conn_lines(struct vmm_ctl_conn *c)
{
	static const char too_long[] = "err line too long\n";
	char *nl;

	while (c->src.fd >= 0 && !c->waiting && (nl = memchr(c->line, '\n', c->len))) {
		size_t used = (size_t)(nl - c->line) + 1;

		*nl = '\0';
		conn_line(c);
		if (c->src.fd < 0)
			return;
		c->len -= used;
		memmove(c->line, c->line + used, c->len);
	}
	if (c->len == sizeof(c->line)) {
		conn_reply(c, too_long, sizeof(too_long) - 1);
		conn_close(c);
	}
}

/* Keep what fits, and close the rest. */
static void take_fds(struct vmm_ctl_conn *c, struct msghdr *msg)
{
	for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m; m = CMSG_NXTHDR(msg, m)) {
		size_t n = (m->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(m) + i * sizeof(fd), sizeof(fd));
			if (c->nfds < VMM_CTL_FDS)
				c->fds[c->nfds++] = fd;
			else
				close(fd);
		}
	}
}

static ssize_t conn_recv(struct vmm_ctl_conn *c)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(VMM_CTL_FDS * sizeof(int))];
	} control;
	struct iovec iov = {c->line + c->len, sizeof(c->line) - c->len};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	ssize_t n = recvmsg(c->src.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n >= 0)
		take_fds(c, &msg);
	return n;
}

static void conn_fire(struct loop_source *src, uint32_t events)
{
	struct vmm_ctl_conn *c = container_of(src, struct vmm_ctl_conn, src);
	ssize_t n;

	(void)events;
	if (src->fd < 0)
		return;
	n = conn_recv(c);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_close(c);
		return;
	}
	c->len += (size_t)n;
	conn_lines(c);
}

/* A free place, or the one of the oldest connection. */
static struct vmm_ctl_conn *take_place(struct vmm_ctl *ctl)
{
	struct vmm_ctl_conn *oldest = &ctl->conn[0];

	for (int i = 0; i < VMM_CTL_CONNS; i++) {
		struct vmm_ctl_conn *c = &ctl->conn[i];

		if (c->src.fd < 0)
			return c;
		if (c->number < oldest->number)
			oldest = c;
	}
	conn_close(oldest);
	return oldest;
}

static void listener_fire(struct loop_source *src, uint32_t events)
{
	struct vmm_ctl *ctl = container_of(src, struct vmm_ctl, listener);
	struct vmm_ctl_conn *c;
	int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0) {
		ctl->paused = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED &&
			      loop_mod(&ctl->vmm->loop, src, 0) == 0;
		return;
	}
	c = take_place(ctl);
	c->src = (struct loop_source){.fire = conn_fire, .fd = fd};
	c->number = ctl->accepted++;
	if (loop_add(&ctl->vmm->loop, &c->src, EPOLLIN) < 0)
		conn_close(c);
}

int vmm_ctl_open(struct vmm_ctl *ctl, struct vmm *vmm, int listen_fd)
{
	ctl->vmm = vmm;
	for (int i = 0; i < VMM_CTL_CONNS; i++) {
		ctl->conn[i].ctl = ctl;
		ctl->conn[i].src.fd = -1;
	}
	ctl->listener = (struct loop_source){.fire = listener_fire, .fd = listen_fd};
	if (listen_fd < 0)
		return 0;
	if (fcntl(listen_fd, F_SETFL, O_NONBLOCK) < 0)
		return -1;
	return loop_add(&vmm->loop, &ctl->listener, EPOLLIN);
}

/* Nobody may be there any more to hear of it. */
static void answer_capture(struct vmm_ctl *ctl)
{
	struct vmm_capture *done = &ctl->vmm->capture;
	char reply[VMM_CTL_REPLY];
	int len;

	vmm_capture_collect(done);
	if (done->error)
		len = snprintf(reply, sizeof(reply), "err capture: %s: errno=%d %s\n", done->stage,
			       done->error, strerrordesc_np(done->error));
	else
		len = snprintf(reply, sizeof(reply),
			       "ok bytes=%" PRIu64 " extents=%" PRIu64 " us=%" PRIu64 "\n",
			       done->bytes, done->extents, done->us);
	for (int i = 0; i < VMM_CTL_CONNS; i++) {
		struct vmm_ctl_conn *c = &ctl->conn[i];

		if (c->src.fd < 0 || !c->waiting)
			continue;
		c->waiting = false;
		conn_reply(c, reply, (size_t)len);
		vmm_capture_forget(done);
		conn_lines(c);
		return;
	}
	vmm_capture_forget(done);
}

int vmm_ctl_tick(struct vmm_ctl *ctl, int timeout_ms)
{
	if (ctl->vmm->capture.state == CAPTURE_DONE)
		answer_capture(ctl);
	if (!ctl->paused)
		return timeout_ms;
	if (loop_mod(&ctl->vmm->loop, &ctl->listener, EPOLLIN) == 0)
		ctl->paused = false;
	return timeout_ms >= 0 && timeout_ms < ACCEPT_RETRY_MS ? timeout_ms : ACCEPT_RETRY_MS;
}

void vmm_ctl_close(struct vmm_ctl *ctl)
{
	if (!ctl->vmm)
		return;
	for (int i = 0; i < VMM_CTL_CONNS; i++)
		conn_close(&ctl->conn[i]);
	loop_del(&ctl->vmm->loop, &ctl->listener);
}
