/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher process: a loop over requests and over the ends of its children.
 *
 * It is the parent of the VMMs that it started, and a subreaper, so that it learns how they ended
 * and what their wrappers left behind. Everything it does on request is short; it blocks rather
 * than keeping states. It ends when the broker's end of the socket closes, and its VMMs then go to
 * init.
 */
#include "host/hutchd/launcher_main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/sweep.h"
#include "host/hutchd/tsc.h"
#include "host/hutchd/vmm_qemu.h"

#define TSC_MEASURE_MS 250
#define BUCKETS	       256 /* a thousand VMs may end at once, and each end looks at all children */

/* A VMM that this launcher started, until the broker has asked how it ended. */
struct child {
	LIST_ENTRY(child) link; /* launcher_loop::children */
	pid_t pid;
	bool dead;
	int wait_status;
};

/*
 * A cgroup that still holds its dead process: the kernel tells of an end before the last switch away from it, and takes it out of
 * its cgroup after that. Nothing tells of the latter.
 */
struct leftover {
	LIST_ENTRY(leftover) link; /* launcher_loop::leftovers */
	char id[40];
	int file;
	unsigned tries;
};
#define LEFTOVER_MS    10
#define LEFTOVER_TRIES 500u /* the next launcher looks again */

struct launcher_loop {
	int sock;
	int signals; /* signalfd, SIGCHLD */
	const struct launcher_setup *setup;
	LIST_HEAD(bucket, child) children[BUCKETS]; /* by pid */
	LIST_HEAD(, leftover) leftovers;
};

int launch_fail(struct launch_reply *reply, int errnum, const char *stage, const char *path)
{
	reply->errnum = errnum;
	snprintf(reply->stage, sizeof(reply->stage), "%s", stage);
	snprintf(reply->path, sizeof(reply->path), "%s", path ? path : "");
	return -1;
}

static struct bucket *bucket_of(struct launcher_loop *l, pid_t pid)
{
	return &l->children[(unsigned)pid % BUCKETS];
}

static struct child *find_child(struct launcher_loop *l, pid_t pid)
{
	struct child *c;

	LIST_FOREACH(c, bucket_of(l, pid), link)
		if (c->pid == pid)
			return c;
	return NULL;
}

static bool is_living_vmm(void *arg, pid_t pid)
{
	const struct child *c = find_child(arg, pid);

	return c && !c->dead;
}

static void reap_children(struct launcher_loop *l)
{
	pid_t pid;
	int status;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct child *c = find_child(l, pid);

		if (!c)
			continue; /* an orphan of a VMM */
		c->dead = true;
		c->wait_status = status;
	}
}

static int spawn(struct launcher_loop *l, const struct launch_spawn *req, const int *fds,
		 struct launch_reply *reply)
{
	struct child *c = calloc(1, sizeof(*c));
	int pidfd;

	if (!c)
		return launch_fail(reply, ENOMEM, "memory", NULL);
	pidfd = launcher_spawn(l->setup, req, fds, reply);
	if (pidfd < 0) {
		free(c);
		return -1;
	}
	c->pid = (pid_t)reply->pid;
	LIST_INSERT_HEAD(bucket_of(l, c->pid), c, link);
	return pidfd;
}

static void add_leftover(struct launcher_loop *l, const char *id, int file)
{
	struct leftover *left = calloc(1, sizeof(*left));

	if (!left)
		return;
	snprintf(left->id, sizeof(left->id), "%s", id);
	left->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
	LIST_INSERT_HEAD(&l->leftovers, left, link);
}

static void retry_leftovers(struct launcher_loop *l)
{
	struct leftover *left, *next;
	bool oom;

	for (left = LIST_FIRST(&l->leftovers); left; left = next) {
		next = LIST_NEXT(left, link);
		if (cgroup_vm_remove(left->file, left->id, &oom) < 0 && errno == EBUSY &&
		    ++left->tries < LEFTOVER_TRIES)
			continue;
		LIST_REMOVE(left, link);
		fd_close(&left->file);
		free(left);
	}
}

static void tidy(struct launcher_loop *l, const struct launch_reap *req, int file,
		 struct launch_reply *reply)
{
	bool oom = false;

	if (cgroup_vm_remove(file, req->id, &oom) < 0) {
		if (errno == EBUSY)
			add_leftover(l, req->id, file);
		else
			launch_fail(reply, errno, "cgroup", NULL);
	}
	reply->oom = oom;
}

static void reap(struct launcher_loop *l, const struct launch_reap *req, int cgroup,
		 struct launch_reply *reply)
{
	pid_t pid = (pid_t)req->pid;
	struct child *c = find_child(l, pid);
	int killed;

