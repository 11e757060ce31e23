/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes: what they are made of, and the messages between them and the agent. */
#include "guest/worker_child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/limits.h"
#include "guest/log.h"

/* A worker's descriptors; what it opens comes behind them. */
enum { FD_CTL = 3, FD_PROC, FD_CONN, FD_KEPT };

union fd_message {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int))];
};

static int at_least(int fd, int min)
{
	return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, min);
}

static void keep(int fd, int as)
{
	if (fd < 0 || dup3(fd, as, O_CLOEXEC) < 0)
		close(as);
}

static void keep_descriptors(int ctl, int conn)
{
	ctl = at_least(ctl, FD_KEPT);
	conn = at_least(conn, FD_KEPT);
	agent.proc_fd = at_least(agent.proc_fd, FD_KEPT);
	keep(ctl, FD_CTL);
	keep(agent.proc_fd, FD_PROC);
	keep(conn, FD_CONN);
	syscall(SYS_close_range, (unsigned)FD_KEPT, ~0u, 0u);
	agent.proc_fd = agent.proc_fd < 0 ? -1 : FD_PROC;
	agent.null_fd = -1;
}

/* A worker's fault is its own: the agent's handlers power the machine off. */
static void reset_signals(void)
{
	static const uint8_t faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
	sigset_t set;

	for (size_t i = 0; i < sizeof(faults); i++)
		signal(faults[i], SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);
	log_on_panic(abort);
}

static bool receive_job(struct worker_job *job)
{
	static uint8_t bytes[AGENT_WORKER_JOB];
	union fd_message cmsg;
	struct iovec iov[2] = {{job, sizeof(*job)}, {bytes, sizeof(bytes)}};
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = 2,
			     .msg_control = &cmsg,
			     .msg_controllen = sizeof(cmsg)};
	ssize_t n;

	do {
		n = recvmsg(FD_CTL, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(*job) || !CMSG_FIRSTHDR(&msg))
		return false;
	memcpy(&job->fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	job->params = bytes;
	job->input = bytes + job->params_len;
	return true;
}

int worker_send_job(int ctl, const struct worker_job *job)
{
	union fd_message cmsg = {.header = {.cmsg_level = SOL_SOCKET,
					    .cmsg_type = SCM_RIGHTS,
					    .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec iov[3] = {{(void *)(uintptr_t)job, sizeof(*job)},
			       {(void *)(uintptr_t)job->params, job->params_len},
			       {(void *)(uintptr_t)job->input, job->input_len}};
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = 3,
			     .msg_control = &cmsg,
			     .msg_controllen = sizeof(cmsg)};

	memcpy(CMSG_DATA(&cmsg.header), &job->fd, sizeof(int));
	return sendmsg(ctl, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

static bool serve(const struct worker_job *job)
{
	struct worker_done done;

	memset(&done, 0, sizeof(done));
	fs_serve(job, &done);
	close(job->fd);
	return send(FD_CTL, &done, sizeof(done), MSG_NOSIGNAL) == sizeof(done) && !done.leaves;
}

_Noreturn void worker_run(int ctl, const struct worker_job *first)
{
	const struct sched_param none = {0};
	struct worker_job job = {.fd = -1};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "hutch-fs");
	/*
	 * Waking a batch task preempts nobody (sched(7)): so the kernel hands over all the packets that came, not one
	 * at a time, and the agent's own loop always goes first.
	 */
	syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &none);
	reset_signals();
	keep_descriptors(ctl, first ? first->fd : -1);
	umask(0);
	if (first) {
		job = *first;
		job.fd = FD_CONN;
		if (!serve(&job))
			_exit(0);
	}
	while (receive_job(&job) && serve(&job))
		continue;
	_exit(0);
}
