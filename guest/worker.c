/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes: the agent's side of them; see worker.h. */
#include "guest/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/calls.h"
#include "guest/limits.h"
#include "guest/list.h"
#include "guest/log.h"
#include "guest/worker_child.h"

struct worker {
	struct list link; /* idle, or busy */
	struct loop_source ctl;
	struct loop_timer timer; /* idle: its dismissal; busy: its kill */
	struct loop_garbage garbage;
	pid_t pid;	   /* 0: not forked yet, or reaped */
	struct conn *conn; /* whose call it serves; NULL: none, or it was lost */
	bool busy, handed_over;

	enum fs_method method; /* of its call, until that is handed over */
	uint8_t *params;
	size_t params_len;
};

static struct list idle = LIST_INIT(idle); /* the one used last is first */
static struct list busy = LIST_INIT(busy);
static unsigned count, count_busy;

unsigned worker_busy(void)
{
	return count_busy;
}

static void release(void *p)
{
	struct worker *w = p;

	free(w->params);
	free(w);
}

/* Its connection has no more to do with it. */
static struct conn *part(struct worker *w)
{
	struct conn *c = w->conn;

	w->conn = NULL;
	if (c)
		c->worker = NULL;
	return c;
}

/* It takes no more calls: closing its socket ends it once it is idle. */
static void gone(struct worker *w)
{
	struct conn *c = part(w);

	list_del(&w->link);
	loop_timer_clear(&w->timer);
	loop_close(&w->ctl);
	count--;
	count_busy -= w->busy;
	loop_free_later(&w->garbage, w, release);
	if (c)
		conn_lost(c);
}

static void timer_due(struct loop_timer *t)
{
	struct worker *w = container_of(t, struct worker, timer);

	if (!w->busy) {
		gone(w);
	} else if (w->pid) {
		log_info("worker %d is killed: its connection ended, and it goes on", (int)w->pid);
		kill(w->pid, SIGKILL);
	}
}

static void ctl_ready(struct loop_source *src, uint32_t events);

static void set_busy(struct worker *w, struct conn *c)
{
	list_del(&w->link);
	list_add_tail(&busy, &w->link);
	loop_timer_clear(&w->timer);
	w->busy = true;
	w->handed_over = false;
	w->conn = c;
	c->worker = w;
	count_busy++;
}

static void set_idle(struct worker *w)
{
	count_busy -= w->busy;
	w->busy = false;
	loop_timer_after_ms(&w->timer,
			    list_empty(&idle) ? AGENT_WORKER_KEEP_MS : AGENT_WORKER_IDLE_MS);
	list_del(&w->link);
	list_add_tail(&idle, &w->link);
}

/* Fork with the job in memory; NULL: it waits for one. 0, or -1 with errno. */
static int start(struct worker *w, const struct worker_job *job)
{
	int fds[2];

	loop_close(&w->ctl);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -1;
	w->pid = _Fork(); /* one thread, and nothing hooks it */
	if (w->pid == 0)
		worker_run(fds[1], job);
	close(fds[1]);
	loop_source_init(&w->ctl, fds[0], ctl_ready);
	if (w->pid < 0) {
		w->pid = 0;
		return -1;
	}
	if (loop_watch(&w->ctl, EPOLLIN) == 0)
		return 0;
	kill(w->pid, SIGKILL);
	return -1;
}

static struct worker *new_worker(void)
{
	struct worker *w = count < AGENT_MAX_WORKERS ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return NULL;
	list_init(&w->link);
	w->ctl.fd = -1;
	w->timer.due = timer_due;
	count++;
	return w;
}

/* One that waits in the place of one that left: a client that acts as a user goes on as that user. */
static void keep_one_ready(void)
{
	struct worker *w = list_empty(&idle) ? new_worker() : NULL;

	if (!w)
		return;
	if (start(w, NULL) < 0)
		gone(w);
	else
		set_idle(w);
}

static void give_back(struct conn *c, const struct worker_done *done)
{
	if (done->how == WORKER_LOST)
		conn_lost(c);
	else if (done->how == WORKER_BROKEN)
		conn_end(c);
	else
		conn_returned(c, done->caller_end, &done->rest);
}

