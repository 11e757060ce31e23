/* SPDX-License-Identifier: Apache-2.0 */
/* One epoll set and the sources in it: who is told when a descriptor is ready. */
#ifndef HUTCH_VSOCK_LOOP_H
#define HUTCH_VSOCK_LOOP_H

#include <stdint.h>
#include <sys/epoll.h>

/*
 * A source lives in the object that owns the descriptor. Its fire() may be called once more after
 * loop_del() in the same pass (the event was already fetched), so the object must outlive the pass
 * and know that it is dead.
 */
struct loop_source {
	void (*fire)(struct loop_source *src, uint32_t events);
	int fd; /* -1: not in a loop */
};

struct loop {
	int epfd;
};

#define LOOP_BATCH 64

/* The object a member is embedded in. */
#define container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - __builtin_offsetof(type, member)))

/* All return 0, or -1 with errno of epoll_create1(2) or epoll_ctl(2). */
int loop_init(struct loop *loop);
void loop_close(struct loop *loop);
int loop_add(struct loop *loop, struct loop_source *src, uint32_t events);
int loop_mod(struct loop *loop, struct loop_source *src, uint32_t events);
/*
 * Takes src out of the set; its fd stays open and is the caller's to close. No-op when src->fd is
 * -1.
 */
void loop_del(struct loop *loop, struct loop_source *src);

/* epoll_wait; returns the number of events, 0 on timeout or signal, -1 with errno else. */
int loop_wait(struct loop *loop, struct epoll_event *ev, int timeout_ms);
void loop_dispatch(const struct epoll_event *ev, int n);

#endif
