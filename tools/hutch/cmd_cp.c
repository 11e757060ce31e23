/* SPDX-License-Identifier: Apache-2.0 */
/* hutch cp: files and trees into a VM and out of it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/hostfile.h"
#include "tools/hutch/json.h"
#include "tools/hutch/remote.h"
#include "tools/hutch/signals.h"
#include "tools/hutch/sparse.h"
#include "tools/hutch/tarin.h"
#include "tools/hutch/tarout.h"

enum { OPT_SETID = OPT_LONG };

struct cp {
	struct cli *cli;
	struct xfer x;
	const char *user;
	bool quiet, setid, parents;
	uint64_t left_out, unread;
};

/* What a path in the VM is. */
enum kind { ABSENT, FILE_KIND, DIR_KIND };

static int broken(struct cp *c, int errnum, const char *what, const char *name)
{
	xfer_quiet(&c->x);
	c->x.status = cli_error(c->cli, "io", errnum, "%s %s: %s", what, name, strerror(errnum));
	return -1;
}

static bool says_contents(const char *path)
{
	size_t n = strlen(path);

	return strcmp(path, ".") == 0 || (n >= 2 && strcmp(path + n - 2, "/.") == 0);
}

/* -1: printed. x.result is its record when it is there. */
static int remote_kind(struct cp *c, const char *path, bool must, enum kind *kind)
{
	const struct hutch_pair params[] = {{"path", hutch_text(path)}};
	struct hutch_failure why;

	*kind = ABSENT;
	if (xfer_request(&c->x, "fs.stat", params, 1, &why) < 0) {
		if (!must && strcmp(why.kind, "not_found") == 0)
			return 0;
		if (why.kind[0] != '\0')
			c->x.status = cli_fail(c->cli, &why);
		return -1;
	}
	*kind = strcmp(hutch_get_text(hutch_doc_root(c->x.result), "type", ""), "dir") == 0
			? DIR_KIND
			: FILE_KIND;
	return 0;
}

static void show_as(struct cp *c, const char *label, uint64_t total)
{
	c->x.show = !c->quiet && !c->cli->json && isatty(STDERR_FILENO);
	c->x.label = label;
	c->x.done = 0;
	c->x.total = total;
}

/* ---- Into the VM ---- */

/* Send fd to its end. -1: the call is over or, printed, fd cannot be read. */
static int send_fd(struct cp *c, int fd, const char *name)
{
	static char buf[XFER_PIECE];

	for (;;) {
		ssize_t n = read(fd, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			/* Not the end: the call is left without one, and the target stays as it is. */
			broken(c, errno, "cannot read", name);
			c->x.over = true;
			return -1;
		}
		if (n == 0)
			return 0;
		if (xfer_send(&c->x, buf, (size_t)n) < 0)
			return -1;
	}
}

static int set_mtime(struct cp *c, const char *to, const struct stat *st)
{
	struct hutch_pair params[] = {{"path", hutch_text(to)}, {"mtime_ns", hutch_uint(0)}};

	if (st->st_mtim.tv_sec < 0)
		return 0;
	params[1].value = hutch_uint((uint64_t)st->st_mtim.tv_sec * 1000000000u +
				     (uint64_t)st->st_mtim.tv_nsec);
	return xfer_request(&c->x, "fs.utimes", params, 2, NULL);
}

