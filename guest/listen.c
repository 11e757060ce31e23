/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket; see listen.h, vsock(7). */
#include "guest/listen.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <linux/vm_sockets.h>

#include "guest/conn.h"
#include "guest/limits.h"
#include "guest/log.h"
#include "guest/loop.h"
#include "protocol/limits.h"

#define BACKLOG	 128
#define PAUSE_MS 100 /* when descriptors or memory ran out */

static struct loop_source listener = {.fd = -1};
static const char *unix_path;

static void pause_over(struct loop_timer *t)
{
	(void)t;
	loop_watch(&listener, EPOLLIN);
}

static struct loop_timer pause_timer = {.due = pause_over};

/* Only the host may talk to the agent: not a process of the guest over vsock loopback. */
static bool from_host(const struct sockaddr_storage *peer)
{
	const struct sockaddr_vm *vm = (const void *)peer;

	if (peer->ss_family != AF_VSOCK || vm->svm_cid == VMADDR_CID_HOST)
		return true;
	log_info("connection from CID %u refused", vm->svm_cid);
	return false;
}

static void ready(struct loop_source *src, uint32_t events)
{
	struct sockaddr_storage peer = {0};
	socklen_t len = sizeof(peer);
	int fd = accept4(src->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

	(void)events;
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
		log_error("accept");
		loop_watch(src, 0);
		loop_timer_after_ms(&pause_timer, PAUSE_MS);
	}
	if (fd < 0)
		return;
	if (from_host(&peer))
		conn_open(fd);
	else
		close(fd);
}

static int start(int fd, const struct sockaddr *addr, socklen_t len)
{
	loop_source_init(&listener, fd, ready);
	if (bind(fd, addr, len) < 0 || listen(fd, BACKLOG) < 0)
		return -1;
	return loop_watch(&listener, EPOLLIN);
}

int listen_vsock(void)
{
	const struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_ANY, /* the CID may change with a restore */
		.svm_port = HUTCH_PORT_AGENT,
	};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : start(fd, (const struct sockaddr *)&addr, sizeof(addr));
}

int listen_unix(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd, ret;

	if (strlen(path) >= sizeof(addr.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 && errno == ECONNREFUSED)
		unlink(path);
	close(fd);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	mask = umask(0177);
	ret = start(fd, (const struct sockaddr *)&addr, sizeof(addr));
	umask(mask);
	if (ret == 0)
		unix_path = path;
	return ret;
}

void listen_hold(bool hold)
{
	loop_watch(&listener, hold ? 0 : EPOLLIN);
}

void listen_exit(void)
{
	loop_timer_clear(&pause_timer);
	loop_close(&listener);
	if (unix_path)
		unlink(unix_path);
	unix_path = NULL;
}
