/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a VMM by letting a zygote fork itself (host/vsock/vmm_fork.h).
 *
 * The zygote has no rights, and its child is born without any: what it says is not believed. The kernel tells the child's pid
 * with its first message, and that it is ours; the rest is done to it from here, before it goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launcher_main.h"
#include "host/hutchd/process.h"
#include "host/vsock/vmm_fork.h"

/* A zygote has nothing else to do; beyond this it is ill. */
#define FORK_MS 2000

struct birth {
	const struct launcher_setup *setup;
	const struct launch_spawn *req;
	const int *layers; /* their descriptors */
	struct launch_reply *reply;
	int zygote, rundir;
	int sync;  /* our end */
	pid_t pid; /* 0: not born yet */
	int pidfd;
	int64_t until_ms;
	struct cgroup_vm cgroup;
};

/* Until sync can be read; what the zygote says meanwhile matters only when it refuses. */
static int await_sync(struct birth *b)
{
	struct pollfd p[2] = {{.fd = b->sync, .events = POLLIN},
			      {.fd = b->zygote, .events = POLLIN}};
	char text[200];
	int64_t left;
	ssize_t n;

	while ((left = b->until_ms - launcher_now_ms()) > 0) {
		if (poll(p, 2, (int)left) < 0 && errno != EINTR)
			return launch_fail(b->reply, errno, "zygote", NULL);
		if (p[0].revents)
			return 0;
		if (!p[1].revents)
			continue;
		n = recv(b->zygote, text, sizeof(text) - 1, MSG_DONTWAIT);
		if (n <= 0)
			return launch_fail(b->reply, ECONNRESET, "zygote", NULL);
		text[n] = '\0';
		text[strcspn(text, "\n")] = '\0';
		if (strcmp(text, "ok") != 0)
			return launch_fail(b->reply, EBUSY, "zygote", text);
	}
	return launch_fail(b->reply, ETIMEDOUT, "zygote", NULL);
}

/* One message of the child's; *pid is the sender's, as the kernel says. */
static int hear(struct birth *b, pid_t *pid)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct vmm_fork_said said;
	struct iovec iov = {&said, sizeof(said)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	const struct cmsghdr *c;
	struct ucred from = {.pid = 0};
	ssize_t n;

	if (await_sync(b) < 0)
		return -1;
	n = recvmsg(b->sync, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
		memcpy(&from, CMSG_DATA(c), sizeof(from));
	if (n != (ssize_t)sizeof(said) || from.pid <= 0)
		return launch_fail(b->reply, ECONNRESET, "fork", NULL);
	said.stage[sizeof(said.stage) - 1] = '\0';
	if (said.errnum)
		return launch_fail(b->reply, said.errnum, said.stage, NULL);
	*pid = from.pid;
	return 0;
}

static int ask(struct birth *b, const int *fds)
{
	int sync[2], yes = 1, rc;
	int sent[VMM_FORK_FDS] = {[VMM_FORK_VSOCK] = fds[SPAWN_FD_VSOCK],
				  [VMM_FORK_QMP] = fds[SPAWN_FD_QMP],
				  [VMM_FORK_CTL] = fds[SPAWN_FD_CTL]};

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sync) < 0)
		return launch_fail(b->reply, errno, "socket", NULL);
	b->sync = sync[0];
	sent[VMM_FORK_SYNC] = sync[1];
	sent[VMM_FORK_CONSOLE] = launcher_log(b->rundir, "console.log", O_WRONLY);
	sent[VMM_FORK_LOG] = launcher_log(b->rundir, "vmm.log", O_WRONLY);
	if (sent[VMM_FORK_CONSOLE] < 0 || sent[VMM_FORK_LOG] < 0)
		rc = launch_fail(b->reply, errno, "open", "console.log, vmm.log");
	else if (setsockopt(b->sync, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) < 0 ||
		 fd_send(b->zygote, "fork\n", 5, sent, VMM_FORK_FDS) < 0)
		rc = launch_fail(b->reply, errno, "zygote", NULL);
	else
		rc = 0;
	fd_close(&sent[VMM_FORK_SYNC]);
	fd_close(&sent[VMM_FORK_CONSOLE]);
	fd_close(&sent[VMM_FORK_LOG]);
	return rc;
}

/* It is our child, so that its pid stays its own until it is reaped here. */
static int meet(struct birth *b, pid_t pid)
{
	struct process_stat st;

	if (process_read(pid, &st) < 0 || st.ppid != getpid())
		return launch_fail(b->reply, ESRCH, "fork", NULL);
	b->pid = pid;
	b->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (b->pidfd < 0)
		return launch_fail(b->reply, errno, "fork", NULL);
	b->reply->pid = pid;
	b->reply->start_time = st.start_time;
	return 0;
}

