/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a VM's writable disk. */
#include "host/hutchd/vm_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/qcow2.h"

#define MIB (1ull << 20)

void vm_disk_name(uint32_t number, char out[VM_DISK_NAME])
{
	snprintf(out, VM_DISK_NAME, "disk-%u", number);
}

static int failed(const struct vm *vm, const char *what, struct hutch_error *err)
{
	return hutch_error_set(err, HUTCH_E_IO, errno, "VM %s: %s: %s", vm->r.id, what,
			       strerror(errno));
}

/* An overlay with nothing in it, in place of what may be there. */
static int make_overlay(const struct vm *vm, uint32_t number)
{
	char name[VM_DISK_NAME];
	int fd;

	vm_disk_name(number, name);
	unlinkat(vm->rundir_fd, name, 0);
	fd = openat(vm->rundir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0 && qcow2_create(fd, vm->r.disk_mib * MIB) < 0)
		fd_close(&fd);
	return fd;
}

/* ---- its start ---- */

void vm_disk_close(struct vm_disk *disk)
{
	fd_close(&disk->own_base);
	for (size_t i = disk->borrowed; i < disk->d.nlayers; i++)
		fd_close(&disk->layers[i]);
	fd_close(&disk->d.top_fd);
}

/* Linked from the template once, so that it stays what it is. */
static int open_own_base(struct vm *vm, const struct template *tpl)
{
	int dir, rc = 0;

	dir = dir_open(vm->b->templates_fd, tpl->name);
	if (dir >= 0)
		rc = linkat(dir, tpl->disk, vm->rundir_fd, VM_DISK_BASE, 0);
	if (rc < 0 && errno == EEXIST)
		rc = 0;
	fd_close(&dir);
	return rc < 0 ? -1 : file_open(vm->rundir_fd, VM_DISK_BASE, O_RDONLY);
}

static int open_own(struct vm *vm, struct vm_disk *out, struct hutch_error *err)
{
	char name[VM_DISK_NAME];

	for (uint32_t n = vm->r.disk_first; n < vm->r.disk_top; n++) {
		if (out->d.nlayers == VMM_MAX_DISK_LAYERS)
			return hutch_error_set(err, HUTCH_E_STATE, 0,
					       "VM %s: its disk has too many layers", vm->r.id);
		vm_disk_name(n, name);
		out->layers[out->d.nlayers] = file_open(vm->rundir_fd, name, O_RDONLY);
		if (out->layers[out->d.nlayers] < 0)
			return failed(vm, name, err);
		out->d.nlayers++;
	}
	vm_disk_name(vm->r.disk_top, name);
	out->d.top_fd = file_open(vm->rundir_fd, name, O_RDWR);
	if (out->d.top_fd < 0 && errno == ENOENT)
		out->d.top_fd = make_overlay(vm, vm->r.disk_top);
	return out->d.top_fd < 0 ? failed(vm, name, err) : 0;
}

/* The VMM that wrote it is gone, and could have been in foreign hands. */
static int check_top(const struct vm *vm, const struct vm_disk *disk, struct hutch_error *err)
{
	const char *why = qcow2_check(disk->d.top_fd, disk->d.bytes);

	return why ? hutch_error_set(err, HUTCH_E_STATE, 0, "VM %s: its disk cannot be used: %s",
				     vm->r.id, why)
		   : 0;
}

int vm_disk_open(struct vm *vm, const struct template *tpl, const struct image *im,
		 const struct image_fds *fds, struct vm_disk *out, struct hutch_error *err)
{
	*out = (struct vm_disk){.d = {.bytes = vm->r.disk_mib * MIB,
				      .base_fd = -1,
				      .top_fd = -1,
				      .top = vm->r.disk_top},
				.own_base = -1};
	out->d.layers = out->layers;
	if (im) {
		out->d.base_fd = fds->disk;
		out->d.nlayers = out->borrowed = fds->disk_layers;
		memcpy(out->layers, fds->disk_fds, fds->disk_layers * sizeof(out->layers[0]));
	} else {
		out->own_base = out->d.base_fd = open_own_base(vm, tpl);
		if (out->own_base < 0)
			return failed(vm, "the disk of its template", err);
	}
	if (open_own(vm, out, err) == 0 && check_top(vm, out, err) == 0)
		return 0;
	vm_disk_close(out);
	return -1;
}

/* ---- while it runs ---- */

int vm_disk_make_next(const struct vm *vm, int *top_fd, int *next_fd)
{
	char name[VM_DISK_NAME];

	vm_disk_name(vm->r.disk_top, name);
	*top_fd = file_open(vm->rundir_fd, name, O_RDONLY);
	*next_fd = *top_fd < 0 ? -1 : make_overlay(vm, vm->r.disk_top + 1);
	if (*next_fd >= 0)
		return 0;
	fd_close(top_fd);
	return -1;
}

void vm_disk_drop_next(const struct vm *vm)
{
	char name[VM_DISK_NAME];

	vm_disk_name(vm->r.disk_top + 1, name);
	unlinkat(vm->rundir_fd, name, 0);
}

bool vm_disk_is_empty(const struct vm *vm)
{
	char name[VM_DISK_NAME];
	struct stat st;

	vm_disk_name(vm->r.disk_top, name);
	return fstatat(vm->rundir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (uint64_t)st.st_size == qcow2_empty_length(vm->r.disk_mib * MIB);
}

/* What a VMM could have forged goes no further. */
static int check_frozen(const struct vm *vm, const char *name, struct hutch_error *err)
{
	int fd = file_open(vm->rundir_fd, name, O_RDONLY);
	const char *why = fd < 0 ? strerror(errno) : qcow2_check(fd, vm->r.disk_mib * MIB);

	fd_close(&fd);
	return why ? hutch_error_set(err, HUTCH_E_STATE, 0, "VM %s: its disk cannot be used: %s",
				     vm->r.id, why)
		   : 0;
}

int vm_disk_link(const struct vm *vm, bool own, int dirfd, struct image *im,
		 struct hutch_error *err)
{
	char from[VM_DISK_NAME], name[IMAGE_FILE_NAME];

	/* Booted: there was no image to link it from. */
	if (!im->disk_mib && linkat(vm->rundir_fd, VM_DISK_BASE, dirfd, IMAGE_DISK, 0) < 0)
		return failed(vm, VM_DISK_BASE, err);
	im->disk_mib = vm->r.disk_mib;
	for (uint32_t n = vm->r.disk_first; own && n < vm->r.disk_top; n++) {
		vm_disk_name(n, from);
		image_file_name(IMAGE_FILE_DISK_LAYERS + im->disk_layers, name);
		if (check_frozen(vm, from, err) < 0)
			return -1;
		if (linkat(vm->rundir_fd, from, dirfd, name, 0) < 0)
			return failed(vm, from, err);
		im->digests[IMAGE_FILE_DISK_LAYERS + im->disk_layers++][0] = '\0';
	}
	return 0;
}
