/* SPDX-License-Identifier: Apache-2.0 */
/* What is true of this agent as a whole. */
#ifndef HUTCH_GUEST_AGENT_H
#define HUTCH_GUEST_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "protocol/limits.h"

#ifndef HUTCH_VERSION
#define HUTCH_VERSION "unknown"
#endif
#define AGENT_NAME "hutch-agent/" HUTCH_VERSION

enum agent_mode {
	AGENT_PLAIN,   /* a process on a Unix socket; touches nothing of the machine */
	AGENT_SERVICE, /* on vsock, under another init */
	AGENT_PID1,    /* on vsock, is the machine's init */
};

struct agent {
	enum agent_mode mode;
	char boot_id[HUTCH_UUID_LEN + 1];
	uint64_t generation; /* of the identity in force; 0: none */
	bool needs_identity; /* nothing but ping, agent.info, agent.warm and agent.identity is answered */
	bool held; /* by snapshot.prepare: as above, and snapshot.resume; see snapshot.h */
	uint64_t started_ns;
	int null_fd; /* /dev/null, read and write */
	int proc_fd; /* /proc, so that covering it hides nothing from the agent; -1: there is none */
	int oom_fd;  /* own oom_score_adj, which is -1000; -1: not protected */
	struct rlimit nofile; /* what commands get */
	int nice;	      /* own; commands get 0 where that is allowed */
};

extern struct agent agent;

#endif
