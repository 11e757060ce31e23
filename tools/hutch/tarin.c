/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive from a guest, unpacked here.
 *
 * libarchive reads it, and writes with its SECURE flags. Before that each name is checked on its own
 * account (tarname.h), and the way to it, as to a hard link's target, is walked by the kernel with
 * links forbidden (openat2(2)). Nobody but us changes the tree meanwhile: an archive is data.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/hutch/tarin.h"
#include "tools/hutch/tarname.h"

#define WRITE_FLAGS                                                                      \
	(ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_SECURE_SYMLINKS | \
	 ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS)

struct unpack {
	struct tarin *t;
	struct archive *in, *out;
	struct stat top; /* of the directory itself, as the archive has it */
	bool top_told;
};

static la_ssize_t on_read(struct archive *a, void *arg, const void **data)
{
	struct unpack *u = arg;
	ssize_t n = xfer_recv(u->t->x, data, NULL);

	if (n < 0)
		archive_set_error(a, ECONNABORTED, "the transfer was broken off");
	return n < 0 ? ARCHIVE_FATAL : n;
}

static int fail(struct unpack *u, const char *kind, int errnum, const char *name, const char *what)
{
	struct xfer *x = u->t->x;

	if (x->over && x->result == NULL)
		return -1; /* told already */
	xfer_quiet(x);
	x->status = cli_error(x->cli, kind, errnum, "%s: %s", name, what ? what : "unknown error");
	return -1;
}

static int fail_archive(struct unpack *u, struct archive *a, const char *name)
{
	return fail(u, a == u->in ? "protocol" : "io", archive_errno(a), name,
		    archive_error_string(a));
}

/* The directory that path lies in is reached without a link and without leaving, if it is there. */
static bool way_is_safe(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
			       .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					  RESOLVE_NO_MAGICLINKS};
	const char *slash = strrchr(path, '/');
	char dir[4096];
	long fd;

	if (slash == NULL)
		return true;
	if ((size_t)(slash - path) >= sizeof(dir))
		return false;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	fd = syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
	if (fd >= 0)
		close((int)fd);
	/* Without openat2 (before Linux 5.6), libarchive's own check of each component stands. */
	return fd >= 0 || errno == ENOENT || errno == ENOSYS;
}

/* Where the entry goes, checked; NULL: printed. The result is to be freed; *name lies in it. */
static char *safe_name(struct unpack *u, const char *raw, const char **name)
{
	char *copy = strdup(raw ? raw : "");

	*name = copy != NULL ? tarname(copy) : NULL;
	if (*name != NULL && way_is_safe(*name))
		return copy;
	fail(u, "denied", EXDEV, raw ? raw : "a member",
	     "the archive from the VM names a place outside of the target; nothing more was unpacked");
	free(copy);
	return NULL;
}

static int copy_data(struct unpack *u, const char *name)
{
	const void *data;
	la_int64_t at;
	size_t len;
	int r;

	while ((r = archive_read_data_block(u->in, &data, &len, &at)) == ARCHIVE_OK)
		if (archive_write_data_block(u->out, data, len, at) < ARCHIVE_OK)
			return fail_archive(u, u->out, name);
	return r == ARCHIVE_EOF ? 0 : fail_archive(u, u->in, name);
}

static int write_entry(struct unpack *u, struct archive_entry *e, const char *name)
{
	archive_entry_set_perm(e, archive_entry_perm(e) & (u->t->setid ? 07777 : 01777));
	if (archive_write_header(u->out, e) < ARCHIVE_OK)
		return fail_archive(u, u->out, name);
	if (archive_entry_size(e) > 0 && copy_data(u, name) < 0)
		return -1;
	if (archive_write_finish_entry(u->out) < ARCHIVE_OK)
		return fail_archive(u, u->out, name);
	return 0;
}

static int one_entry(struct unpack *u, struct archive_entry *e)
{
	const char *name, *target, *link = archive_entry_hardlink(e);
	unsigned type = archive_entry_filetype(e);
	char *copy = safe_name(u, archive_entry_pathname(e), &name), *copy2 = NULL;
	int r = 0;

	if (copy == NULL)
		return -1;
	if (strcmp(name, ".") == 0) {
		u->top = *archive_entry_stat(e);
		u->top_told = type == AE_IFDIR;
	} else if (link == NULL && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK &&
		   type != AE_IFIFO) {
		u->t->left_out++;
	} else {
		archive_entry_copy_pathname(e, name);
		if (link != NULL) {
			copy2 = safe_name(u, link, &target);
			if (copy2 != NULL)
				archive_entry_copy_hardlink(e, target);
		}
		r = link != NULL && copy2 == NULL ? -1 : write_entry(u, e, name);
	}
	free(copy2);
	free(copy);
	return r;
}

static int all_entries(struct unpack *u)
{
	struct archive_entry *e;
	int r;

	for (;;) {
		r = archive_read_next_header(u->in, &e);
		if (r == ARCHIVE_EOF)
			break;
		if (r < ARCHIVE_WARN)
			return fail_archive(u, u->in, "the archive from the VM");
		if (one_entry(u, e) < 0)
			return -1;
	}
	/* Times and modes of directories are set now. */
	if (archive_write_close(u->out) < ARCHIVE_OK)
		return fail_archive(u, u->out, "the target");
	return 0;
}

static void finish_top(struct unpack *u)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, u->top.st_mtim};

	if (!u->t->made || !u->top_told)
		return;
	if (chmod(".", u->top.st_mode & (u->t->setid ? 07777 : 01777)) < 0 ||
	    utimensat(AT_FDCWD, ".", times, 0) < 0)
		cli_note("the mode or time of the target was not set: %s", strerror(errno));
}

int tarin_unpack(struct tarin *t)
{
	struct unpack u = {.t = t, .in = archive_read_new(), .out = archive_write_disk_new()};
	const void *rest;
	int r = -1;

	if (u.in == NULL || u.out == NULL || archive_read_support_format_tar(u.in) < ARCHIVE_OK ||
	    archive_write_disk_set_options(u.out, WRITE_FLAGS) < ARCHIVE_OK)
		fail(&u, "io", ENOMEM, "the archive", "no memory to unpack it");
	else if (archive_read_open(u.in, &u, NULL, on_read, NULL) < ARCHIVE_OK)
		fail_archive(&u, u.in, "the archive from the VM");
	else
		r = all_entries(&u);
	archive_read_free(u.in);
	archive_write_free(u.out);
	/* What follows the archive's end, up to the call's. */
	while (r == 0 && !t->x->over)
		if (xfer_recv(t->x, &rest, NULL) < 0)
			r = -1;
	if (r == 0)
		finish_top(&u);
	return r;
}
