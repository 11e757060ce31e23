/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker's side of the launcher.
 *
 * The launcher is forked without an exec, from a broker that holds nothing yet but its
 * configuration: so it needs no hidden command line, works in every program that links it (the
 * tests), and shares nothing afterwards but the socket. The price is the broker's address layout,
 * which helps only an attacker who also finds a hole in the few fixed structs it reads.
 */
#include "host/hutchd/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_job.h"
#include "host/hutchd/launcher_main.h"
#include "host/hutchd/log.h"
#include "host/hutchd/process.h"
#include "host/hutchd/tsc.h"

#define QEMU_NAME "qemu-system-x86_64"
#define HELLO_MS  8000 /* above the 5 s that QEMU has to tell its version */
#define END_MS	  3000
/*
 * Unanswered requests at a time; the others wait here, so that few descriptors are ever in flight.
 */
#define MAX_SENT 16

struct launch_job {
	TAILQ_ENTRY(launch_job) link; /* launcher::unsent or launcher::sent */
	struct launcher *launcher;
	struct launch_request req;
	int fds[LAUNCH_MAX_FDS];
	size_t nfds;
	bool sent;
	launch_done_fn *done; /* NULL: abandoned */
	void *arg;
};

TAILQ_HEAD(job_list, launch_job);

struct launcher {
	int sock; /* -1: lost */
	pid_t pid;
	struct launcher_setup setup;
	char version[64];
	struct jail_report jail;
	struct cgroup_report cgroup;
	struct event *readable, *writable;
	struct event *lost_soon; /* the loss is told from the loop */
	struct job_list unsent, sent;
	unsigned sent_count;
	uint64_t next_tag;
	bool start_failed; /* for want of it */
	launcher_lost_fn *lost;
	void *arg;
};

static int copy_path(char *out, size_t size, const char *path, const char *what,
		     struct hutch_error *err)
{
	char *real = realpath(path, NULL);
	int n;

	if (!real && errno != ENOENT)
		return hutch_error_set(err, HUTCH_E_INVALID, errno, "%s %s: %s", what, path,
				       strerror(errno));
	/* What is not there yet may be there when it is needed. */
	n = snprintf(out, size, "%s", real ? real : path);
	free(real);
	if (n < 0 || (size_t)n >= size)
		return hutch_error_set(err, HUTCH_E_INVALID, ENAMETOOLONG,
				       "%s %s: a path of at most %zu bytes is needed", what, path,
				       size - 1);
	if (out[0] != '/')
		return hutch_error_set(err, HUTCH_E_INVALID, ENOENT, "%s %s: no such file", what,
				       path);
	return 0;
}

/* Look for QEMU as execvp(3) does; out stays empty when it is nowhere. */
static void search_qemu(char *out, size_t size)
{
	const char *path = getenv("PATH");

	while (path && *path) {
		size_t len = strcspn(path, ":");
		int n = snprintf(out, size, "%.*s/" QEMU_NAME, (int)len, path);

		if (*path == '/' && n > 0 && (size_t)n < size && access(out, X_OK) == 0)
			return;
		path += len + (path[len] == ':');
	}
	out[0] = '\0';
}

static void fill_hollow(struct launcher_setup *s)
{
	static const char *const names[HOLLOWS] = {"hutch-hollow-capstone.so",
						   "hutch-hollow-pmem.so"};
	int dir = (int)(strrchr(s->vmm_library, '/') - s->vmm_library);

	for (int i = 0; i < HOLLOWS; i++) {
		snprintf(s->hollow[i], sizeof(s->hollow[i]), "%.*s/%s", dir, s->vmm_library,
			 names[i]);
		if (access(s->hollow[i], R_OK) < 0)
			s->hollow[i][0] = '\0';
	}
}

static int fill_setup(struct launcher_setup *s, const struct launcher_config *c,
		      struct hutch_error *err)
{
	const char *vmm = c->test_vmm ? c->test_vmm : c->qemu;

