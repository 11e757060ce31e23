/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a capture: what stays of before by links, what is written by names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/capture.h"
#include "host/hutchd/capture_disk.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/snapshot.h"

static int create(int dirfd, const char *name)
{
	return openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* What is new, above the files of before. Without any, or with too many layers, all of the memory is written anew. */
static int make_files(struct capture *c, bool whole)
{
	char name[IMAGE_FILE_NAME];
	unsigned layer = IMAGE_FILE_LAYERS + 2 * (c->im->nlayers - 1);

	if (whole) {
		c->data_fd = create(c->dirfd, IMAGE_MEMORY);
	} else {
		image_file_name(layer, name);
		c->data_fd = create(c->dirfd, name);
		image_file_name(layer + 1, name);
		c->extents_fd = create(c->dirfd, name);
	}
	c->device_fd = create(c->dirfd, IMAGE_DEVICE);
	return c->data_fd < 0 || c->device_fd < 0 || (!whole && c->extents_fd < 0) ? -1 : 0;
}

/* The manifest of what will be captured. */
static int describe(struct capture *c, const struct image *from)
{
	struct vm *vm = c->vm;
	struct image *im = c->im;
	struct template tpl;

	if (from) {
		*im = *from;
		im->nlayers = from->nlayers + 1;
		im->digests[IMAGE_FILE_DEVICE][0] = '\0';
	} else {
		if (template_load(&tpl, vm->b->templates_fd, vm->b->config->template_dir,
				  vm->r.template_name, &c->failure) < 0 ||
		    snapshot_root(vm->b, &tpl, &im->root) < 0)
			return -1;
		tpl.disk_mib = vm->r.disk_mib;
		vmm_traits_get(&im->traits, vm->b->launcher, &tpl, vm->r.accel, vm->r.memory_mib,
			       vm->r.vcpus);
		snapshot_host_kernel(im->host_kernel, sizeof(im->host_kernel));
	}
	im->agent_proto = HUTCH_PROTO_VERSION;
	im->generation = vm->r.generation;
	im->owner_uid = vm->r.owner_uid;
	im->created_ms = clock_unix_ms();
	im->secrets = vm->r.secrets;
	im->name[0] = '\0';
	snprintf(im->agent_name, sizeof(im->agent_name), "%s", vm->r.agent_name);
	snprintf(im->agent_boot_id, sizeof(im->agent_boot_id), "%s", vm->r.agent_boot_id);
	snprintf(im->vm, sizeof(im->vm), "%s", vm->r.id);
	snprintf(im->template_name, sizeof(im->template_name), "%s", vm->r.template_name);
	snprintf(im->origin, sizeof(im->origin), "%s", vm->r.snapshot);
	return 0;
}

/* What is written anew has none yet. */
static void forget_digests(struct image *im, bool whole)
{
	unsigned layer = IMAGE_FILE_LAYERS + 2 * (im->nlayers - 1);

	if (whole) {
		im->nlayers = 0;
		im->digests[IMAGE_FILE_MEMORY][0] = '\0';
	} else {
		im->digests[layer][0] = im->digests[layer + 1][0] = '\0';
	}
}

/* Of one that is parked again and again, the layer of the last time goes; where there are as many as there can be, all of them. */
static void choose_layers(struct capture *c, struct image *from)
{
	c->below = from->nlayers;
	if (c->mode == CAPTURE_LAST && c->below > c->vm->r.layers)
		c->below = c->vm->r.layers;
	if (c->below == VMM_MAX_LAYERS)
		c->below = 0;
	c->flatten = c->below < from->nlayers;
	from->nlayers = c->below;
}

/* Everything that can be done before the pause. */
int capture_set_up(struct capture *c, struct hutch_error *err)
{
	struct vm *vm = c->vm;
	struct image *from = NULL;
	int image_fd = dir_open(vm->rundir_fd, VM_IMAGE_DIR); /* none where it was booted */
	bool whole;
	int rc = -1;

	if (image_fd >= 0)
		from = image_load(image_fd, err);
	whole = !from;
	if (from)
		choose_layers(c, from);
	c->im = calloc(1, sizeof(*c->im));
	tree_remove(vm->rundir_fd, VM_CAPTURE_DIR);
	c->dirfd = dir_make(vm->rundir_fd, VM_CAPTURE_DIR);
	if (c->im && c->dirfd >= 0 && (image_fd < 0 || from) && describe(c, from) == 0) {
		forget_digests(c->im, whole);
		if (capture_disk_begin(c, err) == 0 &&
		    (whole || image_link(from, image_fd, c->dirfd, false, err) == 0) &&
		    make_files(c, whole) == 0 && image_save(c->im, c->dirfd, false) == 0)
			rc = 0;
	}
	if (rc < 0 && c->failure.kind)
		*err = c->failure;
	else if (rc < 0 && !err->kind)
		hutch_error_set(err, HUTCH_E_IO, errno, "VM %s: cannot make its image: %s",
				vm->r.id, strerror(errno));
	fd_close(&image_fd);
	free(from);
	return rc;
}