/* fd's bytes become the file to; replaces: there is one already, whose mode stays. */
static int file_in(struct cp *c, int fd, const char *name, const char *to, bool replaces)
{
	const struct sparse holes = {.x = &c->x, .setid = c->setid, .parents = c->parents};
	struct hutch_pair params[4] = {{"path", hutch_text(to)}};
	size_t n = 1;
	struct stat st;
	bool regular;

	if (fstat(fd, &st) < 0)
		return broken(c, errno, "cannot look at", name);
	regular = S_ISREG(st.st_mode);
	if (sparse_may_send(&holes, fd, &st, to)) {
		show_as(c, name, 0);
		return sparse_send(&holes, fd, &st, to);
	}
	if (regular)
		params[n++] = (struct hutch_pair){"size", hutch_uint((uint64_t)st.st_size)};
	if (regular && !replaces)
		params[n++] = (struct hutch_pair){"mode", hutch_uint(st.st_mode &
								     (c->setid ? 07777 : 0777))};
	if (c->parents)
		params[n++] = (struct hutch_pair){"parents", hutch_bool(true)};
	show_as(c, name, regular ? (uint64_t)st.st_size : 0);
	if (regular)
		posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (xfer_start(&c->x, "fs.write", params, n, true) < 0)
		return -1;
	send_fd(c, fd, name);
	if (xfer_finish(&c->x) < 0)
		return -1;
	return regular ? set_mtime(c, to, &st) : 0;
}

/* The archive that send gives is unpacked below dir. */
static int start_tar_in(struct cp *c, const char *dir)
{
	struct hutch_pair params[3] = {{"path", hutch_text(dir)}};
	size_t n = 1;

	if (c->parents)
		params[n++] = (struct hutch_pair){"parents", hutch_bool(true)};
	return xfer_start(&c->x, "fs.tar_in", params, n, true);
}

static int tree_in(struct cp *c, const char *from, const char *dir, const char *name)
{
	struct tarout t = {.x = &c->x, .setid = c->setid};

	show_as(c, from, 0);
	if (start_tar_in(c, dir) < 0)
		return -1;
	tarout_send(&t, from, name);
	c->left_out = t.left_out;
	c->unread = t.unread;
	return xfer_finish(&c->x);
}

static int stdin_in(struct cp *c, const char *to, enum kind there)
{
	static const char name[] = "standard input";

	if (there != DIR_KIND)
		return file_in(c, STDIN_FILENO, name, to, there == FILE_KIND);
	show_as(c, name, 0);
	if (start_tar_in(c, to) < 0)
		return -1;
	send_fd(c, STDIN_FILENO, name);
	return xfer_finish(&c->x);
}

static int dir_in(struct cp *c, const char *from, const char *to, enum kind there)
{
	char *real = realpath(from, NULL), *base = path_base(real ? real : from), *dir = NULL;
	int r = -1;

	if (there == FILE_KIND)
		broken(c, ENOTDIR, "cannot copy a directory to", to);
	else if (there == DIR_KIND && says_contents(from))
		r = tree_in(c, from, to, ".");
	else if (there == DIR_KIND)
		r = tree_in(c, from, to, strcmp(base, "/") == 0 ? "." : base);
	else {
		free(base);
		base = path_base(to);
		dir = path_dir(to);
		r = tree_in(c, from, dir, base);
	}
	free(dir);
	free(base);
	free(real);
	return r;
}

static int copy_in(struct cp *c, const char *from, const char *to)
{
	char *base = path_base(from), *full = NULL;
	enum kind there;
	struct stat st;
	int fd = -1, r = -1;

	if (remote_kind(c, to, false, &there) < 0) {
		/* printed */
	} else if (strcmp(from, "-") == 0) {
		r = stdin_in(c, to, there);
	} else if (stat(from, &st) < 0) {
		broken(c, errno, "cannot find", from);
	} else if (S_ISDIR(st.st_mode)) {
		r = dir_in(c, from, to, there);
	} else if (there == ABSENT && to[strlen(to) - 1] == '/') {
		broken(c, ENOENT, "there is no directory", to);
	} else {
		full = there == DIR_KIND ? path_join(to, base) : strdup(to);
		fd = open(from, O_RDONLY | O_NOCTTY | O_CLOEXEC);
		if (fd < 0)
			broken(c, errno, "cannot open", from);
		else if (there != DIR_KIND || (r = remote_kind(c, full, false, &there)) == 0)
			r = file_in(c, fd, from, full, there != ABSENT);
	}
	if (fd >= 0)
		close(fd);
	free(full);
	free(base);
	return r;
}

/* ---- Out of the VM ---- */

