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
#define QEMU_DEVICES	  "vhost-vsock-device" /* in this order */
#define QEMU_DEVICES_ROOT "vhost-vsock-device virtio-blk-device"
#define QEMU_CPU_TCG	  "qemu64,+arat,+rdrand"
#define QEMU_CPU_KVM	  "host"

#define QEMU_MAX_ARGS 64
#define QEMU_MAX_TEXT 2048

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
