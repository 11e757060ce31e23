/* SPDX-License-Identifier: Apache-2.0 */
/* What a new VM goes on from. */
#include "host/hutchd/vm_origin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/snapshot.h"

void vm_origin_free(struct vm_origin *o)
{
	free(o->im);
	fd_close(&o->dirfd);
	*o = VM_ORIGIN_NONE;
}

/* The first of the sizes that is asked for and differs from the image's; NULL: none. */
static const char *size_differs(const struct image *im, uint32_t memory_mib, uint32_t vcpus,
				uint32_t *want, uint32_t *have)
{
	*want = memory_mib;
	*have = im->traits.memory_mib;
	if (*want && *want != *have)
		return "memory_mib";
	*want = vcpus;
	*have = im->traits.vcpus;
	return *want && *want != *have ? "vcpus" : NULL;
}

/* A disk and the file system on it are made with the template; later they can only grow. kind: "template" or "snapshot". */
static int check_disk(const struct vm_create *args, const char *kind, const char *name,
		      uint32_t disk_mib, struct hutch_error *err)
{
	if (!args->disk_mib || (disk_mib && args->disk_mib >= disk_mib))
		return 0;
	if (!disk_mib)
		return hutch_error_set(
			err, HUTCH_E_INVALID, 0,
			"vm.create: disk_mib is %u, but %s '%s' has no writable disk "
			"(hutch template build --disk-mib)",
			args->disk_mib, kind, name);
	return hutch_error_set(
		err, HUTCH_E_INVALID, 0,
		"vm.create: disk_mib is %u, %s '%s' has %u: a disk can grow, not shrink",
		args->disk_mib, kind, name, disk_mib);
}

static int find_named(struct broker *b, uint32_t uid, const struct vm_create *args,
		      struct vm_origin *o, struct template *tpl, struct hutch_error *err)
{
	uint32_t want, have;
	const char *field;

	o->im = snapshot_find(b, uid, args->snapshot, &o->dirfd, err);
	if (!o->im)
		return -1;
	field = size_differs(o->im, args->memory_mib, args->vcpus, &want, &have);
	if (field) {
		vm_origin_free(o);
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "vm.create: %s is %u, snapshot '%s' has %u", field, want,
				       args->snapshot, have);
	}
	if (check_disk(args, "snapshot", args->snapshot, o->im->disk_mib, err) < 0) {
		vm_origin_free(o);
		return -1;
	}
	/* The template, where it is still there: finding the accelerator may need its kernel. */
	if (template_load(tpl, b->templates_fd, b->config->template_dir, o->im->template_name,
			  err) < 0)
		snapshot_template(o->im, tpl);
	hutch_error_clear(err);
	return 0;
}

/* Nothing about it is an error: the template can be booted. */
static void find_templates(struct broker *b, const struct vm_create *args, struct vm_origin *o,
			   const struct template *tpl, char *reason, size_t size)
{
	struct hutch_error err;
	uint32_t want, have;
	const char *field;

	hutch_error_clear(&err);
	o->optional = o->of_template = true;
	o->im = template_snapshot_open(b, tpl->name, &o->dirfd, &err);
	if (!o->im) {
		if (err.kind != HUTCH_E_NOT_FOUND)
			snprintf(reason, size, "the template's snapshot: %.200s", err.message);
		return;
	}
	field = size_differs(o->im, args->memory_mib ? args->memory_mib : tpl->memory_mib,
			     args->vcpus ? args->vcpus : tpl->vcpus, &want, &have);
	if (!field)
		return;
	snprintf(reason, size, "%s is %u, that of the template's snapshot is %u", field, want,
		 have);
	vm_origin_free(o);
}

int vm_origin_find(struct broker *b, uint32_t uid, const struct vm_create *args,
		   struct vm_origin *o, struct template *tpl, char *cold_reason, size_t reason_size,
		   struct hutch_error *err)
{
	*o = VM_ORIGIN_NONE;
	cold_reason[0] = '\0';
	if (args->snapshot[0])
		return find_named(b, uid, args, o, tpl, err);
	if (template_load(tpl, b->templates_fd, b->config->template_dir, args->template_name, err) <
		    0 ||
	    check_disk(args, "template", tpl->name, tpl->disk_mib, err) < 0)
		return -1;
	if (args->cold)
		snprintf(cold_reason, reason_size, "asked for");
	else
		find_templates(b, args, o, tpl, cold_reason, reason_size);
	return 0;
}

int vm_origin_of_template(struct broker *b, const char *name, struct vm_origin *o,
			  struct template *tpl, struct hutch_error *err)
{
	*o = VM_ORIGIN_NONE;
	o->of_template = true;
	if (template_load(tpl, b->templates_fd, b->config->template_dir, name, err) < 0)
		return -1;
	o->im = template_snapshot_open(b, name, &o->dirfd, err);
	return o->im ? 0 : -1;
}

int vm_origin_take(struct vm_origin *o, int rundir_fd, struct hutch_error *err)
{
	int fd = dir_make(rundir_fd, VM_IMAGE_DIR);

	if (fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "cannot make " VM_IMAGE_DIR ": %s",
				       strerror(errno));
	if (image_link(o->im, o->dirfd, fd, true, err) < 0) {
		fd_close(&fd);
		return -1;
	}
	fd_close(&o->dirfd);
	o->dirfd = fd;
	return 0;
}
