/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A memory image: what a VM goes on from. A directory with
 *
 *   manifest.json         all that is in struct image
 *   memory                the base: all of the guest's RAM, sparse
 *   layer-N, extents-N    what was changed above it, oldest first (vmm.h)
 *   device                the state of the devices
 *   disk, disk-N          of a VM with a writable disk: its base, and the overlays over that, the lowest first (vmm_disk.h)
 *
 * Files are written once and then shared by hard links: of a snapshot, of the VMs that go on from it (their run directory's
 * "image"), of what is forked from those. The file system counts the users; deleting a directory is all there is to
 * letting go, and nothing that somebody needs can vanish.
 */
#ifndef HUTCH_HOST_IMAGE_H
#define HUTCH_HOST_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/hutchd/digest.h"
#include "host/hutchd/vmm.h"

#define IMAGE_MANIFEST "manifest.json"
#define IMAGE_MEMORY   "memory"
#define IMAGE_DEVICE   "device"

#define IMAGE_DISK "disk"

/* The files by number: memory, device, disk, disk-0, ... , layer-0, extents-0, layer-1, ... */
enum {
	IMAGE_FILE_MEMORY,
	IMAGE_FILE_DEVICE,
	IMAGE_FILE_DISK,
	IMAGE_FILE_DISK_LAYERS,
	IMAGE_FILE_LAYERS = IMAGE_FILE_DISK_LAYERS + VMM_MAX_DISK_LAYERS,
	IMAGE_MAX_FILES = IMAGE_FILE_LAYERS + 2 * VMM_MAX_LAYERS
};

/* The template's root disk, which is no part of the image: it must still be that file. */
struct image_root {
	char file[64]; /* empty: none */
	uint64_t size, inode, mtime_ns;
};

struct image {
	struct vmm_traits traits;
	char host_kernel[72]; /* must be the same under KVM */
	uint32_t agent_proto;
	char agent_name[HUTCH_MAX_PEER_NAME + 1];
	char agent_boot_id[HUTCH_UUID_LEN + 1];
	uint64_t generation;	     /* identity that the agent had */
	char vm[HUTCH_UUID_LEN + 1]; /* that it was taken from */
	char template_name[HUTCH_MAX_TEMPLATE_NAME + 1];
	struct image_root root;
	char name[HUTCH_MAX_SNAPSHOT_NAME + 1]; /* empty: it has none */
	char origin[HUTCH_MAX_SNAPSHOT_NAME +
		    1]; /* the snapshot that its VM went on from; empty: none */
	uint32_t owner_uid;
	uint64_t created_ms; /* unix time */
	bool secrets;
	uint32_t nlayers;
	uint32_t disk_mib; /* 0: no disk, and no layers of one */
	uint32_t disk_layers;
	char digests[IMAGE_MAX_FILES][DIGEST_HEX + 1]; /* by file number; empty: not taken yet */
};

/* The number of its first file from number file on; IMAGE_MAX_FILES: there is none. */
unsigned image_next(const struct image *im, unsigned file);
#define IMAGE_FILE_NAME 16u
void image_file_name(unsigned file, char out[IMAGE_FILE_NAME]);

/* NULL with err: HUTCH_E_NOT_FOUND there is no manifest, HUTCH_E_INVALID names the member. free(3) it. */
struct image *image_load(int dirfd, struct hutch_error *err);
/* -1 with errno. sync: fsync. */
int image_save(const struct image *im, int dirfd, bool sync);

/*
 * Hard links of its files from one directory into another; all, or the memory's alone, without the state of the devices and
 * the manifest. -1 with err: HUTCH_E_STATE, path one that is not there; HUTCH_E_IO.
 */
int image_link(const struct image *im, int from, int to, bool all, struct hutch_error *err);

/* All files, read only, as vmm_start wants them. */
struct image_fds {
	int memory, device;
	uint32_t nlayers;
	struct vmm_layer layers[VMM_MAX_LAYERS];
	int disk; /* -1: none */
	uint32_t disk_layers;
	int disk_fds[VMM_MAX_DISK_LAYERS];
};
/* -1 with HUTCH_E_INVALID that names the file; nothing is open then. */
int image_open(const struct image *im, int dirfd, struct image_fds *fds, struct hutch_error *err);
void image_close(struct image_fds *fds);

/* On the disk; *own (may be NULL): of it, what has no other link. */
uint64_t image_bytes(const struct image *im, int dirfd, uint64_t *own);

#endif
