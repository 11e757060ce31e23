/* SPDX-License-Identifier: Apache-2.0 */
/* What a new VM goes on from, if it is not booted: an image, and the way to it. */
#ifndef HUTCH_HOST_VM_ORIGIN_H
#define HUTCH_HOST_VM_ORIGIN_H

#include "host/hutchd/broker.h"
#include "host/hutchd/image.h"
#include "host/hutchd/vm_record.h"
#include "protocol/msg_vm.h"

/* In a run directory: what this VM goes on from; what is being captured of it. */
#define VM_IMAGE_DIR   "image"
#define VM_CAPTURE_DIR "capture"

struct vm_origin {
	struct image *im; /* owned; NULL: a cold boot */
	int dirfd;	  /* owned; where its files are; -1: none */
	bool optional;	  /* a cold boot will do where it does not fit */
	bool of_template; /* its template's own snapshot */
	bool trusted;	  /* just captured here: nothing to compare or check */
};
#define VM_ORIGIN_NONE                  \
	(struct vm_origin)              \
	{                               \
		.im = NULL, .dirfd = -1 \
	}

/* Harmless on VM_ORIGIN_NONE, which it leaves. */
void vm_origin_free(struct vm_origin *o);

/*
 * For vm.create: the named snapshot, or the template's, or none; tpl is what it is made of. cold_reason: why the template's
 * snapshot is not used, empty where it is or there is none. -1 with err.
 */
int vm_origin_find(struct broker *b, uint32_t uid, const struct vm_create *args,
		   struct vm_origin *o, struct template *tpl, char *cold_reason, size_t reason_size,
		   struct hutch_error *err);

/* A template by its name, and its own snapshot, which it must have. o is set in any case. -1 with err. */
int vm_origin_of_template(struct broker *b, const char *name, struct vm_origin *o,
			  struct template *tpl, struct hutch_error *err);

/*
 * Links of its files into the run directory's VM_IMAGE_DIR, where o leads from then on: whatever happens to what they came
 * from, the VM has them until its end. -1 with err.
 */
int vm_origin_take(struct vm_origin *o, int rundir_fd, struct hutch_error *err);

#endif
