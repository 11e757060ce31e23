/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's command line. Runs in the launcher. */
#ifndef HUTCH_HOST_VMM_QEMU_H
#define HUTCH_HOST_VMM_QEMU_H

#include <stddef.h>
#include <stdint.h>

#include "host/hutchd/jail.h"
#include "host/hutchd/launch_proto.h"

/* What a snapshot depends on (vmm_traits.h). */
#define QEMU_MACHINE	  "microvm,acpi=on,rtc=on,pit=off,pic=off"
#define QEMU_DEVICES	  "vhost-vsock-device" /* then the disks, in this order */
#define QEMU_DEVICES_ROOT " virtio-blk-device"
#define QEMU_DEVICES_DISK " virtio-blk-device,werror=report"
#define QEMU_CPU_TCG	  "qemu64,+arat,+rdrand"
#define QEMU_CPU_KVM	  "host"

/*
 * Descriptor sets of the writable disk (1 and 2 are the console's and the root disk's; vmm_saving.c has its own from 100 on):
 * the base and the overlays below; and one for each overlay that is the top, by its number.
 */
#define QEMU_DISK_FDSET	    3u
#define QEMU_DISK_TOP_FDSET 2000000u

#define QEMU_MAX_ARGS 256
#define QEMU_MAX_TEXT 16384

struct qemu_args {
	char *argv[QEMU_MAX_ARGS + 1]; /* NULL-terminated, points into text and at constants */
	char text[QEMU_MAX_TEXT];
	size_t argc, used;
};

/*
 * The command line of one request; tsc_khz is used under TCG (0: unknown, left out). 0, or -1 with
 * errno EINVAL (a number is out of range) or E2BIG.
 */
int qemu_build_args(struct qemu_args *out, const char *qemu, const struct launch_spawn *req,
		    uint32_t tsc_khz);

/*
 * Run it with --version, at most 5 s, in the jail unless that is NULL, with LD_PRELOAD set unless preload is NULL. version
 * ("7.2.22") is empty when it did not say.
 */
void qemu_ask_version(const char *qemu, const struct jail *jail, const char *preload, char *version,
		      size_t size);

#endif
