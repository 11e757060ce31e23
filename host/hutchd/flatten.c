/* SPDX-License-Identifier: Apache-2.0 */
/* Long chains of disk layers are made short. */
#include "host/hutchd/flatten.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/qcow2.h"
#include "host/hutchd/vm_disk.h"
#include "host/hutchd/vm_origin.h"
#include "host/hutchd/worker.h"

#define MERGED	  "disk-merged" /* in a run directory, until it has its place */
#define NEW_IMAGE "image.new"
#define LEAST	  4u  /* layers that become one, whatever their sizes */
#define MOST	  24u /* layers of a chain that are all worth it */

struct layer_id {
	dev_t dev;
	ino_t ino;
};

struct flatten {
	struct worker_job job;
	TAILQ_ENTRY(flatten) next;
	struct broker *b;
	char vm[HUTCH_UUID_LEN + 1]; /* in whose run directory it is made */
	bool own;		     /* its own overlays; else those of image/ */
	uint32_t first, count;	     /* the first one's number, or place in the image */
	struct layer_id ids[VMM_MAX_DISK_LAYERS];
	int from[VMM_MAX_DISK_LAYERS], to;
	uint64_t bytes; /* of the disk */
	int error;	/* errno; 0: it is done */
	const char *why;
};

unsigned flatten_choose(const uint64_t *sizes, unsigned count, unsigned *first)
{
	uint64_t sum = 0;
	unsigned i = count;

	if (count < FLATTEN_AT)
		return 0;
	while (i > 0 && (count - i < LEAST || count >= MOST || sizes[i - 1] <= 2 * sum))
		sum += sizes[--i];
	*first = i;
	return count - i;
}

/* ---- in the thread ---- */

static void run(struct worker_job *job)
{
	struct flatten *f = container_of(job, struct flatten, job);

	f->error = qcow2_merge(f->from, f->count, f->bytes, f->to, &job->canceled, &f->why) < 0
			   ? errno
			   : 0;
}

/* ---- on the loop ---- */

static void flatten_free(struct flatten *f)
{
	for (uint32_t i = 0; i < f->count; i++)
		fd_close(&f->from[i]);
	fd_close(&f->to);
	free(f);
}

static struct vm *find(struct broker *b, const char *id)
{
	struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next)
		if (strcmp(vm->r.id, id) == 0 && vm->state < VM_STOPPING)
			return vm;
	return NULL;
}

static int failed(const struct vm *vm, const char *what)
{
	log_errno(LOG_LEVEL_WARN, vm->object, "its disk layers stay as they are: %s", what);
	return -1;
}

/* Its own: what is merged takes the place of the last one first; until the record says so, the others lie below it and hide nothing. */
static void take_own(struct flatten *f, struct vm *vm)
{
	uint32_t last = f->first + f->count - 1;
	char name[VM_DISK_NAME];

	if (vm->r.disk_first != f->first || vm->r.disk_top <= last)
		return;
	vm_disk_name(last, name);
	if (renameat(vm->rundir_fd, MERGED, vm->rundir_fd, name) < 0) {
		failed(vm, name);
		return;
	}
	vm->r.disk_first = last;
	if (vm_save(vm) < 0)
		return;
	for (uint32_t n = f->first; n < last; n++) {
		vm_disk_name(n, name);
		unlinkat(vm->rundir_fd, name, 0);
	}
	log_info(vm->object, "%u layers of its disk are one", f->count);
}

static bool is_layer(int dirfd, unsigned layer, const struct layer_id *id)
{
	char name[IMAGE_FILE_NAME];
	struct stat st;

	image_file_name(IMAGE_FILE_DISK_LAYERS + layer, name);
	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == id->dev &&
	       st.st_ino == id->ino;
}

static bool has_layers(const struct image *im, int dirfd, const struct flatten *f)
{
	if (im->disk_layers < f->first + f->count)
		return false;
	for (uint32_t i = 0; i < f->count; i++)
		if (!is_layer(dirfd, f->first + i, &f->ids[i]))
			return false;
	return true;
}

