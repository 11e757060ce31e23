/* SPDX-License-Identifier: Apache-2.0 */
/* The port on which a VM's agent says hello. */
#include "host/hutchd/hello.h"

#include <sys/socket.h>

#include "host/hutchd/dial_socket.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"

static void on_ready(void *arg, struct guest_link *g)
{
	struct hello_port *h = arg;

	guest_link_move(g, NULL);
	h->got(h->arg, g);
}

static void on_lost(void *arg, struct guest_link *g, const struct hutch_error *err)
{
	struct hello_port *h = arg;

	(void)g;
	log_info(h->object, "a connection to the hello port failed: %s", err->message);
}

static const struct link_owner owner = {.ready = on_ready, .lost = on_lost};

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct hello_port *h = arg;
	int conn = accept4((int)fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct guest_link *g;

	(void)what;
	if (conn < 0)
		return;
	if (h->pending.count >= HELLO_PENDING) {
		fd_close(&conn);
		return;
	}
	g = guest_link_accept(h->loop, conn, &owner, h);
	if (g)
		guest_link_move(g, &h->pending);
}

void hello_init(struct hello_port *h, struct loop *l, int rundir_fd, const char *object,
		void (*got)(void *arg, struct guest_link *g), void *arg)
{
	*h = (struct hello_port){.loop = l,
				 .object = object,
				 .rundir_fd = rundir_fd,
				 .listen_fd = -1,
				 .got = got,
				 .arg = arg};
	link_list_init(&h->pending);
}

int hello_open(struct hello_port *h)
{
	h->listen_fd = dial_listen(h->rundir_fd);
	if (h->listen_fd < 0)
		return -1;
	event_assign(&h->accept, h->loop->base, h->listen_fd, EV_READ | EV_PERSIST, on_accept, h);
	return 0;
}

void hello_accept(struct hello_port *h)
{
	event_add(&h->accept, NULL);
}

void hello_close(struct hello_port *h)
{
	if (h->listen_fd < 0)
		return;
	event_del(&h->accept);
	fd_close(&h->listen_fd);
	dial_remove(h->rundir_fd);
	while (!TAILQ_EMPTY(&h->pending.links))
		guest_link_close(TAILQ_FIRST(&h->pending.links));
}
