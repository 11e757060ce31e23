/* SPDX-License-Identifier: Apache-2.0 */
/* Options of create, which run has too. */
#ifndef HUTCH_CMD_CREATE_H
#define HUTCH_CMD_CREATE_H

#include "protocol/limits.h"
#include "tools/hutch/cli.h"

enum {
	CREATE_TTL = OPT_LONG,
	CREATE_NAME,
	CREATE_MEMORY,
	CREATE_VCPUS,
	CREATE_DISK,
	CREATE_META,
	CREATE_TIMEOUT,
	CREATE_SNAPSHOT,
	CREATE_COLD,
	CREATE_SECRETS,
	CREATE_PAUSE_AFTER,
	CREATE_PARK_AFTER,
	CREATE_SHARE,
	CREATE_END
};

#define CREATE_OPTIONS                                                                                  \
	{'t', "template", "NAME", "template to start from (default: base)"},                            \
		{CREATE_TTL, "ttl", "TIME",                                                             \
		 "the VM ends after this: 90, 5m, 1h, 2d (default: 1h)"},                               \
		{CREATE_NAME, "name", "NAME", "a name of your own for it"},                             \
		{CREATE_MEMORY, "memory", "MIB", "memory (default: the template's)"},                   \
		{CREATE_VCPUS, "vcpus", "N", "processors (default: the template's)"},                   \
		{CREATE_DISK, "disk-mib", "MIB",                                                        \
		 "writable disk, where there is one (default: the template's; it can only be larger)"}, \
		{CREATE_SNAPSHOT, "snapshot", "NAME",                                                   \
		 "go on from this snapshot, not from a template"},                                      \
		{CREATE_COLD, "cold", NULL,                                                             \
		 "boot the kernel, even where the template has a snapshot"},                            \
		{CREATE_SECRETS, "secrets", NULL,                                                       \
		 "it will hold secrets: no fork or snapshot unless allowed"},                           \
		{CREATE_SHARE, "share", "GROUP",                                                        \
		 "members of this group of yours may use it, too"},                                     \
	{                                                                                               \
		CREATE_META, "meta", "K=V", "metadata; may be repeated"                                 \
	}

/* Of create and idle. */
#define IDLE_OPTIONS                                                                          \
	{CREATE_PAUSE_AFTER, "pause-after", "TIME",                                           \
	 "pause it when nobody has used it for so long; the next call resumes it"},           \
	{                                                                                     \
		CREATE_PARK_AFTER, "park-after", "TIME",                                      \
			"park it when nobody has used it for so long; the next call wakes it" \
	}

struct create_options {
	const char *template_name, *name, *snapshot;
	const char *share; /* a group's name or number; NULL: none */
	bool cold, secrets;
	uint64_t ttl_ms, timeout_ms, memory_mib, vcpus, disk_mib; /* 0: not given */
	uint64_t pause_after_ms, park_after_ms;
	struct hutch_pair meta[HUTCH_MAX_METADATA];
	size_t meta_count;
};

/*
 * 1: id was one of these and is noted, 0: it was not, -1: its value is wrong: leave with a->status.
 */
int create_option(struct create_options *o, struct args *a, int id);

/* vm.create's parameters, in params (at least CREATE_PARAMS); returns their count. */
#define CREATE_PARAMS 12
size_t create_params(const struct create_options *o, struct hutch_pair *params);
/* vm.set_idle's, in params (at least IDLE_PARAMS). */
#define IDLE_PARAMS 2
size_t idle_params(const struct create_options *o, struct hutch_pair *params);
/* How long an answer is waited for. */
uint64_t create_wait_ms(const struct create_options *o);

#endif
