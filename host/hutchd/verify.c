/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of images. */
#include "host/hutchd/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

struct verify {
	struct worker_job job;
	struct verified *v;
	struct image copy; /* what the thread works on */
	struct image *im;  /* NULL: canceled */
	int dirfd;
	enum verify_mode mode;
	bool todo[IMAGE_MAX_FILES];
	struct verified_file seen[IMAGE_MAX_FILES]; /* of those that were read */
	uint64_t bytes;
	struct hutch_error err; /* kind HUTCH_OK: none */
	verify_done *done;
	void *arg;
};

/* Has this file of im its digest, as far as was seen before? */
static bool known(const struct verified *v, const struct image *im, int dirfd, unsigned file)
{
	char name[IMAGE_FILE_NAME];
	struct stat st;

	image_file_name(file, name);
	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       verified_has(v, &st, im->digests[file]);
}

bool verify_is_known(const struct verified *v, const struct image *im, int dirfd)
{
	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++)
		if (!known(v, im, dirfd, i))
			return false;
	return true;
}

static void failed(struct verify *j, enum hutch_error_kind kind, int errnum, const char *name,
		   const char *why)
{
	hutch_error_set(&j->err, kind, errnum, "%s: %s", name, why);
	snprintf(j->err.stage, sizeof(j->err.stage), "digest");
	snprintf(j->err.path, sizeof(j->err.path), "%s", name);
}

/* The file must not change while it is read. */
static int digest_one(struct verify *j, unsigned file, int fd, const char *name)
{
	char *want = j->copy.digests[file];
	struct verified_file *seen = &j->seen[file];
	int rc = verified_read(fd, digest_file, &j->bytes, &j->job.canceled, seen);

	if (rc < 0) {
		failed(j, HUTCH_E_IO, errno, name, strerror(errno));
		return -1;
	}
	if (rc > 0) {
		failed(j, HUTCH_E_STATE, 0, name, "it was changed while it was read");
		return -1;
	}
	if (j->mode == VERIFY_TAKE)
		memcpy(want, seen->digest, sizeof(seen->digest));
	else if (strcmp(want, seen->digest) != 0) {
		failed(j, HUTCH_E_STATE, 0, name, "it does not have its digest: it is damaged");
		return -1;
	}
	return 0;
}

static void run(struct worker_job *job)
{
	struct verify *j = container_of(job, struct verify, job);
	char name[IMAGE_FILE_NAME];
	int rc = 0;

	for (unsigned i = 0; (i = image_next(&j->copy, i)) < IMAGE_MAX_FILES && rc == 0; i++) {
		int fd;

		if (!j->todo[i])
			continue;
		image_file_name(i, name);
		fd = file_open(j->dirfd, name, O_RDONLY);
		if (fd < 0) {
			failed(j, HUTCH_E_STATE, errno, name, strerror(errno));
			return;
		}
		rc = digest_one(j, i, fd, name);
		fd_close(&fd);
	}
}

static void finish(struct worker_job *job)
{
	struct verify *j = container_of(job, struct verify, job);

	if (j->im && !atomic_load(&job->canceled)) {
		if (!j->err.kind) {
			for (unsigned i = 0; (i = image_next(&j->copy, i)) < IMAGE_MAX_FILES; i++)
				if (j->todo[i])
					verified_add(j->v, &j->seen[i]);
			verified_save(j->v);
			memcpy(j->im->digests, j->copy.digests, sizeof(j->im->digests));
		}
		j->done(j->arg, j->err.kind ? &j->err : NULL, j->bytes);
	}
	fd_close(&j->dirfd);
	free(j);
}

struct verify *verify_start(struct verified *v, struct worker *w, struct image *im, int dirfd,
			    enum verify_mode mode, verify_done *done, void *arg,
			    struct hutch_error *err)
{
	struct verify *j = calloc(1, sizeof(*j));

	if (!j || (j->dirfd = dir_open(dirfd, ".")) < 0) {
		hutch_error_set(err, HUTCH_E_INTERNAL, errno, "cannot check digests: %s",
				strerror(errno));
		free(j);
		return NULL;
	}
	j->job.run = run;
	j->job.done = finish;
	j->v = v;
	j->im = im;
	j->copy = *im;
	j->mode = mode;
	j->done = done;
	j->arg = arg;
	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++)
		j->todo[i] = mode == VERIFY_ALL ||
			     (mode == VERIFY_TAKE ? !im->digests[i][0] : !known(v, im, dirfd, i));
	worker_add(w, &j->job);
	return j;
}

void verify_cancel(struct verify *j)
{
	if (!j)
		return;
	j->im = NULL;
	worker_cancel(&j->job);
}