	s->test = c->test_vmm != NULL;
	s->first_uid = c->first_uid;
	s->uid_count = c->uid_count;
	s->cgroup_wish = c->cgroup;
	if (copy_path(s->template_dir, sizeof(s->template_dir), c->template_dir,
		      "template directory", err) < 0)
		return -1;
	if (!vmm)
		search_qemu(s->vmm, sizeof(s->vmm));
	else if (copy_path(s->vmm, sizeof(s->vmm), vmm, "VMM", err) < 0)
		return -1;
	if (s->test)
		return 0;
	if (copy_path(s->vmm_library, sizeof(s->vmm_library), c->vmm_library, "VMM library", err) <
	    0)
		return -1;
	/* ld.so(8): LD_PRELOAD is split at both, and nothing can quote them. */
	if (strpbrk(s->vmm_library, ": "))
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "VMM library %s: its path must hold no space or colon",
				       s->vmm_library);
	fill_hollow(s);
	return 0;
}

/* In the child: nothing of the broker's is kept but stderr and the socket. */
static _Noreturn void become_launcher(int sock, const struct launcher_setup *setup)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	dup2(sock, 3);
	fcntl(3, F_SETFD, FD_CLOEXEC);
	close_range(4, ~0u, 0);
	log_set_who("launcher");
	if (chdir("/") < 0) /* no directory is kept busy */
		log_errno(LOG_LEVEL_WARN, "launcher", "chdir /");
	launcher_main(3, setup);
}

static int await_hello(struct launcher *l, struct hutch_error *err)
{
	struct launch_hello hello;
	struct pollfd p = {.fd = l->sock, .events = POLLIN};
	size_t nfds = 0;
	ssize_t n;
	int r;

	do
		r = poll(&p, 1, HELLO_MS);
	while (r < 0 && errno == EINTR);
	n = r == 1 ? fd_recv(l->sock, &hello, sizeof(hello), NULL, &nfds) : -1;
	if (n != (ssize_t)sizeof(hello) || hello.version != LAUNCH_VERSION ||
	    hello.op != LAUNCH_HELLO)
		return hutch_error_set(err, HUTCH_E_INTERNAL, 0, "the launcher did not come up");
	snprintf(l->version, sizeof(l->version), "%.*s", (int)sizeof(hello.vmm_version) - 1,
		 hello.vmm_version);
	l->jail = hello.jail;
	l->jail.reason[sizeof(l->jail.reason) - 1] = '\0';
	l->cgroup = hello.cgroup;
	l->cgroup.reason[sizeof(l->cgroup.reason) - 1] = '\0';
	return 0;
}

static int fork_launcher(struct launcher *l, struct hutch_error *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "launcher socket: %s",
				       strerror(errno));
	l->pid = fork();
	if (l->pid == 0)
		become_launcher(pair[1], &l->setup);
	fd_close(&pair[1]);
	l->sock = pair[0];
	if (l->pid < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "fork of the launcher: %s",
				       strerror(errno));
	if (fd_set_nonblock(l->sock, true) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "launcher socket: %s",
				       strerror(errno));
	return await_hello(l, err);
}

struct launcher *launcher_create(const struct launcher_config *config, struct hutch_error *err)
{
	struct launcher *l = calloc(1, sizeof(*l));

	if (!l) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	l->sock = -1;
	TAILQ_INIT(&l->unsent);
	TAILQ_INIT(&l->sent);
	tsc_start(); /* for vmm_traits_get */
	if (fill_setup(&l->setup, config, err) < 0 || fork_launcher(l, err) < 0) {
		launcher_destroy(l);
		return NULL;
	}
	return l;
}

static void close_job_fds(struct launch_job *job)
{
	while (job->nfds > 0)
		fd_close(&job->fds[--job->nfds]);
}

