/* SPDX-License-Identifier: Apache-2.0 */
/* hutch fs: files in a VM, looked at and changed where they are. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/remote.h"
#include "tools/hutch/signals.h"
#include "tools/hutch/text.h"
#include "tools/hutch/xfer.h"

enum { OPT_MODE = OPT_LONG, OPT_APPEND, OPT_NEW };

/* What the options of all these commands say, and the call. */
struct fs {
	struct cli *cli;
	struct xfer x;
	const char *user, *path;
	bool all, parents, force, append, only_new, no_follow;
	uint64_t mode; /* UINT64_MAX: not given */
};

static int take_option(struct fs *f, struct args *a, int id)
{
	switch (id) {
	case 'u':
		f->user = a->value;
		break;
	case 'R':
	case 'r':
		f->all = true;
		break;
	case 'p':
		f->parents = true;
		break;
	case 'f':
		f->force = true;
		break;
	case 'L':
		f->no_follow = true;
		break;
	case OPT_APPEND:
		f->append = true;
		break;
	case OPT_NEW:
		f->only_new = true;
		break;
	case OPT_MODE: {
		char *end;

		errno = 0;
		f->mode = strtoull(a->value, &end, 8);
		if (errno == 0 && *end == '\0' && end != a->value && f->mode <= 07777)
			break;
		cli_usage(a->cli, "--mode is \"%s\": octal digits such as 644 are wanted",
			  a->value);
		return -1;
	}
	}
	return 0;
}

/* Options, ID:PATH and the connection. -1: leave with *status. */
static int begin(struct fs *f, struct cli *cli, struct args *a, int operands, int *status)
{
	const char *vm;
	int id;

	*f = (struct fs){.cli = cli, .mode = UINT64_MAX};
	*status = a->status;
	while ((id = args_next(a)) > 0)
		if (take_option(f, a, id) < 0)
			return -1;
	if (id < 0) {
		*status = a->status;
		return -1;
	}
	if (a->count != operands || !remote_is(a->operands[0])) {
		cli_usage(cli, "%s is wanted", cli->command->operands);
		return -1;
	}
	remote_split(a->operands[0], &vm, &f->path);
	signals_hold();
	*status = cli->command->failed;
	return xfer_open(&f->x, cli, vm, f->user);
}

static int end(struct fs *f, int r)
{
	int status = r < 0 ? f->x.status : EXIT_OK;

	xfer_close(&f->x);
	return cli_finish(f->cli, status);
}

static int print_result(struct fs *f, int r)
{
	if (r == 0 && f->cli->json)
		json_print(stdout, json_from_value(hutch_doc_root(f->x.result)));
	return r;
}

#define USER_OPTION                                               \
	{                                                         \
		'u', "user", "USER", "act as this user of the VM" \
	}

/* ---- ls, stat ---- */

static void mode_text(char out[11], const struct hutch_value *record)
{
	static const struct {
		const char *type;
		char letter;
	} types[] = {{"file", '-'},   {"dir", 'd'},  {"link", 'l'}, {"fifo", 'p'},
		     {"socket", 's'}, {"char", 'c'}, {"block", 'b'}};
	const char *type = hutch_get_text(record, "type", "");
	unsigned mode = (unsigned)hutch_get_uint(record, "mode", 0);

	strcpy(out, "?rwxrwxrwx");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(type, types[i].type) == 0)
			out[0] = types[i].letter;
	for (int i = 0; i < 9; i++)
		if (!(mode & (0400u >> i)))
			out[1 + i] = '-';
	if (mode & 04000)
		out[3] = out[3] == 'x' ? 's' : 'S';
	if (mode & 02000)
		out[6] = out[6] == 'x' ? 's' : 'S';
	if (mode & 01000)
		out[9] = out[9] == 'x' ? 't' : 'T';
}

static void put(const struct hutch_value *record, const char *key)
{
	const struct hutch_value *v = hutch_get(record, key);

	if (v != NULL && v->type == HUTCH_TEXT)
		text_put(stdout, v->as.text.data, v->as.text.len, false);
}

static void print_record(const struct fs *f, const struct hutch_value *record)
{
	char mode[11], date[64];

	if (f->cli->json) {
		json_print(stdout, json_from_value(record));
		return;
	}
	mode_text(mode, record);
	text_date(date, sizeof(date), hutch_get_uint(record, "mtime_ns", 0) / 1000000);
	printf("%s %" PRIu64 " %5" PRIu64 " %5" PRIu64 " %10" PRIu64 " %s ", mode,
	       hutch_get_uint(record, "nlink", 0), hutch_get_uint(record, "uid", 0),
	       hutch_get_uint(record, "gid", 0), hutch_get_uint(record, "size", 0), date);
	if (hutch_get(record, "path") != NULL)
		put(record, "path");
	else
		text_put(stdout, f->path, strlen(f->path), false);
	if (hutch_get(record, "target") != NULL)
		fputs(" -> ", stdout);
	put(record, "target");
	putchar('\n');
}