/* What of the call's output goes where: to f, or to standard output when f is NULL. */
static int receive(struct cp *c, struct hostfile *f, const char *to)
{
	struct hostfile out = {.fd = STDOUT_FILENO};
	const void *data;
	ssize_t n;

	while ((n = xfer_recv(&c->x, &data, NULL)) > 0)
		if (hostfile_write(f ? f : &out, data, (size_t)n) < 0)
			return broken(c, errno, "cannot write to", to);
	return n < 0 ? -1 : 0;
}

static struct timespec mtime_of(const struct hutch_value *record)
{
	uint64_t ns = hutch_get_uint(record, "mtime_ns", 0);

	return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
				 .tv_nsec = (long)(ns % 1000000000u)};
}

/* x.result is the record of from. */
static int file_out(struct cp *c, const char *from, const char *to)
{
	const struct hutch_value *record = hutch_doc_root(c->x.result);
	const struct hutch_pair params[] = {{"path", hutch_text(from)}};
	mode_t mode = (mode_t)hutch_get_uint(record, "mode", 0644) & (c->setid ? 07777 : 0777);
	struct timespec mtime = mtime_of(record);
	const struct sparse holes = {.x = &c->x, .setid = c->setid};
	uint64_t size = hutch_get_uint(record, "size", 0);
	struct hostfile f;
	int r;

	if (hostfile_open(&f, to) < 0) {
		r = broken(c, errno, "cannot write", to);
	} else if (f.temp != NULL && sparse_may_receive(&holes, from)) {
		show_as(c, from, 0);
		r = sparse_receive(&holes, from, &f);
	} else {
		show_as(c, from, size);
		r = xfer_start(&c->x, "fs.read", params, 1, false);
		if (r == 0)
			r = receive(c, &f, to);
		if (r == 0 && hostfile_commit(&f, mode, &mtime) < 0)
			r = broken(c, errno, "cannot write", to);
	}
	hostfile_close(&f);
	return r;
}

static int out_to_stdout(struct cp *c, const char *from, enum kind kind)
{
	const struct hutch_pair params[] = {{"path", hutch_text(from)}};

	show_as(c, from,
		kind == DIR_KIND ? 0 : hutch_get_uint(hutch_doc_root(c->x.result), "size", 0));
	if (isatty(STDOUT_FILENO))
		c->x.show = false;
	if (xfer_start(&c->x, kind == DIR_KIND ? "fs.tar_out" : "fs.read", params, 1, false) < 0)
		return -1;
	return receive(c, NULL, "standard output");
}

static void note_errors(struct cp *c)
{
	const struct hutch_value *root = c->x.result ? hutch_doc_root(c->x.result) : NULL;
	const struct hutch_value *list = hutch_get(root, "errors");

	for (size_t i = 0; list != NULL && list->type == HUTCH_ARRAY && i < list->as.array.count;
	     i++)
		cli_note("%s: %s", hutch_get_text(&list->as.array.items[i], "path", ""),
			 hutch_get_text(&list->as.array.items[i], "errno_name", ""));
	c->unread += hutch_get_uint(root, "error_count",
				    list != NULL && list->type == HUTCH_ARRAY ? list->as.array.count
									      : 0);
}

/* The directory from, unpacked as dir, which is made if it is not there. */
static int tree_out(struct cp *c, const char *from, const char *dir)
{
	const struct hutch_pair params[] = {{"path", hutch_text(from)}};
	struct tarin t = {.x = &c->x, .setid = c->setid};

	t.made = mkdir(dir, 0700) == 0;
	if (!t.made && errno != EEXIST)
		return broken(c, errno, "cannot make the directory", dir);
	if (chdir(dir) < 0)
		return broken(c, errno, "cannot enter the directory", dir);
	show_as(c, from, 0);
	if (xfer_start(&c->x, "fs.tar_out", params, 1, false) < 0 || tarin_unpack(&t) < 0)
		return -1;
	c->left_out = t.left_out;
	note_errors(c);
	return 0;
}

