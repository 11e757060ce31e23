/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher process and its parts. */
#ifndef HUTCH_HOST_LAUNCHER_MAIN_H
#define HUTCH_HOST_LAUNCHER_MAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/hutchd/cgroup.h"
#include "host/hutchd/jail.h"
#include "host/hutchd/launch_proto.h"

#define HOLLOWS 2

/* What the launcher was told at its start; it outlives the broker's copy. */
struct launcher_setup {
	char template_dir[1024];   /* absolute */
	char vmm[256];		   /* absolute path of QEMU or of the test VMM; empty: not found */
	char vmm_library[256];	   /* absolute */
	char hollow[HOLLOWS][288]; /* beside it (host/vsock/hollow.h); empty: not there */
	char preload[1024];	   /* of VMMs: vmm_library, and those where QEMU starts with them */
	bool test;		   /* vmm is a test VMM */
	uint32_t first_uid, uid_count; /* for VMMs, one each, where the launcher is root; 0: none */
	struct cgroup_wish cgroup_wish;
	struct jail *jail; /* the launcher makes both */
	struct cgroups *cgroups;
};

/* The launcher's loop: until the other end of sock closes. Never returns. */
_Noreturn void launcher_main(int sock, const struct launcher_setup *setup);

/* Start one VMM. Fills reply; returns its pidfd or -1. fds are borrowed. */
int launcher_spawn(const struct launcher_setup *setup, const struct launch_spawn *req,
		   const int *fds, struct launch_reply *reply);

/* The same for one that a zygote forks itself into (launcher_fork.c). */
int launcher_fork(const struct launcher_setup *setup, const struct launch_spawn *req,
		  const int *fds, struct launch_reply *reply);

/* What both do: a run directory's log, and the file that says which process runs there. -1 with errno. */
int launcher_log(int rundir, const char *name, int access);
int launcher_claim(int rundir, uint32_t start, pid_t pid, uint64_t start_time);

/* CLOCK_MONOTONIC. */
int64_t launcher_now_ms(void);

/* Fill the failure part of a reply. Returns -1. */
int launch_fail(struct launch_reply *reply, int errnum, const char *stage, const char *path);

#endif
