/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the broker and the launcher say to each other over their seqpacket socket: one fixed struct
 * a packet, both ends are one binary. Descriptors travel with SCM_RIGHTS in the order given here,
 * close-on-exec.
 *
 *   launcher -> broker  launch_hello, once
 *   broker -> launcher  launch_request SPAWN + its descriptors                 launch_reply + pidfd
 *   broker -> launcher  launch_request REAP [+ the VM's cgroup file]           launch_reply
 *   broker -> launcher  launch_request TIDY + a VM's cgroup file               launch_reply
 *
 * A request is answered exactly once, in order. A request that breaks this file is answered with
 * EPROTO.
 */
#ifndef HUTCH_HOST_LAUNCH_PROTO_H
#define HUTCH_HOST_LAUNCH_PROTO_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "host/hutchd/cgroup.h"
#include "host/hutchd/jail.h"
#include "protocol/limits.h"

#define LAUNCH_VERSION 1u

/* What a VM may be given (wire.md, vm.create); CIDs below 3 have meanings of their own. */
#define VMM_MIN_MEMORY_MIB 64u
#define VMM_MAX_MEMORY_MIB 65536u
#define VMM_MAX_VCPUS	   32u
#define VMM_MIN_CID	   3u
#define VMM_MIN_DISK_MIB   HUTCH_MIN_DISK_MIB
#define VMM_MAX_DISK_MIB   HUTCH_MAX_DISK_MIB
/* Memory layers over a base. Their descriptors travel in one message, which takes 240 (FD_MAX_PASSED). */
#define LAUNCH_MAX_LAYERS 100u
/* Overlays of a writable disk, its VM's own included. */
#define LAUNCH_MAX_DISK_LAYERS 33u

/* A VMM's fixed descriptors; 0 is /dev/null, 1 and 2 are vmm.log. */
enum vmm_fd {
	VMM_FD_VHOST =
		3, /* /dev/null, read and write: the in-VMM library answers vhost ioctls on it */
	VMM_FD_VSOCK = 4,   /* listening: <rundir>/vsock */
	VMM_FD_QMP = 5,	    /* listening: <rundir>/qmp */
	VMM_FD_CTL = 6,	    /* listening: <rundir>/ctl */
	VMM_FD_CONSOLE = 7, /* console.log, write only, append */
	VMM_FD_KERNEL = 8,  /* QEMU only */
	VMM_FD_INITRAMFS = 9,
	VMM_FD_ROOT = 10,   /* the root disk, read only; a template may have none */
	VMM_FD_BASE = 11,   /* restored: its memory's base, read only */
	VMM_FD_DEVICE = 12, /* restored: a pipe that holds its devices' state */
	VMM_FD_DISK = 13,   /* the writable disk: its base, then its overlays, the lowest first */
	/* restored: data and extents of each layer, the oldest first */
	VMM_FD_LAYERS = VMM_FD_DISK + 1 + LAUNCH_MAX_DISK_LAYERS,
	VMM_FD_END = VMM_FD_LAYERS + 2 * LAUNCH_MAX_LAYERS
};

/*
 * The run directory's file that says which process was started there: "PID START_TIME\n"
 * (vmm_claim). Of a second and later start it has the start's number behind it: "vmm.pid.2".
 */
#define VMM_PID_FILE "vmm.pid"
/* In the environment of a VMM and so of all that it starts: HUTCH_VM=<id>. */
#define VMM_MARKER "HUTCH_VM"

enum launch_op { LAUNCH_HELLO = 1, LAUNCH_SPAWN, LAUNCH_REAP, LAUNCH_TIDY };
enum launch_accel { LAUNCH_KVM = 1, LAUNCH_TCG };

enum launch_spawn_fd {
	SPAWN_FD_RUNDIR,
	SPAWN_FD_VSOCK,
	SPAWN_FD_QMP,
	SPAWN_FD_CTL,
	LAUNCH_SPAWN_FDS,
	/* With LAUNCH_FORKED: the zygote's run directory. */
	SPAWN_FD_ZYGOTE = LAUNCH_SPAWN_FDS,
	SPAWN_FD_FORK_LAYERS, /* with LAUNCH_RELOAD, as SPAWN_FD_LAYERS */
	/* With LAUNCH_RESTORE: */
	SPAWN_FD_BASE = LAUNCH_SPAWN_FDS,
	SPAWN_FD_DEVICE,
	SPAWN_FD_LAYERS, /* data, extents; as many pairs as there are layers */
	/* With disk_layers, behind all of these: the base, and the overlays. */
	LAUNCH_MAX_FDS = SPAWN_FD_LAYERS + 2 * LAUNCH_MAX_LAYERS + 1 + LAUNCH_MAX_DISK_LAYERS
};

#define LAUNCH_TIED    0x1u  /* the VMM is killed when the launcher ends (probes) */
#define LAUNCH_RESTORE 0x2u  /* from a base, layers and device state; no kernel is loaded */
#define LAUNCH_STOPPED 0x4u  /* restored: it stays stopped */
#define LAUNCH_ZYGOTE  0x8u  /* it may be asked to fork itself (host/vsock/vmm_fork.h) */
#define LAUNCH_FORKED  0x10u /* it is forked off a zygote, and stays stopped */
#define LAUNCH_RELOAD  0x20u /* FORKED: its memory becomes the zygote's base with these layers */

/* All texts are NUL-terminated within their array. */
struct launch_spawn {
	char id[40];
	char template_name[72];
	char kernel[64]; /* names in the template's directory */
	char initramfs[64];
	char root[64]; /* the root disk; empty: none */
	char cmdline[512];
	uint32_t accel; /* enum launch_accel */
	uint32_t memory_mib;
	uint32_t vcpus;
	uint32_t cid;
	uint32_t flags;
	uint32_t layers;
	uint32_t uid;	/* the VMM's own, of the launcher's range; 0: its first one (jail.h) */
	uint32_t start; /* the number of this one in its run directory; 0: the first */
	uint32_t disk_layers; /* overlays of the writable disk; 0: it has none */
	uint32_t disk_top;    /* the number of the last one, which is the VM's own (vmm_disk.h) */
	uint64_t deadline_ms;
};

/* The index of the writable disk's first descriptor. */
static inline size_t launch_disk_fd(const struct launch_spawn *s)
{
	return s->flags & LAUNCH_RESTORE ? SPAWN_FD_LAYERS + 2 * (size_t)s->layers
					 : LAUNCH_SPAWN_FDS;
}

/*
 * REAP: end what is left of a VM, the process itself included, remove its cgroup, and tell how that process ended. TIDY: the
 * cgroup alone, of a VM of which nothing is left.
 */
struct launch_reap {
	char id[40];
	int64_t pid;
	uint64_t start_time;
};

struct launch_request {
	uint32_t version;
	uint32_t op;
	uint64_t tag; /* repeated in the reply */
	union {
		struct launch_spawn spawn;
		struct launch_reap reap;
	};
};

#define LAUNCH_STATUS_UNKNOWN (-1) /* not the launcher's child */

struct launch_reply {
	uint32_t version;
	uint32_t op;
	uint64_t tag;
	int32_t errnum; /* 0: done */
	char stage[28]; /* of the failure */
	char path[256]; /* what it is about, or empty */
	int64_t pid;	/* SPAWN */
	uint64_t start_time;
	int32_t wait_status; /* REAP: as waitpid(2) gives it, or LAUNCH_STATUS_UNKNOWN */
	uint32_t killed;     /* REAP: processes of this VM that were still there */
	uint32_t oom;	     /* REAP: its VMM was ended at its ceiling of memory */
	uint32_t unused;
};

struct launch_hello {
	uint32_t version;
	uint32_t op;
	char vmm_path[256]; /* empty: not found */
	char vmm_version[64];
	struct jail_report jail;
	struct cgroup_report cgroup;
};

static_assert(sizeof(((struct launch_spawn *)0)->id) > HUTCH_UUID_LEN, "an id fits");
static_assert(sizeof(((struct launch_spawn *)0)->template_name) > HUTCH_MAX_TEMPLATE_NAME,
	      "a name fits");
static_assert(sizeof(struct launch_spawn) == 864, "no hidden padding");
static_assert(sizeof(struct launch_request) == 880, "no hidden padding");
static_assert(sizeof(struct launch_reply) == 336, "no hidden padding");
static_assert(sizeof(struct launch_hello) == 328 + 168 + 168, "no hidden padding");

#endif
