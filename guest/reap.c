/* SPDX-License-Identifier: Apache-2.0 */
/* The reaper: nothing else in the agent calls wait, so that no status is ever taken from the exec it belongs to. */
#include "guest/reap.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/exec_table.h"
#include "guest/loop.h"
#include "guest/power.h"
#include "guest/tree.h"
#include "guest/worker.h"

static struct loop_source source = {.fd = -1};

static void ready(struct loop_source *src, uint32_t events)
{
	struct signalfd_siginfo info;
	struct rusage ru;
	int status;
	pid_t pid;

	(void)events;
	if (read(src->fd, &info, sizeof(info)) < 0)
		return;
	/* One SIGCHLD may stand for many ends. */
	while ((pid = wait4(-1, &status, WNOHANG, &ru)) > 0) {
		struct exec *e = exec_find_pid(pid);

		if (e)
			exec_process_ended(e, status, &ru);
		else
			worker_reaped(pid);
	}
	if (pid < 0)
		power_no_children();
	tree_reaped();
}

int reap_init(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -1;
	loop_source_init(&source, fd, ready);
	return loop_watch(&source, EPOLLIN);
}

void reap_exit(void)
{
	loop_close(&source);
}
