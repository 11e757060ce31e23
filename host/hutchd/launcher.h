/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher: a small child of the broker that keeps what building jails and starting VMMs needs.
 * It takes fixed request structs over a seqpacket socket (launch_proto.h), never guest input. It
 * ends when the broker's end of that socket closes; VMMs live on.
 */
#ifndef HUTCH_HOST_LAUNCHER_H
#define HUTCH_HOST_LAUNCHER_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/hutchd/cgroup.h"
#include "host/hutchd/jail.h"
#include "protocol/error.h"
#include "protocol/limits.h"

struct launcher;

struct launcher_config {
	const char *template_dir; /* templates by name below it */
	const char *qemu;	  /* path of qemu-system-x86_64; NULL: searched in PATH */
	const char *vmm_library;  /* path of hutch-vmm.so */
	const char *test_vmm;	  /* plays the VMM in tests (driver "test"); NULL: QEMU */
	uint32_t first_uid,
		uid_count; /* for VMMs, one each, as root; the first one is for probes */
	struct cgroup_wish cgroup;
};

/* Forks the launcher process; call it before threads or loops exist. NULL with err. */
struct launcher *launcher_create(const struct launcher_config *config, struct hutch_error *err);
/* The launcher died; start_failed: a VM that was to be started had its failure from that. */
typedef void launcher_lost_fn(void *arg, bool start_failed);
/* Start listening to its replies on base. */
void launcher_attach(struct launcher *l, struct event_base *base, launcher_lost_fn *lost,
		     void *arg);
/*
 * "qemu" or "test"; the path and the version text of the VMM ("7.2.22", empty when it could not be
 * asked).
 */
const char *launcher_driver(const struct launcher *l);
const char *launcher_vmm_path(const struct launcher *l);
const char *launcher_vmm_version(const struct launcher *l);
/* What VMMs are kept apart by on this host. */
const struct jail_report *launcher_jail(const struct launcher *l);
/* What of this host they have at most. */
const struct cgroup_report *launcher_cgroup(const struct launcher *l);
void launcher_destroy(struct launcher *l);

#endif
