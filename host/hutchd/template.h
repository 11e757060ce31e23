/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: <template_dir>/NAME/ with template.json, kernel, initramfs and perhaps a root disk,
 * made by rootfs/build.
 */
#ifndef HUTCH_HOST_TEMPLATE_H
#define HUTCH_HOST_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/error.h"
#include "protocol/limits.h"

enum template_file { TEMPLATE_KERNEL, TEMPLATE_INITRAMFS, TEMPLATE_ROOT, TEMPLATE_FILES };

/* The name is a keyword to a formatter for C++. */
/* clang-format off */
struct template {
	char name[HUTCH_MAX_TEMPLATE_NAME + 1];
	char kernel[64];	    /* file names inside the template's directory, no '/' */
	char initramfs[64];
	char root[64]; /* image of the read-only root disk; empty: the initramfs is the root */
	char digests[TEMPLATE_FILES][65]; /* SHA-256 by enum template_file; empty: not recorded */
	char disk[64]; /* base of the writable disk, a file system with nothing in it; empty: none */
	uint32_t disk_mib;	    /* its size */
	char cmdline[512];	    /* kernel parameters beyond what the launcher sets */
	char kernel_version[64];    /* for template.list */
	uint32_t memory_mib, vcpus; /* defaults of its VMs */
	uint64_t bytes;		    /* of all its files */
	uint64_t created_ms;	    /* unix time */
};
/* clang-format on */

/*
 * Read NAME's template.json. HUTCH_E_NOT_FOUND names the template and the directory and says how to
 * build it; HUTCH_E_INVALID names the field that is wrong.
 */
int template_load(struct template *t, int template_dir_fd, const char *template_dir,
		  const char *name, struct hutch_error *err);

/* Empty: it has none. */
const char *template_file_name(const struct template *t, enum template_file file);

/* All that can be read, by name; *out is malloc'ed. Broken ones are logged and left out. */
int template_list(int template_dir_fd, const char *template_dir, struct template **out,
		  size_t *count, struct hutch_error *err);

/* Rename it away, then remove it: whole or gone for everybody else. */
int template_remove(int template_dir_fd, const char *name, struct hutch_error *err);

#endif
