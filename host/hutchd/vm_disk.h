/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a VM's writable disk (vmm_disk.h). What it goes on from is in its image: base and overlays, links. Its own overlays
 * are disk-N in the run directory, N from record's disk_first to disk_top: the last one is written to, those before it were
 * frozen by forks and snapshots. A VM that was booted has the base in the run directory too.
 */
#ifndef HUTCH_HOST_VM_DISK_H
#define HUTCH_HOST_VM_DISK_H

#include "host/hutchd/image.h"
#include "host/hutchd/vm.h"

#define VM_DISK_BASE "disk-base"
#define VM_DISK_NAME 24u
void vm_disk_name(uint32_t number, char out[VM_DISK_NAME]);

/* All of it, as vmm_start wants it. */
struct vm_disk {
	struct vmm_disk d;
	int layers[VMM_MAX_DISK_LAYERS];
	unsigned borrowed; /* of these, the first ones are the image's */
	int own_base;	   /* -1: the base is the image's */
};

/*
 * Open the disk of a VM that is about to start, with what is below it: of the image (NULL: the template's), whose files are open in fds. A
 * new VM gets its first overlay here. -1 with err, and nothing is open.
 */
int vm_disk_open(struct vm *vm, const struct template *tpl, const struct image *im,
		 const struct image_fds *fds, struct vm_disk *out, struct hutch_error *err);
void vm_disk_close(struct vm_disk *disk);

/* An overlay for after a freeze, and the top for reading. -1 with errno. */
int vm_disk_make_next(const struct vm *vm, int *top_fd, int *next_fd);
void vm_disk_drop_next(const struct vm *vm);
/* Was nothing written to the top? */
bool vm_disk_is_empty(const struct vm *vm);
/*
 * Links of all that is frozen of the VM's own into an image's directory, where those of its image are already, if it has one; im says how
 * many there are then. Without own, of an image that this VM alone will go on from, its own stay where they are. -1 with err.
 */
int vm_disk_link(const struct vm *vm, bool own, int dirfd, struct image *im,
		 struct hutch_error *err);

#endif
