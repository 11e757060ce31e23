/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hutchd was told: defaults, then the configuration file, then HUTCH_SOCKET, then the command line; the later
 * wins. All paths are absolute in the end.
 */
#ifndef HUTCH_HOST_CONFIG_H
#define HUTCH_HOST_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/hutchd/cgroup.h"
#include "host/hutchd/jail.h"
#include "host/hutchd/limits.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vmm.h"

#define CONFIG_ADMINS	32u
#define CONFIG_PATH	4096u
#define ZYGOTES_DEFAULT 8u
#define ZYGOTES_MAX	64u

struct config {
	char socket[CONFIG_PATH];
	char state[CONFIG_PATH];
	char template_dir[CONFIG_PATH]; /* <state>/templates */
	char qemu[CONFIG_PATH];		/* empty: searched in PATH */
	char vmm_library[CONFIG_PATH];
	char test_vmm[CONFIG_PATH]; /* empty: QEMU */
	enum vmm_accel accel;
	enum log_level log_level;
	bool log_json;
	struct limit_values limits;
	uint64_t default_ttl_ms;
	uint32_t admin_uids[CONFIG_ADMINS];
	unsigned admin_count;
	bool has_group; /* members of this group may connect: the socket is 0660 and the group's */
	gid_t group;
	uint32_t first_vm_uid,
		vm_uids; /* a uid for each VMM, where hutchd is root; vm_uids 0: none */
	enum jail_level require_isolation;
	uint32_t zygotes;  /* at a time; 0: none (zygote.h) */
	bool cgroup_asked; /* vm_cgroup was set; else a test driver's VMs have none */
	struct cgroup_wish cgroup;
	int ready_fd; /* a newline is written to it when the socket serves; -1: none */
};

enum config_result { CONFIG_RUN, CONFIG_EXIT /* --help, --version: done */, CONFIG_BAD };

/* From main's arguments. At CONFIG_BAD err says which option or which line of which file, and why. */
enum config_result config_load(struct config *c, int argc, char **argv, struct hutch_error *err);

/* The parts, for tests. text is one file's; name is for messages. */
void config_defaults(struct config *c);
int config_parse_text(struct config *c, const char *text, const char *name,
		      struct hutch_error *err);
int config_set(struct config *c, const char *key, const char *value, struct hutch_error *err);
/* Fill in what depends on the rest: default paths, absolute ones. */
int config_finish(struct config *c, struct hutch_error *err);

#endif