	reply->wait_status = LAUNCH_STATUS_UNKNOWN;
	if (c) {
		if (!c->dead) {
			/*
			 * Not reaped, so the pid is still its own. The broker asks after the end,
			 * so that this does not wait.
			 */
			kill(pid, SIGKILL);
			while (waitpid(pid, &c->wait_status, 0) < 0 && errno == EINTR)
				;
		}
		reply->wait_status = c->wait_status;
		LIST_REMOVE(c, link);
	}
	killed = sweep_vm(req->id, pid, c != NULL, is_living_vmm, l);
	free(c);
	if (killed < 0) {
		launch_fail(reply, errno, "sweep", NULL);
		return;
	}
	reply->killed = (uint32_t)killed;
	if (cgroup >= 0)
		tidy(l, req, cgroup, reply);
	else
		cgroup_vm_unmake(l->setup->cgroups, req->id);
}

#define TEXT_OK(array) (memchr((array), '\0', sizeof(array)) != NULL)

/* It becomes part of option texts and of the marker that tells this VM's processes. */
static bool id_ok(const char *id, size_t size)
{
	size_t len = strnlen(id, size);

	return len > 0 && len < size &&
	       strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") == len;
}

/* A name in a directory, and no option. */
static bool name_ok(const char *name, size_t size)
{
	size_t len = strnlen(name, size);

	return len > 0 && len < size && name[0] != '.' && !memchr(name, '/', len);
}

/* How many descriptors come with it. */
static size_t fds_of(const struct launch_spawn *s)
{
	if (s->flags & LAUNCH_FORKED)
		return SPAWN_FD_FORK_LAYERS + 2 * (size_t)s->layers;
	return launch_disk_fd(s) + (s->disk_layers ? 1 + (size_t)s->disk_layers : 0);
}

static bool request_ok(const struct launch_request *r, size_t len, size_t nfds)
{
	if (len != sizeof(*r) || r->version != LAUNCH_VERSION)
		return false;
	switch (r->op) {
	case LAUNCH_SPAWN:
		return r->spawn.layers <= LAUNCH_MAX_LAYERS &&
		       r->spawn.disk_layers <= LAUNCH_MAX_DISK_LAYERS &&
		       nfds == fds_of(&r->spawn) && id_ok(r->spawn.id, sizeof(r->spawn.id)) &&
		       name_ok(r->spawn.template_name, sizeof(r->spawn.template_name)) &&
		       name_ok(r->spawn.kernel, sizeof(r->spawn.kernel)) &&
		       name_ok(r->spawn.initramfs, sizeof(r->spawn.initramfs)) &&
		       (!r->spawn.root[0] || name_ok(r->spawn.root, sizeof(r->spawn.root))) &&
		       TEXT_OK(r->spawn.cmdline);
	case LAUNCH_REAP:
		return nfds <= 1 && id_ok(r->reap.id, sizeof(r->reap.id)) && r->reap.pid > 1 &&
		       r->reap.pid <= INT32_MAX;
	case LAUNCH_TIDY:
		return nfds == 1 && id_ok(r->reap.id, sizeof(r->reap.id));
	default:
		return false;
	}
}

static void answer(struct launcher_loop *l, const struct launch_request *req, size_t len,
		   const int *fds, size_t nfds)
{
	struct launch_reply reply = {.version = LAUNCH_VERSION};
	int pidfd = -1;

	if (len >= offsetof(struct launch_request, spawn)) {
		reply.op = req->op;
		reply.tag = req->tag;
	}
	if (!request_ok(req, len, nfds))
		launch_fail(&reply, EPROTO, "request", NULL);
	else if (req->op == LAUNCH_SPAWN)
		pidfd = spawn(l, &req->spawn, fds, &reply);
	else if (req->op == LAUNCH_REAP)
		reap(l, &req->reap, nfds ? fds[0] : -1, &reply);
	else
		tidy(l, &req->reap, fds[0], &reply);
	if (fd_send(l->sock, &reply, sizeof(reply), &pidfd, pidfd >= 0 ? 1 : 0) < 0)
		log_errno(LOG_LEVEL_WARN, "broker", "an answer could not be sent");
	fd_close(&pidfd);
}

/* False when the broker is gone. */
static bool serve_one(struct launcher_loop *l)
{
	struct launch_request req;
	int fds[LAUNCH_MAX_FDS];
	size_t nfds = LAUNCH_MAX_FDS;
	ssize_t n;

	memset(&req, 0, sizeof(req));
	n = fd_recv(l->sock, &req, sizeof(req), fds, &nfds);
	if (n < 0 && errno == EINTR)
		return true;
	if (n < 0 && errno == EMSGSIZE)
		n = 0; /* a packet that is none of ours; it is answered as such */
	else if (n <= 0)
		return false;
	answer(l, &req, (size_t)n, fds, nfds);
	for (size_t i = 0; i < nfds; i++)
		fd_close(&fds[i]);
	return true;
}