/* The call is over for the worker. */
static void finished(struct worker *w, const struct worker_done *done)
{
	struct conn *c = part(w);

	if (done->leaves)
		gone(w);
	else
		set_idle(w);
	if (c)
		give_back(c, done);
	if (done->leaves)
		keep_one_ready();
}

static void ctl_ready(struct loop_source *src, uint32_t events)
{
	struct worker *w = container_of(src, struct worker, ctl);
	struct worker_done done;
	ssize_t n = recv(src->fd, &done, sizeof(done), MSG_DONTWAIT);

	(void)events;
	if (n == sizeof(done) && w->busy)
		finished(w, &done);
	else if (n >= 0 || (errno != EAGAIN && errno != EINTR))
		gone(w);
}

/* Another one in its place, which has not been forked yet. */
static void forget_process(struct worker *w)
{
	loop_close(&w->ctl);
	w->pid = 0;
}

/* The call is over for the connection: it was lost, or the call was never handed over. */
static void call_over(struct conn *c, bool lost)
{
	struct worker *w = c->worker;

	(void)lost;
	if (!w)
		return;
	part(w);
	if (w->handed_over)
		loop_timer_after_ms(&w->timer, AGENT_WORKER_KILL_MS);
	else if (w->pid)
		set_idle(w);
	else
		gone(w);
}

static void hand_over(struct conn *c);

static const struct call_ops waiting = {.sent = hand_over, .over = call_over};
static const struct call_ops serving = {.over = call_over};

static void hand_over(struct conn *c)
{
	struct worker *w = c->worker;
	struct worker_job job = {.fd = c->src.fd,
				 .method = w->method,
				 .caller_end = c->caller_end,
				 .params = w->params,
				 .params_len = (uint32_t)w->params_len,
				 .input = c->in,
				 .input_len = (uint32_t)c->in_len};
	struct hutch_error err;

	if (w->pid && (job.params_len + job.input_len > AGENT_WORKER_JOB ||
		       worker_send_job(w->ctl.fd, &job) < 0))
		forget_process(w);
	if (!w->pid && start(w, &job) < 0) {
		hutch_error_set(&err, HUTCH_E_BUSY, errno, "no process can be started for it: %s",
				strerror(errno));
		conn_fail(c, &err); /* the worker goes with the call */
		return;
	}
	free(w->params);
	w->params = NULL;
	w->handed_over = true;
	conn_input_taken(c);
	c->ops = &serving;
}

/* A free one, or one that is still to be forked; NULL: there are enough. */
static struct worker *take(void)
{
	return list_empty(&idle) ? new_worker() : container_of(idle.prev, struct worker, link);
}

int call_fs(struct conn *c, const struct msg_call *call, struct hutch_error *err)
{
	uint8_t *params = malloc(call->params_len + 1);
	struct worker *w = params ? take() : NULL;

	if (!w) {
		free(params);
		return hutch_error_set(err, HUTCH_E_BUSY, 0,
				       "%s: %u calls on files run already, or memory is short",
				       call->method, count_busy);
	}
	if (call->params_len)
		memcpy(params, call->params, call->params_len);
	w->method = (enum fs_method)fs_method_find(call->method);
	w->params = params;
	w->params_len = call->params_len;
	set_busy(w, c);
	c->ops = &waiting;
	c->stopped = true; /* what comes now is for the worker */
	conn_wake(c);
	return 0;
}

static struct worker *find_pid(struct list *l, pid_t pid)
{
	list_for_each(it, l)
		if (container_of(it, struct worker, link)->pid == pid)
			return container_of(it, struct worker, link);
	return NULL;
}

void worker_reaped(pid_t pid)
{
	struct worker *w = find_pid(&busy, pid);

	if (!w)
		w = find_pid(&idle, pid);
	if (w)
		w->pid = 0; /* the end of its socket is what ends it */
}

void worker_exit(void)
{
	while (!list_empty(&idle))
		gone(container_of(idle.next, struct worker, link));
	while (!list_empty(&busy))
		gone(container_of(busy.next, struct worker, link));
}