static int copy_out(struct cp *c, const char *from, const char *to)
{
	char *base = path_base(from), *full = NULL;
	bool is_dir, there;
	enum kind kind;
	struct stat st;
	int r = -1;

	there = stat(to, &st) == 0;
	is_dir = there && S_ISDIR(st.st_mode);
	if (remote_kind(c, from, true, &kind) < 0) {
		/* printed */
	} else if (strcmp(to, "-") == 0) {
		r = out_to_stdout(c, from, kind);
	} else if (kind == DIR_KIND && there && !is_dir) {
		broken(c, ENOTDIR, "cannot copy a directory to", to);
	} else if (kind != DIR_KIND && !there && to[strlen(to) - 1] == '/') {
		broken(c, ENOENT, "there is no directory", to);
	} else {
		bool into = is_dir && !(kind == DIR_KIND && (says_contents(from) || *base == '/'));

		full = into ? path_join(to, base) : strdup(to);
		r = kind == DIR_KIND ? tree_out(c, from, full) : file_out(c, from, full);
	}
	free(full);
	free(base);
	return r;
}

/* ---- The command ---- */

static int conclude(struct cp *c, int r)
{
	uint64_t skipped;

	xfer_quiet(&c->x);
	if (r < 0)
		return c->x.status;
	skipped = c->left_out;
	if (c->x.result != NULL)
		skipped += hutch_get_uint(hutch_doc_root(c->x.result), "skipped", 0);
	if (skipped > 0)
		cli_note("%" PRIu64 " sockets or devices were left out", skipped);
	if (c->unread > 0)
		return cli_error(c->cli, "io", 0, "%" PRIu64 " files were not copied whole",
				 c->unread);
	return cli_finish(c->cli, EXIT_OK);
}

static int copy(struct cp *c, char *from, char *to)
{
	bool in = remote_is(to) && strcmp(to, "-") != 0;
	const char *vm, *path;
	int r;

	if (in == remote_is(from))
		return cli_usage(c->cli,
				 "one of SRC and DST is ID:PATH, the other one a path here");
	remote_split(in ? to : from, &vm, &path);
	signals_hold();
	if (xfer_open(&c->x, c->cli, vm, c->user) < 0)
		return c->cli->command->failed;
	r = in ? copy_in(c, from, path) : copy_out(c, path, to);
	r = conclude(c, r);
	xfer_close(&c->x);
	return r;
}

static int run(struct cli *cli, struct args *a)
{
	struct cp c = {.cli = cli};
	int id;

	while ((id = args_next(a)) > 0) {
		if (id == 'u')
			c.user = a->value;
		else if (id == 'q')
			c.quiet = true;
		else if (id == 'p')
			c.parents = true;
		else if (id == OPT_SETID)
			c.setid = true;
	}
	if (id < 0)
		return a->status;
	if (a->count != 2)
		return cli_usage(cli, "SRC and DST are wanted");
	return copy(&c, a->operands[0], a->operands[1]);
}

static const struct opt options[] = {
	{'u', "user", "USER", "act in the VM as this user, who owns what is made there"},
	{'p', "parents", NULL, "make directories that are missing above DST, in the VM"},
	{'r', "recursive", NULL, "nothing: a directory is always copied with all below it"},
	{'q', "quiet", NULL, "no bar on a terminal"},
	{OPT_SETID, "setid", NULL, "copy setuid and setgid bits too"},
	{0},
};

const struct command cmd_cp = {
	.name = "cp",
	.operands = "SRC DST",
	.summary = "Copy a file or a tree into a VM (DST is ID:PATH) or out of it (SRC is ID:PATH)",
	.details =
		"A file: DST becomes it, whole or not at all; in DST if that is a directory.\n"
		"A directory: becomes DST if that is not there, else goes into it; with /. at the end\n"
		"of SRC, its contents go into DST.\n"
		"- is standard input or output: a file's bytes, for a directory in the VM a tar archive.\n"
		"Modes, times, holes, links and, in trees, hard links are kept; a file that is\n"
		"replaced keeps its mode. Owners are the user of hutch here, --user in the VM.\n",
	.opts = options,
	FAILS_PLAINLY,
	.run = run,
};