static int open_signals(void)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	/*
	 * A terminal's ^C and a service manager's TERM go to the whole group; the broker decides.
	 */
	sigaction(SIGINT, &ignore, NULL);
	sigaction(SIGTERM, &ignore, NULL);
	sigaction(SIGHUP, &ignore, NULL);
	sigaction(SIGQUIT, &ignore, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_SETMASK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void set_preload(struct launcher_setup *s, bool hollow)
{
	size_t len = (size_t)snprintf(s->preload, sizeof(s->preload), "%s", s->vmm_library);

	for (int i = 0; hollow && i < HOLLOWS; i++)
		if (s->hollow[i][0])
			len += (size_t)snprintf(s->preload + len, sizeof(s->preload) - len, ":%s",
						s->hollow[i]);
}

/* From within the jail, so that it is known whether QEMU starts there, and with stand-ins for some of its libraries. */
static void ask_version(struct launcher_setup *s, char *version, size_t size)
{
	set_preload(s, true);
	qemu_ask_version(s->vmm, s->jail, s->preload, version, size);
	if (version[0])
		return;
	set_preload(s, false);
	qemu_ask_version(s->vmm, s->jail, s->preload, version, size);
	if (version[0]) {
		log_warn("launcher", "%s needs all its libraries: VMs start slower", s->vmm);
		return;
	}
	qemu_ask_version(s->vmm, NULL, s->preload, version, size);
	if (version[0])
		jail_give_up(s->jail, "the VMM does not start in its own root");
}

static void say_hello(int sock, struct launcher_setup *s)
{
	struct launch_hello hello = {.version = LAUNCH_VERSION, .op = LAUNCH_HELLO};

	snprintf(hello.vmm_path, sizeof(hello.vmm_path), "%s", s->vmm);
	if (s->vmm[0] && !s->test)
		ask_version(s, hello.vmm_version, sizeof(hello.vmm_version));
	hello.jail = *jail_report(s->jail);
	hello.cgroup = *cgroups_report(s->cgroups);
	if (hello.cgroup.kind != CGROUP_NONE)
		hello.jail.missing &= ~JAIL_NO_CGROUP;
	fd_send(sock, &hello, sizeof(hello), NULL, 0);
}

int64_t launcher_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Until something is to be done without being asked; -1: nothing is. measure: when, 0: never. */
static int sleep_ms(const struct launcher_loop *l, int64_t measure)
{
	int64_t left = measure ? measure - launcher_now_ms() : -1;

	if (measure && left < 0)
		left = 0;
	if (!LIST_EMPTY(&l->leftovers) && (left < 0 || left > LEFTOVER_MS))
		left = LEFTOVER_MS;
	return (int)left;
}

_Noreturn void launcher_main(int sock, const struct launcher_setup *setup)
{
	struct launcher_setup own = *setup;
	const struct cgroup_places places = {.own = "/proc/self/cgroup",
					     .mounts = "/proc/self/mountinfo",
					     .disks = "/sys/block",
					     .state = own.template_dir};
	struct launcher_loop l = {.sock = sock, .setup = &own};
	struct pollfd p[2];
	int64_t measure = 0; /* the TSC; 0: done */

	for (int i = 0; i < BUCKETS; i++)
		LIST_INIT(&l.children[i]);
	prctl(PR_SET_NAME, "hutch-launcher");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	l.signals = open_signals();
	if (l.signals < 0) {
		log_errno(LOG_LEVEL_ERROR, "launcher", "no signalfd");
		_exit(1);
	}
	/* From outside the user namespace that a jail may need. */
	own.cgroups = cgroups_new(&own.cgroup_wish, &places);
	own.jail = own.cgroups ? jail_new(&own) : NULL;
	if (!own.jail) {
		log_errno(LOG_LEVEL_ERROR, "launcher", "no jail");
		_exit(1);
	}
	tsc_start();
	measure = launcher_now_ms() + TSC_MEASURE_MS;
	say_hello(sock, &own);
	p[0] = (struct pollfd){.fd = sock, .events = POLLIN};
	p[1] = (struct pollfd){.fd = l.signals, .events = POLLIN};
	for (;;) {
		int n = poll(p, 2, sleep_ms(&l, measure));

		if (measure && launcher_now_ms() >= measure) {
			tsc_khz();
			measure = 0;
		}
		retry_leftovers(&l);
		if (n > 0 && p[1].revents) {
			struct signalfd_siginfo info;

			while (read(l.signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
				;
			reap_children(&l);
		}
		if (n > 0 && p[0].revents && !serve_one(&l))
			_exit(0);
	}
}