static int list_errors(struct fs *f)
{
	const struct hutch_value *root = hutch_doc_root(f->x.result);
	const struct hutch_value *list = hutch_get(root, "errors");
	size_t n = list != NULL && list->type == HUTCH_ARRAY ? list->as.array.count : 0;

	for (size_t i = 0; i < n; i++)
		cli_note("%s: %s", hutch_get_text(&list->as.array.items[i], "path", ""),
			 hutch_get_text(&list->as.array.items[i], "errno_name", ""));
	f->x.status = f->cli->command->failed;
	return n > 0 ? -1 : 0;
}

static int run_ls(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"path", {.type = HUTCH_NIL}}, {"depth", hutch_uint(1)}};
	const struct hutch_value *list;
	const void *data;
	struct fs f;
	bool event;
	ssize_t n;
	int status;

	if (begin(&f, cli, a, 1, &status) < 0)
		return status;
	params[0].value = hutch_text(f.path);
	params[1].value = hutch_uint(f.all ? 0 : 1);
	n = xfer_start(&f.x, "fs.list", params, 2, false);
	while (n >= 0 && (n = xfer_recv(&f.x, &data, &event)) > 0) {
		list = event ? hutch_get(hutch_doc_root(f.x.event), "entries") : NULL;
		for (size_t i = 0;
		     list != NULL && list->type == HUTCH_ARRAY && i < list->as.array.count; i++)
			print_record(&f, &list->as.array.items[i]);
	}
	return end(&f, n < 0 ? -1 : list_errors(&f));
}

static const struct opt ls_options[] = {
	{'R', "recursive", NULL, "with all below it"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_ls = {
	.name = "fs ls",
	.operands = "ID:PATH",
	.summary = "List a directory in a VM: mode, links, uid, gid, size, time, name",
	.opts = ls_options,
	FAILS_PLAINLY,
	.run = run_ls,
};

static int run_stat(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"path", {.type = HUTCH_NIL}}, {"follow", hutch_bool(true)}};
	struct fs f;
	int status, r;

	if (begin(&f, cli, a, 1, &status) < 0)
		return status;
	params[0].value = hutch_text(f.path);
	params[1].value = hutch_bool(!f.no_follow);
	r = xfer_request(&f.x, "fs.stat", params, 2, NULL);
	if (r == 0)
		print_record(&f, hutch_doc_root(f.x.result));
	return end(&f, r);
}

