/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of templates. */
#include "host/hutchd/template_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

struct template_check {
	struct worker_job job;
	struct verified *v;
	struct template tpl;
	int dirfd;
	bool wanted;
	unsigned todo; /* bits, by enum template_file */
	struct verified_file seen[TEMPLATE_FILES];
	struct hutch_error err; /* kind HUTCH_OK: none */
	template_check_done *done;
	void *arg;
};

/* Those of the files whose digest is recorded and was not seen yet. */
static unsigned unknown(const struct verified *v, const struct template *t, int dirfd,
			unsigned files)
{
	unsigned todo = 0;

	for (unsigned i = 0; i < TEMPLATE_FILES; i++) {
		const char *name = template_file_name(t, (enum template_file)i);
		struct stat st;

		if (!(files & 1u << i) || !name[0] || !t->digests[i][0])
			continue;
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !verified_has(v, &st, t->digests[i]))
			todo |= 1u << i;
	}
	return todo;
}

bool template_check_is_known(const struct verified *v, const struct template *t, int templates_fd,
			     unsigned files)
{
	int dir = dir_open(templates_fd, t->name);
	bool known = dir < 0 || unknown(v, t, dir, files) == 0; /* who opens it says so better */

	fd_close(&dir);
	return known;
}

static int failed(struct template_check *c, enum hutch_error_kind kind, int errnum,
		  const char *name, const char *why)
{
	hutch_error_set(&c->err, kind, errnum, "template %s: %s: %s", c->tpl.name, name, why);
	snprintf(c->err.stage, sizeof(c->err.stage), "digest");
	snprintf(c->err.path, sizeof(c->err.path), "%s", name);
	return -1;
}

static int check_one(struct template_check *c, unsigned file, int fd, const char *name)
{
	struct verified_file *seen = &c->seen[file];
	int rc = verified_read(fd, digest_plain, NULL, &c->job.canceled, seen);

	if (rc < 0)
		return failed(c, HUTCH_E_IO, errno, name, strerror(errno));
	if (rc > 0)
		return failed(c, HUTCH_E_STATE, 0, name, "it was changed while it was read");
	if (strcmp(seen->digest, c->tpl.digests[file]) == 0)
		return 0;
	return failed(c, HUTCH_E_STATE, 0, name,
		      "it does not have the digest that its build recorded: it is damaged, or was "
		      "replaced; build the template again");
}

static void run(struct worker_job *job)
{
	struct template_check *c = container_of(job, struct template_check, job);
	int rc = 0;

	for (unsigned i = 0; i < TEMPLATE_FILES && rc == 0; i++) {
		const char *name = template_file_name(&c->tpl, (enum template_file)i);
		int fd;

		if (!(c->todo & 1u << i))
			continue;
		fd = file_open(c->dirfd, name, O_RDONLY);
		rc = fd < 0 ? failed(c, HUTCH_E_STATE, errno, name, strerror(errno))
			    : check_one(c, i, fd, name);
		fd_close(&fd);
	}
}

static void finish(struct worker_job *job)
{
	struct template_check *c = container_of(job, struct template_check, job);

	if (c->wanted && !atomic_load(&job->canceled)) {
		for (unsigned i = 0; i < TEMPLATE_FILES && !c->err.kind; i++)
			if (c->todo & 1u << i)
				verified_add(c->v, &c->seen[i]);
		if (!c->err.kind)
			verified_save(c->v);
		c->done(c->arg, c->err.kind ? &c->err : NULL);
	}
	fd_close(&c->dirfd);
	free(c);
}

struct template_check *template_check_start(struct verified *v, struct worker *w,
					    const struct template *t, int templates_fd,
					    unsigned files, template_check_done *done, void *arg,
					    struct hutch_error *err)
{
	struct template_check *c = calloc(1, sizeof(*c));

	if (!c || (c->dirfd = dir_open(templates_fd, t->name)) < 0) {
		hutch_error_set(err, HUTCH_E_INTERNAL, errno, "template %s: cannot be checked: %s",
				t->name, strerror(errno));
		free(c);
		return NULL;
	}
	c->job.run = run;
	c->job.done = finish;
	c->v = v;
	c->tpl = *t;
	c->wanted = true;
	c->todo = unknown(v, t, c->dirfd, files);
	c->done = done;
	c->arg = arg;
	worker_add(w, &c->job);
	return c;
}

void template_check_cancel(struct template_check *c)
{
	if (!c)
		return;
	c->wanted = false;
	worker_cancel(&c->job);
}
