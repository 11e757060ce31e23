/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's own connection to the host; see listen.h.
 *
 * Its HELLO is what "ready" means to the broker, and its loss is how the agent learns of a restore: the
 * transport resets it then. So a loss is answered by a dial at once; only dials that fail are spaced out, up to
 * AGENT_DIAL_MAX_MS, which costs an idle machine next to nothing while no broker lives.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <linux/vm_sockets.h>

#include "guest/conn.h"
#include "guest/limits.h"
#include "guest/listen.h"
#include "guest/log.h"
#include "guest/loop.h"
#include "protocol/limits.h"

static const char *unix_path;
static struct loop_source dialing = {.fd = -1};
static uint64_t pause_ms;
static bool on, greeted;
static struct conn *current;

static void dial(void);

static void pause_over(struct loop_timer *t)
{
	(void)t;
	dial();
}

static struct loop_timer timer = {.due = pause_over, .always = true};

static void retry_later(void)
{
	loop_close(&dialing);
	pause_ms = pause_ms ? 2 * pause_ms : AGENT_DIAL_MIN_MS;
	if (pause_ms > AGENT_DIAL_MAX_MS)
		pause_ms = AGENT_DIAL_MAX_MS;
	loop_timer_after_ms(&timer, pause_ms);
}

static void heard(void)
{
	greeted = true;
	pause_ms = 0;
}

/* One that ends before the host said HELLO counts as a failed dial, so that this never spins. */
static void lost(void)
{
	bool was_good = greeted;

	greeted = false;
	current = NULL;
	if (!on)
		return;
	log_debug("the connection to the host was lost");
	if (was_good)
		dial();
	else
		retry_later();
}

static void connected(void)
{
	struct conn *c = conn_open(dialing.fd);

	dialing.fd = -1;
	dialing.events = 0;
	if (!c) {
		retry_later();
		return;
	}
	c->closed = lost;
	c->greeted = heard;
	current = c;
	log_debug("connected to the host");
}

static void ready(struct loop_source *src, uint32_t events)
{
	if (events & (EPOLLERR | EPOLLHUP)) {
		log_debug("dial to the host: refused");
		retry_later();
		return;
	}
	loop_watch(src, 0);
	connected();
}

static int start_connect(int fd)
{
	const struct sockaddr_vm vm = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_HOST,
		.svm_port = HUTCH_PORT_HELLO,
	};
	struct sockaddr_un un = {.sun_family = AF_UNIX};

	if (!unix_path)
		return connect(fd, (const struct sockaddr *)&vm, sizeof(vm));
	strcpy(un.sun_path, unix_path);
	return connect(fd, (const struct sockaddr *)&un, sizeof(un));
}

static void dial(void)
{
	int fd = socket(unix_path ? AF_UNIX : AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			0);

	loop_source_init(&dialing, fd, ready);
	if (fd < 0) {
		log_error("dial to the host: socket");
		retry_later();
	} else if (start_connect(fd) == 0) {
		connected();
	} else if (errno == EINPROGRESS) {
		loop_watch(&dialing, EPOLLOUT);
	} else {
		log_debug("dial to the host: %m");
		retry_later();
	}
}

void dial_start(const char *path)
{
	if (path && strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
		log_info("dial: the path %s is too long", path);
		return;
	}
	unix_path = path;
	on = true;
	dial();
}

void dial_renew(void)
{
	if (!on || (current ? !current->held : dialing.fd >= 0))
		return;
	on = false; /* so that its loss is not answered by a dial */
	if (current)
		conn_lost(current);
	on = true;
	loop_timer_clear(&timer);
	loop_close(&dialing);
	pause_ms = 0;
	dial();
}

bool dial_on(void)
{
	return on;
}

void dial_exit(void)
{
	on = false;
	loop_timer_clear(&timer);
	loop_close(&dialing);
}