static int link_layer(int from, const char *name, int to, unsigned layer)
{
	char target[IMAGE_FILE_NAME];

	image_file_name(IMAGE_FILE_DISK_LAYERS + layer, target);
	return linkat(from, name, to, target, 0);
}

/* All of im but the layers that were merged; those above move down. im becomes what to holds. */
static int fill(const struct flatten *f, struct image *im, int merged_dir, int from, int to)
{
	const unsigned removed = f->count - 1;
	char name[IMAGE_FILE_NAME];

	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		unsigned layer = i - IMAGE_FILE_DISK_LAYERS;
		bool is_disk = i >= IMAGE_FILE_DISK_LAYERS && i < IMAGE_FILE_LAYERS;
		int rc;

		image_file_name(i, name);
		if (!is_disk || layer < f->first)
			rc = linkat(from, name, to, name, 0);
		else if (layer == f->first)
			rc = link_layer(merged_dir, MERGED, to, layer);
		else if (layer < f->first + f->count)
			rc = 0;
		else
			rc = link_layer(from, name, to, layer - removed);
		if (rc < 0)
			return -1;
	}
	im->digests[IMAGE_FILE_DISK_LAYERS + f->first][0] = '\0';
	for (unsigned layer = f->first + f->count; layer < im->disk_layers; layer++)
		memcpy(im->digests[IMAGE_FILE_DISK_LAYERS + layer - removed],
		       im->digests[IMAGE_FILE_DISK_LAYERS + layer], sizeof(im->digests[0]));
	im->disk_layers -= removed;
	return image_save(im, to, false);
}

static int exchange(struct flatten *f, struct vm *vm, struct image *im, int merged_dir, int from)
{
	int to, rc;

	tree_remove(vm->rundir_fd, NEW_IMAGE);
	to = dir_make(vm->rundir_fd, NEW_IMAGE);
	rc = to < 0 ? -1 : fill(f, im, merged_dir, from, to);
	fd_close(&to);
	if (rc == 0)
		rc = renameat2(vm->rundir_fd, NEW_IMAGE, vm->rundir_fd, VM_IMAGE_DIR,
			       RENAME_EXCHANGE);
	if (rc < 0)
		failed(vm, VM_IMAGE_DIR);
	else
		log_info(vm->object, "%u layers of its disk are one, %u are left", f->count,
			 (unsigned)im->disk_layers);
	tree_remove(vm->rundir_fd, NEW_IMAGE);
	return rc;
}

/* Of whoever has them: a VM that starts just now opens what it was about to, whichever it finds. */
static void take_image(struct flatten *f, struct vm *vm, int merged_dir)
{
	int dirfd = dir_open(vm->rundir_fd, VM_IMAGE_DIR);
	struct hutch_error err;
	struct image *im;

	if (dirfd < 0)
		return;
	im = image_load(dirfd, &err);
	if (im && has_layers(im, dirfd, f))
		exchange(f, vm, im, merged_dir, dirfd);
	free(im);
	fd_close(&dirfd);
}

static void take(struct flatten *f, struct vm *maker)
{
	struct vm *vm;

	if (f->own) {
		take_own(f, maker);
		return;
	}
	TAILQ_FOREACH(vm, &f->b->vms, next)
		if (vm->r.disk_mib && !vm->boot && vm->state < VM_STOPPING)
			take_image(f, vm, maker->rundir_fd);
}

static void done(struct worker_job *job)
{
	struct flatten *f = container_of(job, struct flatten, job);
	struct vm *maker = find(f->b, f->vm);

	TAILQ_REMOVE(&f->b->flattens, f, next);
	if (maker && f->error == 0 && !atomic_load(&job->canceled)) {
		take(f, maker);
	} else if (maker && f->error && f->error != ECANCELED) {
		errno = f->error;
		failed(maker, f->why ? f->why : "merge");
	}
	if (maker)
		unlinkat(maker->rundir_fd, MERGED, 0);
	flatten_free(f);
}

