/* SPDX-License-Identifier: Apache-2.0 */
/* One epoll set and the sources in it. */
#include "host/vsock/loop.h"

#include <errno.h>
#include <unistd.h>

int loop_init(struct loop *loop)
{
	loop->epfd = epoll_create1(EPOLL_CLOEXEC);
	return loop->epfd < 0 ? -1 : 0;
}

void loop_close(struct loop *loop)
{
	if (loop->epfd >= 0)
		close(loop->epfd);
	loop->epfd = -1;
}

static int loop_ctl(struct loop *loop, int op, struct loop_source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	return epoll_ctl(loop->epfd, op, src->fd, &ev);
}

int loop_add(struct loop *loop, struct loop_source *src, uint32_t events)
{
	return loop_ctl(loop, EPOLL_CTL_ADD, src, events);
}

int loop_mod(struct loop *loop, struct loop_source *src, uint32_t events)
{
	return loop_ctl(loop, EPOLL_CTL_MOD, src, events);
}

void loop_del(struct loop *loop, struct loop_source *src)
{
	if (src->fd >= 0)
		(void)loop_ctl(loop, EPOLL_CTL_DEL, src, 0);
}

int loop_wait(struct loop *loop, struct epoll_event *ev, int timeout_ms)
{
	int n = epoll_wait(loop->epfd, ev, LOOP_BATCH, timeout_ms);

	if (n < 0 && errno == EINTR)
		return 0;
	return n;
}

void loop_dispatch(const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		struct loop_source *src = ev[i].data.ptr;

		src->fire(src, ev[i].events);
	}
}
