/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start a program: vfork-like clone, set-up in the child, execve.
 *
 * How it works. clone3 with CLONE_VM | CLONE_VFORK and a stack of its own: nothing is copied, the agent stands
 * still until the child has called execve or ended, and the child tells why it failed by writing into the
 * agent's memory. All that needs memory is prepared before. The child runs only raw system calls: it
 * shares errno and the C library's state with the agent. All signals are blocked in the agent at all times, so that
 * no handler can run in the child; it unblocks them as its last step. Handlers are reset by
 * CLONE_CLEAR_SIGHAND, and the agent ignores no signal, so none is ignored in the child.
 *
 * Every descriptor of the agent is O_CLOEXEC and above 2: the child gets 0, 1 and 2 and nothing else.
 *
 * The price: a file system that hangs in chdir or execve (a FUSE server that does not answer) holds the whole agent
 * up until it answers or the child is killed.
 *
 * Needs Linux 5.7 (CLONE_INTO_CGROUP).
 */
#ifndef HUTCH_GUEST_SPAWN_H
#define HUTCH_GUEST_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "guest/user.h"

enum spawn_stage {
	SPAWN_OK,
	SPAWN_CLONE,
	SPAWN_SETSID,
	SPAWN_TTY,
	SPAWN_STDIO,
	SPAWN_LIMITS,
	SPAWN_OOM,
	SPAWN_GROUPS,
	SPAWN_SETGID,
	SPAWN_SETUID,
	SPAWN_CHDIR,
	SPAWN_EXEC,
	SPAWN_INTERPRETER, /* execve said ENOENT, and the file is there: its interpreter is not */
	SPAWN_STAGES
};

struct spawn {
	/* in */
	char *const *argv;
	char *const *envp;
	const char *search; /* PATH to look argv[0] up in; NULL: it is a path */
	const char *cwd;
	bool cwd_optional; /* "/" when cwd cannot be entered */
	int stdin_fd, stdout_fd, stderr_fd;
	bool tty;		   /* stdin_fd becomes the controlling terminal */
	const struct user *user;   /* NULL: stay */
	int cgroup_fd;		   /* -1: stay */
	unsigned long timer_slack; /* 0: leave; marks the exec's processes, see procwalk.h */
	/* out */
	pid_t pid;
	enum spawn_stage failed;
	int errnum;
	char path[4096]; /* SPAWN_EXEC: what was tried last */
};

/* 0, or -1 with failed and errnum set; the reaper then gets the child, if there was one. */
int spawn_run(struct spawn *s);
/* "execve"; the stage of start_error on the wire. */
const char *spawn_stage_name(enum spawn_stage stage);

#endif
