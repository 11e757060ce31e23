/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PID 1 does before it serves: the root disk, mounts, devices, loopback, modules, console. No program of the image is
 * run, and no step is needed for the next: a failure is said on the console, kept, and boot goes on.
 */
#ifndef HUTCH_GUEST_BOOT_H
#define HUTCH_GUEST_BOOT_H

#include <stdbool.h>
#include <stdint.h>

/* Before anything else is opened: /dev and descriptors 0, 1 and 2. */
void boot_early(void);
void boot(void);
/* Load what MODULES_LIST names; part of boot. forget: free the memory of an initramfs that is about to be left. */
void boot_modules(bool forget);

/*
 * The file system on the disk that is written to fills it, once that has at least so many bytes, which is waited for for a second. -1
 * with errno: ETIMEDOUT, EBADF there is no such disk.
 */
int boot_grow_disk(uint64_t bytes);

/* Say and keep a failure; errno's text is added. */
void boot_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The i-th failure, NULL behind the last. */
const char *boot_failure(unsigned i);

#define MODULES_DIR  "/lib/modules"
#define MODULES_LIST MODULES_DIR "/hutch.modules"

#endif
