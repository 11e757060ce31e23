/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The named snapshots, <state>/snapshots/<uid>/NAME/, and the one that a template may have, <state>/templates/NAME/snapshot/: images
 * (image.h) that are put in their place by a rename, whole or not at all.
 */
#ifndef HUTCH_HOST_SNAPSHOT_H
#define HUTCH_HOST_SNAPSHOT_H

#include "host/hutchd/broker.h"
#include "host/hutchd/image.h"

#define SNAPSHOTS_DIR	  "snapshots"
#define TEMPLATE_SNAPSHOT "snapshot" /* in the template's directory */
#define SNAPSHOTS_MAX	  4096u	     /* of one owner */

/* Open <state>/snapshots, and remove what an earlier broker was about to. -1 with err. */
int snapshots_open(struct broker *b, struct hutch_error *err);

/*
 * The caller's own of that name, else for an admin anybody's. *dirfd is the caller's to close. NULL with HUTCH_E_NOT_FOUND,
 * or HUTCH_E_STATE when its manifest is broken.
 */
struct image *snapshot_find(struct broker *b, uint32_t uid, const char *name, int *dirfd,
			    struct hutch_error *err);
/* HUTCH_E_EXISTS when the owner has one of that name. */
int snapshot_check_name(struct broker *b, uint32_t owner, const char *name,
			struct hutch_error *err);
/*
 * Move the directory from (below from_fd) into the store, under the owner and name that im has. -1 with HUTCH_E_EXISTS or
 * HUTCH_E_IO; from is then as it was.
 */
int snapshot_publish(struct broker *b, const struct image *im, int from_fd, const char *from,
		     struct hutch_error *err);
/* -1 with HUTCH_E_STATE while a VM uses it. */
int snapshot_delete(struct broker *b, const struct image *im, struct hutch_error *err);
/* A living VM that goes on from it, after prev (NULL: the first); NULL: no more. */
const struct vm *snapshot_user(const struct broker *b, const struct image *im,
			       const struct vm *prev);

/* Each that uid may see, by owner and name. each may not delete it. */
typedef void snapshot_each(void *arg, const struct image *im, int dirfd);
void snapshot_list(struct broker *b, uint32_t uid, snapshot_each *each, void *arg);

/*
 * What the named snapshots of an owner (NULL: of all) take on the disk, together with the files of the directory more (-1: none).
 * -1 with errno.
 */
int snapshot_bytes(const struct broker *b, const uint32_t *owner, int more, uint64_t *out);

/* The template's; NULL with HUTCH_E_NOT_FOUND when it has none. */
struct image *template_snapshot_open(struct broker *b, const char *template_name, int *dirfd,
				     struct hutch_error *err);
/* In place of the one that is there. */
int template_snapshot_publish(struct broker *b, const struct image *im, int from_fd,
			      const char *from, struct hutch_error *err);

/* What im is an image of, as far as a restore needs it. */
void snapshot_template(const struct image *im, struct template *tpl);
/* The root disk of a template as it is now. A template without one has an empty name there. -1 with errno. */
int snapshot_root(struct broker *b, const struct template *tpl, struct image_root *out);
/* The host's kernel, as manifests have it. */
void snapshot_host_kernel(char *out, size_t size);
/*
 * Can it be restored here? -1 with HUTCH_E_UNSUPPORTED, stage "match", and a message that names the field. accel: what VMs
 * are run with.
 */
int snapshot_fits(struct broker *b, const struct image *im, enum vmm_accel accel,
		  struct hutch_error *err);

#endif
