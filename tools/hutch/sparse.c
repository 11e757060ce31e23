/* SPDX-License-Identifier: Apache-2.0 */
/* One file with holes, as an archive of one member; see sparse.h. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/hutch/remote.h"
#include "tools/hutch/sparse.h"
#include "tools/hutch/tarin.h"
#include "tools/hutch/tarout.h"

#define WORTHWHILE (1u << 20) /* bytes of holes */
#define STAT_BLOCK 512

static int failed(const struct sparse *s, int errnum, const char *what, const char *name)
{
	xfer_quiet(s->x);
	s->x->status = cli_error(s->x->cli, "io", errnum, "%s %s: %s", what, name,
				 strerror(errnum));
	return -1;
}

/* fs.stat of a path, not following a link; NULL: nothing is there, or that cannot be told. */
static const struct hutch_value *look(const struct sparse *s, const char *path)
{
	const struct hutch_pair params[] = {{"path", hutch_text(path)},
					    {"follow", hutch_bool(false)}};
	struct hutch_failure why;

	return xfer_request(s->x, "fs.stat", params, 2, &why) < 0 ? NULL
								  : hutch_doc_root(s->x->result);
}

static bool is_file(const struct hutch_value *record)
{
	return strcmp(hutch_get_text(record, "type", ""), "file") == 0;
}

/* ---- Into the VM ---- */

bool sparse_may_send(const struct sparse *s, int fd, const struct stat *st, const char *to)
{
	const struct hutch_value *there;

	/* Standard input may be in the middle of a file. */
	if (!S_ISREG(st->st_mode) || lseek(fd, 0, SEEK_CUR) != 0 || !tarout_has_holes(fd, st))
		return false;
	there = look(s, to);
	return there == NULL || is_file(there);
}

static int set_owner_and_mode(const struct sparse *s, const char *path, uint64_t uid, uint64_t gid,
			      uint64_t mode)
{
	const struct hutch_pair owner[] = {{"path", hutch_text(path)},
					   {"uid", hutch_uint(uid)},
					   {"gid", hutch_uint(gid)}};
	const struct hutch_pair bits[] = {{"path", hutch_text(path)}, {"mode", hutch_uint(mode)}};

	if (s->x->user == NULL && xfer_request(s->x, "fs.chown", owner, 3, NULL) < 0)
		return -1;
	return xfer_request(s->x, "fs.chmod", bits, 2, NULL);
}

static int send_archive(const struct sparse *s, int fd, const char *dir, const char *name)
{
	const struct hutch_pair params[] = {{"path", hutch_text(dir)},
					    {"parents", hutch_bool(s->parents)}};
	struct tarout t = {.x = s->x, .setid = s->setid};

	if (xfer_start(s->x, "fs.tar_in", params, 2, true) < 0)
		return -1;
	tarout_send_file(&t, fd, name);
	if (xfer_finish(s->x) < 0)
		return -1;
	return t.unread == 0 ? 0 : failed(s, EIO, "cannot read all of", "the file");
}

static int take_place(const struct sparse *s, const char *temp, const char *to)
{
	const struct hutch_pair params[] = {{"path", hutch_text(temp)}, {"to", hutch_text(to)}};
	const struct hutch_value *there = look(s, to);

	if (there != NULL && set_owner_and_mode(s, temp, hutch_get_uint(there, "uid", 0),
						hutch_get_uint(there, "gid", 0),
						hutch_get_uint(there, "mode", 0644)) < 0)
		return -1;
	return xfer_request(s->x, "fs.move", params, 2, NULL);
}

