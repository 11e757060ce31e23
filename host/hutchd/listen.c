/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket. */
#include "host/hutchd/listen.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "host/hutchd/client.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/share.h"

struct listener {
	struct broker *b;
	int fd;
	struct event accept, resume;
};

static bool allowed(const struct broker *b, int fd, const struct ucred *peer)
{
	return peer->uid == b->uid || broker_is_admin(b, peer->uid) ||
	       (b->config->has_group && share_peer_is_member(fd, b->config->group));
}

/* Tell a client that is one too many, if its socket takes it at once. */
static void refuse(int fd, const struct hutch_error *err)
{
	struct mp_buf buf;

	mp_buf_init(&buf, HUTCH_MAX_ERROR + HUTCH_FRAME_HEADER);
	if (msg_error_encode(&buf, err) == 0)
		(void)!send(fd, buf.data, buf.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	mp_buf_free(&buf);
}

static void admit(struct broker *b, int fd)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t len = sizeof(peer);
	struct hutch_error err;

	hutch_error_clear(&err);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || !allowed(b, fd, &peer)) {
		log_warn("broker", "refused a client of uid %u (pid %d)", (unsigned)peer.uid,
			 (int)peer.pid);
		fd_close(&fd);
	} else if (limits_check_client(b, peer.uid, &err) < 0) {
		log_warn("broker", "refused a client of uid %u: %s", (unsigned)peer.uid,
			 err.message);
		refuse(fd, &err);
		fd_close(&fd);
	} else if (!client_new(b, fd, peer.uid, peer.pid)) {
		log_error("broker", "out of memory for a client");
	}
}

/* Out of descriptors or memory: the backlog waits; looked at again after a pause rather than at once for ever. */
static void pause_accept(struct listener *l)
{
	log_errno(LOG_LEVEL_WARN, "broker", "cannot accept clients for %d ms", LISTEN_PAUSE_MS);
	event_del(&l->accept);
	loop_timer(&l->resume, LISTEN_PAUSE_MS);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct listener *l = arg;

	(void)fd;
	(void)what;
	event_add(&l->accept, NULL);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct listener *l = arg;

	(void)what;
	for (int i = 0; i < LISTEN_BATCH; i++) {
		int conn = accept4((int)fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (conn >= 0) {
			admit(l->b, conn);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			pause_accept(l);
			return;
		} else if (errno != ECONNABORTED && errno != EINTR) {
			return;
		}
	}
}

struct listener *listener_create(struct broker *b, int fd)
{
	struct listener *l = calloc(1, sizeof(*l));

	if (!l) {
		fd_close(&fd);
		return NULL;
	}
	l->b = b;
	l->fd = fd;
	event_assign(&l->accept, b->loop.base, fd, EV_READ | EV_PERSIST, on_accept, l);
	event_assign(&l->resume, b->loop.base, -1, 0, on_resume, l);
	event_add(&l->accept, NULL);
	return l;
}

void listener_destroy(struct listener *l)
{
	if (!l)
		return;
	event_del(&l->accept);
	event_del(&l->resume);
	fd_close(&l->fd);
	free(l);
}