static void free_job(struct launch_job *job)
{
	TAILQ_REMOVE(job->sent ? &job->launcher->sent : &job->launcher->unsent, job, link);
	job->launcher->sent_count -= job->sent;
	close_job_fds(job);
	free(job);
}

/* Every waiting job is answered. No other is taken any more, and an abandoned one stays listed. */
static void tell_lost(evutil_socket_t fd, short what, void *arg)
{
	struct launcher *l = arg;
	struct launch_job *job, *next;

	(void)fd;
	(void)what;
	TAILQ_FOREACH(job, &l->unsent, link)
		job->sent = true;
	TAILQ_CONCAT(&l->sent, &l->unsent, link);
	for (job = TAILQ_FIRST(&l->sent); job; job = next) {
		struct launch_reply reply = {.version = LAUNCH_VERSION,
					     .op = job->req.op,
					     .errnum = EPIPE,
					     .stage = "launcher",
					     .wait_status = LAUNCH_STATUS_UNKNOWN};

		l->start_failed |= job->req.op == LAUNCH_SPAWN;
		if (job->done)
			job->done(job->arg, &reply, -1);
		next = TAILQ_NEXT(job, link);
		close_job_fds(job);
		free(job);
	}
	TAILQ_INIT(&l->sent);
	if (l->lost)
		l->lost(l->arg, l->start_failed);
}

static void lose(struct launcher *l, const char *why)
{
	if (l->sock < 0)
		return;
	log_error("launcher", "lost: %s", why);
	event_del(l->readable);
	event_del(l->writable);
	fd_close(&l->sock);
	event_active(l->lost_soon, EV_TIMEOUT, 1);
}

static void send_jobs(struct launcher *l)
{
	struct launch_job *job;

	while (l->sent_count < MAX_SENT && (job = TAILQ_FIRST(&l->unsent)) != NULL) {
		if (fd_send(l->sock, &job->req, sizeof(job->req), job->fds, job->nfds) < 0) {
			if (errno == EAGAIN)
				event_add(l->writable, NULL);
			else if (errno == ETOOMANYREFS && l->sent_count > 0)
				return; /* the next answer frees some */
			else
				lose(l, strerror(errno));
			return;
		}
		close_job_fds(job);
		TAILQ_REMOVE(&l->unsent, job, link);
		TAILQ_INSERT_TAIL(&l->sent, job, link);
		job->sent = true;
		l->sent_count++;
	}
}

/* Nobody wants the process that came: it was abandoned while it was on its way. */
static void end_unwanted(struct launcher *l, const struct launch_job *job,
			 const struct launch_reply *reply, int pidfd)
{
	struct launch_request req = {.op = LAUNCH_REAP};

	process_signal(pidfd, SIGKILL);
	memcpy(req.reap.id, job->req.spawn.id, sizeof(req.reap.id));
	req.reap.pid = reply->pid;
	req.reap.start_time = reply->start_time;
	if (!launcher_submit(l, &req, NULL, 0, NULL, NULL))
		log_errno(LOG_LEVEL_WARN, job->req.spawn.id,
			  "leftovers of an abandoned start could not be looked for");
}

static void take_reply(struct launcher *l, const struct launch_reply *reply, int pidfd)
{
	struct launch_job *job = TAILQ_FIRST(&l->sent);
	launch_done_fn *done;
	void *arg;

	if (!job || reply->tag != job->req.tag || reply->op != job->req.op ||
	    (reply->op == LAUNCH_SPAWN && reply->errnum == 0) != (pidfd >= 0)) {
		fd_close(&pidfd);
		lose(l, "it answered something that was not asked");
		return;
	}
	if (!job->done && pidfd >= 0) {
		end_unwanted(l, job, reply, pidfd);
		fd_close(&pidfd);
	}
	done = job->done;
	arg = job->arg;
	free_job(job);
	send_jobs(l);
	if (done)
		done(arg, reply, pidfd);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct launcher *l = arg;
	struct launch_reply reply;
	int pidfd = -1;
	size_t nfds = 1;
	ssize_t n;

	(void)what;
	n = fd_recv((int)fd, &reply, sizeof(reply), &pidfd, &nfds);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == (ssize_t)sizeof(reply) && reply.version == LAUNCH_VERSION) {
		reply.stage[sizeof(reply.stage) - 1] = '\0';
		reply.path[sizeof(reply.path) - 1] = '\0';
		take_reply(l, &reply, nfds == 1 ? pidfd : -1);
		return;
	}
	if (n >= 0 && nfds == 1)
		fd_close(&pidfd);
	lose(l, n == 0 ? "it ended" : n < 0 ? strerror(errno) : "it sent a packet of a wrong size");
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	send_jobs(arg);
}