int sparse_send(const struct sparse *s, int fd, const struct stat *st, const char *to)
{
	char *dir = path_dir(to), *temp = NULL, name[32];
	struct hutch_pair away[] = {{"path", {.type = HUTCH_NIL}},
				    {"missing_ok", hutch_bool(true)}};
	struct hutch_failure why;
	uint64_t n = (uint64_t)st->st_ino;
	int r = -1, status;

	if (getrandom(&n, sizeof(n), GRND_NONBLOCK) < 0)
		n ^= (uint64_t)getpid() << 32;
	snprintf(name, sizeof(name), ".hutch.%016" PRIx64, n);
	if (dir != NULL)
		temp = path_join(dir, name);
	if (temp == NULL)
		failed(s, ENOMEM, "cannot send", to);
	else if ((r = send_archive(s, fd, dir, name)) == 0)
		r = take_place(s, temp, to);
	if (r < 0 && temp != NULL) {
		status = s->x->status;
		away[0].value = hutch_text(temp);
		xfer_request(s->x, "fs.remove", away, 2, &why);
		s->x->status = status;
	}
	free(temp);
	free(dir);
	return r;
}

/* ---- Out of the VM ---- */

bool sparse_may_receive(const struct sparse *s, const char *from)
{
	const struct hutch_value *record = hutch_doc_root(s->x->result);
	uint64_t held = hutch_get_uint(record, "blocks", 0) * STAT_BLOCK;
	uint64_t size = hutch_get_uint(record, "size", 0);

	if (!is_file(record) || hutch_get(record, "blocks") == NULL || held > size ||
	    size - held < WORTHWHILE)
		return false;
	record = look(s, from);
	return record != NULL && is_file(record);
}

/* The agent fills up what it could not read, and says so. */
static bool was_whole(const struct sparse *s)
{
	const struct hutch_value *errors = hutch_get(hutch_doc_root(s->x->result), "errors");

	return errors == NULL || errors->type != HUTCH_ARRAY || errors->as.array.count == 0;
}

static int unpack(const struct sparse *s, const char *from, const char *base)
{
	const struct hutch_value name = hutch_text(base);
	char *above = path_dir(from);
	const struct hutch_pair params[] = {{"path", hutch_text(above)},
					    {"names", hutch_array(&name, 1)}};
	struct tarin t = {.x = s->x, .setid = s->setid};
	int r = -1;

	if (above != NULL && xfer_start(s->x, "fs.tar_out", params, 2, false) == 0)
		r = tarin_unpack(&t);
	if (r == 0 && !was_whole(s))
		r = failed(s, EIO, "the VM cannot read all of", from);
	free(above);
	return r;
}

/* In the directory that was unpacked into: what came takes f's place. */
static int commit(const struct sparse *s, const char *base, struct hostfile *f, const char *place)
{
	struct stat st;

	if (lstat(base, &st) < 0 || !S_ISREG(st.st_mode))
		return failed(s, ENOENT, "the VM did not send", base);
	if (f->exists && chmod(base, f->mode) < 0)
		return failed(s, errno, "cannot set the mode of", f->path);
	return rename(base, place) == 0 ? 0 : failed(s, errno, "cannot write", f->path);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int in_directory(const struct sparse *s, const char *from, struct hostfile *f,
			const char *dir)
{
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = -1;
	char *base = path_base(from), *last = path_base(f->path), *place = path_join("..", last);

	if (here < 0 || chdir(dir) < 0) {
		failed(s, errno, "cannot enter", dir);
	} else {
		r = unpack(s, from, base);
		if (r == 0)
			r = commit(s, base, f, place);
		if (fchdir(here) < 0)
			r = failed(s, errno, "cannot leave", dir);
	}
	if (here >= 0)
		close(here);
	free(place);
	free(last);
	free(base);
	return r;
}

int sparse_receive(const struct sparse *s, const char *from, struct hostfile *f)
{
	char *dir = NULL;
	int r;

	if (asprintf(&dir, "%s.d", f->temp) < 0)
		return failed(s, ENOMEM, "cannot write", f->path);
	if (mkdir(dir, 0700) < 0) {
		r = failed(s, errno, "cannot make the directory", dir);
	} else {
		r = in_directory(s, from, f, dir);
		nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	}
	free(dir);
	return r;
}