static int bring_up(struct birth *b)
{
	const struct sock_fprog *filter = jail_forked_filter(b->setup->jail);
	static struct vmm_fork_go go;
	int with[VMM_FORK_TASKS + 2 * VMM_FORK_LAYERS];
	size_t tasks = 0, layers = 2 * (size_t)b->req->layers;
	const char *stage;

	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		if (b->cgroup.tasks[i] >= 0)
			with[tasks++] = b->cgroup.tasks[i];
	if (b->req->layers > VMM_FORK_LAYERS)
		return launch_fail(b->reply, E2BIG, "layers", NULL);
	memcpy(with + tasks, b->layers, layers * sizeof(*with));
	if (cgroup_vm_put(&b->cgroup, b->pid) < 0)
		return launch_fail(b->reply, errno, "cgroup", NULL);
	if (launcher_claim(b->rundir, b->req->start, b->pid, b->reply->start_time) < 0)
		return launch_fail(b->reply, errno, "claim", NULL);
	if (jail_dress(b->setup->jail, b->pid, b->pidfd, b->req->uid, b->rundir, &stage) < 0)
		return launch_fail(b->reply, errno, stage, NULL);
	if (filter->len > VMM_FORK_FILTER)
		return launch_fail(b->reply, E2BIG, "filter", NULL);
	memset(&go, 0, sizeof(go));
	go.uid = b->req->uid;
	go.deadline_ms = b->req->deadline_ms;
	go.max_threads = JAIL_MAX_THREADS;
	go.tasks = (uint32_t)tasks;
	go.reload = b->req->flags & LAUNCH_RELOAD ? 1 : 0;
	go.layers = b->req->layers;
	go.filter_len = filter->len;
	memcpy(go.filter, filter->filter, filter->len * sizeof(*filter->filter));
	snprintf(go.id, sizeof(go.id), "%s", b->req->id);
	snprintf(go.directory, sizeof(go.directory), "%s", JAIL_DIAL_PLACE);
	if (fd_send(b->sync, &go, sizeof(go), with, tasks + layers) < 0)
		return launch_fail(b->reply, errno, "fork", NULL);
	return 0;
}

static int be_born(struct birth *b, const int *fds)
{
	pid_t pid = 0, again = 0;

	if (ask(b, fds) < 0 || hear(b, &pid) < 0 || meet(b, pid) < 0 || bring_up(b) < 0 ||
	    hear(b, &again) < 0)
		return -1;
	return again == b->pid ? 0 : launch_fail(b->reply, EPROTO, "fork", NULL);
}

static void end(struct birth *b)
{
	if (b->pid > 0) {
		kill(b->pid, SIGKILL);
		while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	fd_close(&b->pidfd);
}

/* In the cgroup that was made. */
static void be_born_apart(struct birth *b, const int *fds)
{
	if (be_born(b, fds) < 0)
		end(b);
	cgroup_vm_close(&b->cgroup);
	if (b->pidfd < 0)
		cgroup_vm_unmake(b->setup->cgroups, b->req->id);
	fd_close(&b->sync);
}

int launcher_fork(const struct launcher_setup *setup, const struct launch_spawn *req,
		  const int *fds, struct launch_reply *reply)
{
	const struct cgroup_size size = {.id = req->id,
					 .memory_mib = req->memory_mib,
					 .vcpus = req->vcpus,
					 .tcg = true};
	struct birth b = {.setup = setup,
			  .req = req,
			  .reply = reply,
			  .zygote = unix_connect(fds[SPAWN_FD_ZYGOTE], "ctl", SOCK_STREAM),
			  .rundir = fds[SPAWN_FD_RUNDIR],
			  .layers = fds + SPAWN_FD_FORK_LAYERS,
			  .sync = -1,
			  .pidfd = -1,
			  .until_ms = launcher_now_ms() + FORK_MS};

	if (!jail_has_zygotes(setup->jail))
		launch_fail(reply, EPERM, "zygote", NULL);
	else if (b.zygote < 0)
		launch_fail(reply, errno, "zygote", NULL);
	else if (cgroup_vm_make(setup->cgroups, &size, b.rundir, &b.cgroup) < 0)
		launch_fail(reply, errno, "cgroup", NULL);
	else
		be_born_apart(&b, fds);
	fd_close(&b.zygote);
	return b.pidfd;
}