static struct flatten *flatten_new(struct vm *vm, bool own, uint32_t first)
{
	struct flatten *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->job.run = run;
	f->job.done = done;
	f->b = vm->b;
	memcpy(f->vm, vm->r.id, sizeof(f->vm));
	f->own = own;
	f->first = first;
	f->to = -1;
	f->bytes = (uint64_t)vm->r.disk_mib << 20;
	return f;
}

static int add(struct flatten *f, int dirfd, const char *name)
{
	struct stat st;
	int fd = file_open(dirfd, name, O_RDONLY);

	if (fd < 0)
		return -1;
	f->from[f->count] = fd;
	if (fstat(fd, &st) < 0) {
		fd_close(&fd);
		return -1;
	}
	f->ids[f->count++] = (struct layer_id){st.st_dev, st.st_ino};
	return 0;
}

static bool is_under_way(const struct flatten *f)
{
	const struct flatten *other;

	TAILQ_FOREACH(other, &f->b->flattens, next)
		if (strcmp(other->vm, f->vm) == 0 ||
		    (!f->own && !other->own && other->count == f->count &&
		     memcmp(other->ids, f->ids, f->count * sizeof(f->ids[0])) == 0))
			return true;
	return false;
}

/* Takes over f. */
static void start(struct flatten *f, struct vm *vm)
{
	if (is_under_way(f)) {
		flatten_free(f);
		return;
	}
	unlinkat(vm->rundir_fd, MERGED, 0);
	f->to = openat(vm->rundir_fd, MERGED, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (f->to < 0) {
		failed(vm, MERGED);
		flatten_free(f);
		return;
	}
	TAILQ_INSERT_TAIL(&f->b->flattens, f, next);
	worker_add(f->b->flattener, &f->job);
}

static void consider_own(struct vm *vm)
{
	uint32_t count = vm->r.disk_top - vm->r.disk_first;
	struct flatten *f;
	char name[VM_DISK_NAME];

	if (count < FLATTEN_AT || !(f = flatten_new(vm, true, vm->r.disk_first)))
		return;
	for (uint32_t i = 0; i < count && i < VMM_MAX_DISK_LAYERS; i++) {
		vm_disk_name(f->first + i, name);
		if (add(f, vm->rundir_fd, name) < 0) {
			failed(vm, name);
			flatten_free(f);
			return;
		}
	}
	start(f, vm);
}

static unsigned choose(const struct image *im, int dirfd, unsigned *first)
{
	uint64_t sizes[VMM_MAX_DISK_LAYERS];
	char name[IMAGE_FILE_NAME];
	struct stat st;

	for (unsigned i = 0; i + 1 < im->disk_layers; i++) {
		image_file_name(IMAGE_FILE_DISK_LAYERS + i, name);
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return 0;
		sizes[i] = (uint64_t)st.st_blocks * 512;
	}
	return im->disk_layers ? flatten_choose(sizes, im->disk_layers - 1, first) : 0;
}

static void consider_image(struct vm *vm, const struct image *im, int dirfd)
{
	unsigned first = 0, count = choose(im, dirfd, &first);
	struct flatten *f = count ? flatten_new(vm, false, first) : NULL;
	char name[IMAGE_FILE_NAME];

	if (!f)
		return;
	for (unsigned i = 0; i < count; i++) {
		image_file_name(IMAGE_FILE_DISK_LAYERS + first + i, name);
		if (add(f, dirfd, name) < 0) {
			failed(vm, name);
			flatten_free(f);
			return;
		}
	}
	start(f, vm);
}

void flatten_consider(struct vm *vm)
{
	struct hutch_error err;
	struct image *im;
	int dirfd;

	if (!vm->r.disk_mib)
		return;
	consider_own(vm);
	dirfd = dir_open(vm->rundir_fd, VM_IMAGE_DIR);
	if (dirfd < 0)
		return;
	im = image_load(dirfd, &err);
	if (im)
		consider_image(vm, im, dirfd);
	free(im);
	fd_close(&dirfd);
}
