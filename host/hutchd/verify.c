/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of images. */
#include "host/hutchd/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"

#define LINE_MAX_BYTES	  200u
#define VERIFIED_MAX_TEXT ((size_t)VERIFIED_MAX * LINE_MAX_BYTES)

/* A file as it was when its digest was taken or checked. */
struct entry {
	uint64_t dev, inode, size, mtime_ns;
	char digest[DIGEST_HEX + 1];
};

struct verified {
	int state_fd;
	char boot_id[HUTCH_UUID_LEN + 1];
	unsigned count, next; /* a ring once it is full */
	struct entry entries[VERIFIED_MAX];
};

struct verify {
	struct worker_job job;
	struct verified *v;
	struct image copy; /* what the thread works on */
	struct image *im;  /* NULL: canceled */
	int dirfd;
	enum verify_mode mode;
	bool todo[IMAGE_MAX_FILES];
	struct entry seen[IMAGE_MAX_FILES]; /* of those that were read */
	uint64_t bytes;
	struct hutch_error err; /* kind HUTCH_OK: none */
	verify_done *done;
	void *arg;
};

static void describe(struct entry *e, const struct stat *st)
{
	*e = (struct entry){.dev = (uint64_t)st->st_dev,
			    .inode = (uint64_t)st->st_ino,
			    .size = (uint64_t)st->st_size,
			    .mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u +
					(uint64_t)st->st_mtim.tv_nsec};
}

static bool same_file(const struct entry *a, const struct entry *b)
{
	return a->inode == b->inode && a->dev == b->dev && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns;
}

static const struct entry *find(const struct verified *v, const struct entry *file)
{
	for (unsigned i = 0; i < v->count; i++)
		if (same_file(&v->entries[i], file))
			return &v->entries[i];
	return NULL;
}

static void remember(struct verified *v, const struct entry *file)
{
	if (find(v, file))
		return;
	v->entries[v->next] = *file;
	v->next = (v->next + 1) % VERIFIED_MAX;
	if (v->count < VERIFIED_MAX)
		v->count++;
}

static void save(const struct verified *v)
{
	char *text = malloc(VERIFIED_MAX_TEXT + LINE_MAX_BYTES);
	size_t len;

	if (!text)
		return;
	len = (size_t)snprintf(text, LINE_MAX_BYTES, "%s\n", v->boot_id);
	for (unsigned i = 0; i < v->count; i++) {
		const struct entry *e = &v->entries[i];

		len += (size_t)snprintf(text + len, LINE_MAX_BYTES,
					"%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
					e->dev, e->inode, e->size, e->mtime_ns, e->digest);
	}
	if (file_write_atomic(v->state_fd, VERIFIED_FILE, text, len, false) < 0)
		log_errno(LOG_LEVEL_WARN, "broker", "cannot write " VERIFIED_FILE);
	free(text);
}

static void parse(struct verified *v, char *text)
{
	char *rest = NULL, *line = strtok_r(text, "\n", &rest);

	if (!line || strcmp(line, v->boot_id) != 0)
		return;
	while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
		struct entry e;

		if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %64s", &e.dev,
			   &e.inode, &e.size, &e.mtime_ns, e.digest) == 5)
			remember(v, &e);
	}
}

struct verified *verified_load(int state_fd, const char *host_boot_id)
{
	struct verified *v = calloc(1, sizeof(*v));
	size_t len = 0;
	char *text;

	if (!v)
		return NULL;
	v->state_fd = state_fd;
	snprintf(v->boot_id, sizeof(v->boot_id), "%s", host_boot_id);
	text = file_read(state_fd, VERIFIED_FILE, VERIFIED_MAX_TEXT + LINE_MAX_BYTES, &len);
	if (text)
		parse(v, text);
	free(text);
	return v;
}

void verified_free(struct verified *v)
{
	free(v);
}

/* Has this file of im its digest, as far as was seen before? */
static bool known(const struct verified *v, const struct image *im, int dirfd, unsigned file)
{
	char name[IMAGE_FILE_NAME];
	const struct entry *e;
	struct entry now;
	struct stat st;

	image_file_name(file, name);
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	describe(&now, &st);
	e = find(v, &now);
	return e && strcmp(e->digest, im->digests[file]) == 0;
}

bool verify_is_known(const struct verified *v, const struct image *im, int dirfd)
{
	for (unsigned i = 0; i < image_files(im); i++)
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
	struct stat before, after;
	struct entry now;

	if (fstat(fd, &before) < 0 ||
	    digest_file(fd, j->seen[file].digest, &j->bytes, &j->job.canceled) < 0 ||
	    fstat(fd, &after) < 0) {
		failed(j, HUTCH_E_IO, errno, name, strerror(errno));
		return -1;
	}
	describe(&now, &before);
	memcpy(now.digest, j->seen[file].digest, sizeof(now.digest));
	describe(&j->seen[file], &after);
	memcpy(j->seen[file].digest, now.digest, sizeof(now.digest));
	if (!same_file(&now, &j->seen[file])) {
		failed(j, HUTCH_E_STATE, 0, name, "it was changed while it was read");
		return -1;
	}
	if (j->mode == VERIFY_TAKE)
		memcpy(want, now.digest, sizeof(now.digest));
	else if (strcmp(want, now.digest) != 0) {
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

	for (unsigned i = 0; i < image_files(&j->copy) && rc == 0; i++) {
		int fd;

		if (!j->todo[i])
			continue;
		image_file_name(i, name);
		fd = openat(j->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
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
			for (unsigned i = 0; i < image_files(&j->copy); i++)
				if (j->todo[i])
					remember(j->v, &j->seen[i]);
			save(j->v);
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
	for (unsigned i = 0; i < image_files(im); i++)
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
