/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM that multiplies: fork(2) of the whole process, all its threads included.
 *
 * A zygote is a VMM whose guest was restored, has run its hot paths and stands still. A fork of its process is a VM that
 * has all of that at once, translated code included, and shares the memory until it is written to.
 *
 * How it works: fork(2) copies only the thread that calls it, the library's own. So each other thread is first stopped by a
 * signal, and keeps its registers on its stack (setjmp in the handler). In the child a new thread is made for each, on the old
 * one's stack and with the old one's thread-local storage, which came along with the memory, and returns from the handler to
 * whatever system call the old one waited in, which the kernel starts again. What is shared with the parent after a fork and
 * must not be is replaced: eventfds, sockets, logs. Nothing may allocate while the threads stand: one of them may hold
 * malloc's lock.
 *
 * The child has namespaces of its own from birth, a user namespace among them, and no rights outside: the launcher, which has
 * them, maps its uid, mounts its /proc and the directory of its sockets, and then lets it go on (struct vmm_fork_go). The
 * child takes its uid, gives up what it still may do, and installs its filter.
 *
 * Only for x86-64 and glibc; refused where the C library keeps its thread ids elsewhere than is found out here.
 */
#ifndef HUTCH_VSOCK_VMM_FORK_H
#define HUTCH_VSOCK_VMM_FORK_H

#include <linux/filter.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* The descriptors that come with the request "fork", in this order. */
enum vmm_fork_fd {
	VMM_FORK_SYNC,	  /* a seqpacket socket to the launcher */
	VMM_FORK_VSOCK,	  /* listening, for the child */
	VMM_FORK_QMP,	  /* listening */
	VMM_FORK_CTL,	  /* listening */
	VMM_FORK_CONSOLE, /* log files, open for appending */
	VMM_FORK_LOG,
	VMM_FORK_FDS
};

/* In namespaces of its own, and a child of its parent's parent. */
#define VMM_FORK_FLAGS \
	(CLONE_PARENT | CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

#define VMM_FORK_ID	40
#define VMM_FORK_FILTER 1024 /* instructions */
#define VMM_FORK_STAGE	28

/* child -> launcher, twice: as it is born, with its credentials (SCM_CREDENTIALS), and when it is what it shall be. */
struct vmm_fork_said {
	int32_t errnum; /* 0: well */
	char stage[VMM_FORK_STAGE];
};

/*
 * launcher -> child, once its uid is mapped and all is mounted. With descriptors of tasks cgroups' task files, to each of which
 * it writes "0", and of the layers, if its memory is to be that of another image (vmm_reload): data, extents, data, ...
 */
#define VMM_FORK_TASKS	4
#define VMM_FORK_LAYERS 32
struct vmm_fork_go {
	uint32_t uid;
	uint32_t max_threads;
	uint32_t filter_len;
	uint32_t tasks;
	uint32_t reload; /* bool */
	uint32_t layers;
	uint64_t deadline_ms;
	char id[VMM_FORK_ID]; /* its own */
	char directory[16];   /* where its dial socket is, from now on its current directory */
	struct sock_filter filter[VMM_FORK_FILTER];
};

struct vmm;

/* Before main(): this process may be asked to fork. -1 with the reason logged. */
int vmm_fork_prepare(char **argv, char **envp);
bool vmm_fork_is_prepared(void);

/*
 * The lock is held; the guest is stopped. NULL when there is a child, of which the launcher hears through VMM_FORK_SYNC; or why
 * there is none. The descriptors stay the caller's. Returns in the child as well, *child set: it is on its own, its old
 * connections are gone, and nobody waits for an answer.
 */
const char *vmm_fork(struct vmm *vmm, const int fds[VMM_FORK_FDS], bool *child);

#endif