static const struct opt stat_options[] = {
	{'L', "no-follow", NULL, "of a link, tell about the link itself"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_stat = {
	.name = "fs stat",
	.operands = "ID:PATH",
	.summary = "Tell about a file in a VM",
	.opts = stat_options,
	FAILS_PLAINLY,
	.run = run_stat,
};

/* ---- cat, write ---- */

static int write_out(struct fs *f, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			f->x.status = cli_error(f->cli, "io", errno,
						"cannot write to standard output: %s",
						strerror(errno));
			return -1;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int run_cat(struct cli *cli, struct args *a)
{
	struct hutch_pair path = {"path", {.type = HUTCH_NIL}};
	const void *data;
	struct fs f;
	ssize_t n;
	int status;

	if (begin(&f, cli, a, 1, &status) < 0)
		return status;
	path.value = hutch_text(f.path);
	n = xfer_start(&f.x, "fs.read", &path, 1, false);
	while (n >= 0 && (n = xfer_recv(&f.x, &data, NULL)) > 0)
		n = write_out(&f, data, (size_t)n);
	return end(&f, n < 0 ? -1 : 0);
}

static const struct opt user_options[] = {USER_OPTION, {0}};

const struct command cmd_fs_cat = {
	.name = "fs cat",
	.operands = "ID:PATH",
	.summary = "Print a file of a VM",
	.opts = user_options,
	FAILS_PLAINLY,
	.run = run_cat,
};

static int send_stdin(struct fs *f)
{
	static char buf[XFER_PIECE];
	ssize_t n;

	while ((n = read(STDIN_FILENO, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			f->x.status = cli_error(f->cli, "io", errno,
						"cannot read standard input: %s", strerror(errno));
			return -1; /* without an end: nothing is replaced */
		}
		if (xfer_send(&f->x, buf, (size_t)n) < 0)
			break;
	}
	return xfer_finish(&f->x);
}

static int run_write(struct cli *cli, struct args *a)
{
	struct hutch_pair params[4] = {{"path", {.type = HUTCH_NIL}}};
	size_t n = 1;
	struct fs f;
	int status, r;

	if (begin(&f, cli, a, 1, &status) < 0)
		return status;
	params[0].value = hutch_text(f.path);
	if (f.mode != UINT64_MAX)
		params[n++] = (struct hutch_pair){"mode", hutch_uint(f.mode)};
	if (f.parents)
		params[n++] = (struct hutch_pair){"parents", hutch_bool(true)};
	if (f.only_new && !f.append)
		params[n++] = (struct hutch_pair){"if_absent", hutch_bool(true)};
	r = xfer_start(&f.x, f.append ? "fs.append" : "fs.write", params, n, true);
	if (r == 0)
		r = send_stdin(&f);
	return end(&f, print_result(&f, r));
}

static const struct opt write_options[] = {
	{OPT_MODE, "mode", "OCTAL", "its permissions (default: those it has, else 644)"},
	{'p', "parents", NULL, "make directories that are missing above it"},
	{OPT_APPEND, "append", NULL, "write at its end"},
	{OPT_NEW, "new", NULL, "fail if there is anything of that name"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_write = {
	.name = "fs write",
	.operands = "ID:PATH",
	.summary = "Make standard input a file of a VM, whole or not at all",
	.opts = write_options,
	FAILS_PLAINLY,
	.run = run_write,
};

/* ---- mkdir, rm, mv ---- */

static int request(struct cli *cli, struct args *a, int operands, const char *method,
		   const char *flag, bool dflt)
{
	struct hutch_pair params[5] = {{"path", {.type = HUTCH_NIL}}};
	size_t n = 1;
	struct fs f;
	int status, r;

	if (begin(&f, cli, a, operands, &status) < 0)
		return status;
	params[0].value = hutch_text(f.path);
	if (operands == 2)
		params[n++] = (struct hutch_pair){"to", hutch_text(a->operands[1])};
	if (f.all || f.parents || f.only_new)
		params[n++] = (struct hutch_pair){flag, hutch_bool(!dflt)};
	if (f.force)
		params[n++] = (struct hutch_pair){"missing_ok", hutch_bool(true)};
	if (f.mode != UINT64_MAX)
		params[n++] = (struct hutch_pair){"mode", hutch_uint(f.mode)};
	r = xfer_request(&f.x, method, params, n, NULL);
	return end(&f, print_result(&f, r));
}

static int run_mkdir(struct cli *cli, struct args *a)
{
	return request(cli, a, 1, "fs.mkdir", "parents", false);
}

static const struct opt mkdir_options[] = {
	{OPT_MODE, "mode", "OCTAL", "its permissions (default: 755)"},
	{'p', "parents", NULL, "those missing above it too; one that is there is no error"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_mkdir = {
	.name = "fs mkdir",
	.operands = "ID:PATH",
	.summary = "Make a directory in a VM",
	.opts = mkdir_options,
	FAILS_PLAINLY,
	.run = run_mkdir,
};

static int run_rm(struct cli *cli, struct args *a)
{
	return request(cli, a, 1, "fs.remove", "recursive", false);
}

static const struct opt rm_options[] = {
	{'r', "recursive", NULL, "a directory with all below it"},
	{'f', "force", NULL, "what is not there is no error"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_rm = {
	.name = "fs rm",
	.operands = "ID:PATH",
	.summary = "Remove a file or an empty directory of a VM",
	.opts = rm_options,
	FAILS_PLAINLY,
	.run = run_rm,
};

static int run_mv(struct cli *cli, struct args *a)
{
	return request(cli, a, 2, "fs.move", "replace", true);
}

static const struct opt mv_options[] = {
	{OPT_NEW, "new", NULL, "fail if TO is there"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_mv = {
	.name = "fs mv",
	.operands = "ID:PATH TO",
	.summary = "Rename a file of a VM; TO is a path in the same VM",
	.opts = mv_options,
	FAILS_PLAINLY,
	.run = run_mv,
};

/* ---- watch ---- */

static void print_changes(const struct fs *f, const struct hutch_value *event)
{
	const struct hutch_value *list = hutch_get(event, "changes");

	if (f->cli->json) {
		json_print(stdout, json_from_value(event));
	} else if (list == NULL || list->type != HUTCH_ARRAY) {
		puts(hutch_get_text(event, "event", ""));
	} else {
		for (size_t i = 0; i < list->as.array.count; i++) {
			put(&list->as.array.items[i], "kind");
			putchar(' ');
			put(&list->as.array.items[i], "path");
			putchar('\n');
		}
	}
	fflush(stdout);
}

static int run_watch(struct cli *cli, struct args *a)
{
	struct hutch_pair params[2] = {{"path", {.type = HUTCH_NIL}}};
	const void *data;
	struct fs f;
	bool event;
	ssize_t n;
	int status;

	if (begin(&f, cli, a, 1, &status) < 0)
		return status;
	params[0].value = hutch_text(f.path);
	params[1] = (struct hutch_pair){"recursive", hutch_bool(f.all)};
	n = xfer_start(&f.x, "fs.watch", params, 2, false);
	while (n >= 0 && (n = xfer_recv(&f.x, &data, &event)) > 0) {
		if (event)
			print_changes(&f, hutch_doc_root(f.x.event));
		n = ferror(stdout) ? -1 : 0;
	}
	if (n == 0)
		cli_note("%s: the watch ended: %s", f.path,
			 hutch_get_text(hutch_doc_root(f.x.result), "reason", "?"));
	return end(&f, n < 0 ? -1 : 0);
}

static const struct opt watch_options[] = {
	{'r', "recursive", NULL, "all directories below it too"},
	USER_OPTION,
	{0},
};

const struct command cmd_fs_watch = {
	.name = "fs watch",
	.operands = "ID:PATH",
	.summary = "Print changes of a file or directory in a VM as they happen",
	.details = "The first line, \"watching\", says that nothing is missed from then on.\n",
	.opts = watch_options,
	FAILS_PLAINLY,
	.run = run_watch,
};