void launcher_attach(struct launcher *l, struct event_base *base, launcher_lost_fn *lost, void *arg)
{
	l->lost = lost;
	l->arg = arg;
	l->readable = event_new(base, l->sock, EV_READ | EV_PERSIST, on_readable, l);
	l->writable = event_new(base, l->sock, EV_WRITE, on_writable, l);
	l->lost_soon = event_new(base, -1, 0, tell_lost, l);
	event_add(l->readable, NULL);
}

struct launch_job *launcher_submit(struct launcher *l, const struct launch_request *req,
				   const int *fds, size_t nfds, launch_done_fn *done, void *arg)
{
	struct launch_job *job;

	if (l->sock < 0) {
		/* It may have been told already, while this start was on its way here. */
		if (req->op == LAUNCH_SPAWN && !l->start_failed) {
			l->start_failed = true;
			event_active(l->lost_soon, EV_TIMEOUT, 1);
		}
		errno = EPIPE;
		return NULL;
	}
	job = calloc(1, sizeof(*job));
	if (!job)
		return NULL;
	job->launcher = l;
	job->req = *req;
	job->req.version = LAUNCH_VERSION;
	job->req.tag = ++l->next_tag;
	job->done = done;
	job->arg = arg;
	TAILQ_INSERT_TAIL(&l->unsent, job, link);
	for (; job->nfds < nfds; job->nfds++) {
		job->fds[job->nfds] = fcntl(fds[job->nfds], F_DUPFD_CLOEXEC, 0);
		if (job->fds[job->nfds] < 0) {
			free_job(job);
			return NULL;
		}
	}
	send_jobs(l);
	return job;
}

void launch_job_abandon(struct launch_job *job)
{
	job->done = NULL;
	if (!job->sent)
		free_job(job);
}

const char *launcher_driver(const struct launcher *l)
{
	return l->setup.test ? "test" : "qemu";
}

const char *launcher_vmm_path(const struct launcher *l)
{
	return l->setup.vmm;
}

const char *launcher_vmm_version(const struct launcher *l)
{
	return l->version;
}

const struct jail_report *launcher_jail(const struct launcher *l)
{
	return &l->jail;
}

const struct cgroup_report *launcher_cgroup(const struct launcher *l)
{
	return &l->cgroup;
}

/* It ends by itself when the socket closes, unless it is stopped or hangs. */
static void await_end(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (fd >= 0 && poll(&p, 1, END_MS) == 0)
		process_signal(fd, SIGKILL);
	fd_close(&fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void drop_jobs(struct job_list *list)
{
	struct launch_job *job, *next;

	for (job = TAILQ_FIRST(list); job; job = next) {
		next = TAILQ_NEXT(job, link);
		close_job_fds(job);
		free(job);
	}
}

void launcher_destroy(struct launcher *l)
{
	if (!l)
		return;
	if (l->readable) {
		event_free(l->readable);
		event_free(l->writable);
		event_free(l->lost_soon);
	}
	drop_jobs(&l->sent);
	drop_jobs(&l->unsent);
	fd_close(&l->sock);
	if (l->pid > 0)
		await_end(l->pid);
	free(l);
}
