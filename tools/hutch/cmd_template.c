/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch template build, ls, rm. Building is done by rootfs/build, into the broker's template
 * directory.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/codec.h"
#include "tools/hutch/answer.h"
#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/paths.h"
#include "tools/hutch/template_snapshot.h"
#include "tools/hutch/text.h"

/* ---- ls ---- */

static const char *snapshot_word(const struct hutch_value *snapshot)
{
	if (snapshot == NULL)
		return "-";
	return hutch_get_bool(snapshot, "fits", false) ? "yes" : "does not fit";
}

static void template_row(struct table *t, const struct hutch_value *e)
{
	char text[64];

	table_cell(t, hutch_get_text(e, "name", "-"));
	text_bytes(text, sizeof(text), hutch_get_uint(e, "bytes", 0));
	table_cell(t, text);
	table_cell(t, hutch_get_text(e, "kernel", "-"));
	table_number(t, hutch_get_uint(e, "memory_mib", 0));
	table_number(t, hutch_get_uint(e, "vcpus", 0));
	table_cell(t, snapshot_word(hutch_get(e, "snapshot")));
	text_date(text, sizeof(text), hutch_get_uint(e, "created_ms", 0));
	table_cell(t, text);
}

static void show_templates(const struct hutch_value *answer)
{
	static const char *const head[] = {"NAME",  "SIZE",	"KERNEL", "MIB",
					   "VCPUS", "SNAPSHOT", "CREATED"};

	ANSWER_TABLE(head, hutch_get(answer, "templates"), template_row);
}

static int run_ls(struct cli *cli, struct args *a)
{
	if (args_operands(a, 0, 0) < 0)
		return a->status;
	return answer_print(cli, "template.list", NULL, NULL, 0, PROMPT_MS, show_templates);
}

const struct command cmd_template_ls = {
	.name = "template ls",
	.operands = "",
	.summary = "List the templates that VMs start from",
	FAILS_PLAINLY,
	.run = run_ls,
};

/* ---- rm ---- */

static int run_rm(struct cli *cli, struct args *a)
{
	struct hutch_pair name = {"name", {.type = HUTCH_NIL}};

	if (args_operands(a, 1, 1) < 0)
		return a->status;
	name.value = hutch_text(a->operands[0]);
	return answer_print(cli, "template.remove", NULL, &name, 1, PROMPT_MS, NULL);
}

const struct command cmd_template_rm = {
	.name = "template rm",
	.operands = "NAME",
	.summary = "Remove a template",
	FAILS_PLAINLY,
	.run = run_rm,
};

/* ---- build ---- */

/* Where the broker keeps its templates. 0, or -1 with the failure printed. */
static int template_dir(struct cli *cli, char *out, size_t size)
{
	struct hutch_doc *doc = cli_request(cli, "broker.info", NULL, NULL, 0, PROMPT_MS);
	const char *dir;
	int n;

	if (doc == NULL)
		return -1;
	dir = hutch_get_text(hutch_doc_root(doc), "template_dir", "");
	n = snprintf(out, size, "%s", dir);
	hutch_doc_free(doc);
	if (n > 0 && n < (int)size)
		return 0;
	cli_error(cli, "unsupported", 0, "the broker does not say where it keeps templates");
	return -1;
}

/* Runs in the child. What the build says is progress, not a result: stdout becomes stderr. */
static void exec_build(const char *script, char *const *argv)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (dup2(STDERR_FILENO, STDOUT_FILENO) >= 0)
		execv(script, argv);
	_exit(errno == ENOENT ? 127 : 126);
}

static int run_build_script(struct cli *cli, const char *script, char *const *argv)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		exec_build(script, argv);
	if (pid < 0 || waitpid(pid, &status, 0) < 0) {
		cli_error(cli, "io", errno, "cannot run %s: %s", script, strerror(errno));
		return -1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	cli_error(cli, "internal", 0, "%s failed: %s %d", script,
		  WIFEXITED(status) ? "exit status" : "ended by signal",
		  WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	return -1;
}

struct build {
	const char *name;
	const char *like;     /* whose manifest; NULL: as rootfs/build has it */
	const char *from;     /* the root file system; NULL: like's */
	const char *disk_mib; /* NULL: as the manifest says */
};

/* Find the script and the agent, and build into dir. extra: more words for the script. */
static int build(struct cli *cli, const struct build *b, const char *dir, char **extra, int count)
{
	char rootfs[PATH_MAX], script[PATH_MAX + 8], agent[PATH_MAX], out[PATH_MAX + 80];
	const char *fixed[13] = {script, "--agent", agent, "--out", out, "--name", b->name};
	size_t n = 7;
	char **argv;
	int r;

	if (path_rootfs(rootfs, sizeof(rootfs)) < 0) {
		cli_error(cli, "not_found", ENOENT,
			  "the build script was not found; "
			  "HUTCH_ROOTFS_DIR can name its directory");
		return -1;
	}
	if (path_agent(agent, sizeof(agent)) < 0) {
		cli_error(cli, "not_found", ENOENT,
			  "hutch-agent was not found beside this program");
		return -1;
	}
	snprintf(script, sizeof(script), "%s/build", rootfs);
	snprintf(out, sizeof(out), "%s/%s", dir, b->name);
	if (b->like != NULL) {
		fixed[n++] = "--like";
		fixed[n++] = b->like;
	}
	if (b->from != NULL) {
		fixed[n++] = "--from";
		fixed[n++] = b->from;
	}
	if (b->disk_mib != NULL) {
		fixed[n++] = "--disk-mib";
		fixed[n++] = b->disk_mib;
	}
	argv = calloc(n + (size_t)count + 1, sizeof(*argv));
	if (argv == NULL) {
		cli_error(cli, "io", ENOMEM, "no memory to start %s", script);
		return -1;
	}
	memcpy(argv, fixed, n * sizeof(*argv));
	memcpy(argv + n, extra, (size_t)count * sizeof(*argv));
	r = run_build_script(cli, script, argv);
	free(argv);
	return r;
}

static const struct hutch_value *find_template(const struct hutch_doc *doc, const char *name)
{
	const struct hutch_value *list = hutch_get(hutch_doc_root(doc), "templates");

	for (size_t i = 0; list != NULL && list->type == HUTCH_ARRAY && i < list->as.array.count;
	     i++)
		if (strcmp(hutch_get_text(&list->as.array.items[i], "name", ""), name) == 0)
			return &list->as.array.items[i];
	return NULL;
}

/* The build ended well; the broker must see what it made. */
static int report_built(struct cli *cli, const char *name)
{
	struct hutch_doc *doc = cli_request(cli, "template.list", NULL, NULL, 0, PROMPT_MS);
	const struct hutch_value *built;

	if (doc == NULL)
		return cli->command->failed;
	built = find_template(doc, name);
	if (built != NULL && cli->json)
		json_print(stdout, json_from_value(built));
	else if (built != NULL)
		puts(name);
	hutch_doc_free(doc);
	if (built == NULL)
		return cli_error(cli, "not_found", 0,
				 "template %s was built, but the broker does not list it", name);
	return cli_finish(cli, EXIT_OK);
}

/* What a template is called that is made from this: up to the first dot, "app" of ../app.tar.gz. */
static void name_of(const char *from, char *out, size_t size)
{
	size_t end = strlen(from), start;

	while (end > 0 && from[end - 1] == '/')
		end--;
	for (start = end; start > 0 && from[start - 1] != '/';)
		start--;
	snprintf(out, size, "%.*s", (int)(end - start), from + start);
	out[strcspn(out, ".")] = '\0';
}

enum { OPT_FROM = OPT_LONG, OPT_NAME, OPT_DISK_MIB };

static int parse_build(struct args *a, struct build *b)
{
	int id;

	while ((id = args_next(a)) > 0)
		*(id == OPT_FROM ? &b->from : id == OPT_NAME ? &b->name : &b->disk_mib) = a->value;
	return id;
}

static int run_build(struct cli *cli, struct args *a)
{
	char dir[PATH_MAX], from_name[HUTCH_MAX_TEMPLATE_NAME + 2];
	struct build b = {NULL, NULL, NULL, NULL};
	int used = 0;

	if (parse_build(a, &b) < 0)
		return a->status;
	if (a->count > 0 && a->operands[0][0] != '-')
		*(b.from == NULL ? &b.like : &b.name) = a->operands[used++];
	if (b.name == NULL)
		b.name = b.like;
	if (b.name == NULL && b.from == NULL)
		return cli_usage(cli, "NAME is missing");
	if (b.name == NULL) {
		name_of(b.from, from_name, sizeof(from_name));
		b.name = from_name;
	}
	if (!hutch_name_valid(b.name, strlen(b.name), HUTCH_MAX_TEMPLATE_NAME))
		return cli_usage(cli,
				 "a template cannot be called \"%s\": 1 to %u of A-Za-z0-9._- are "
				 "wanted, not starting with . or -",
				 b.name, HUTCH_MAX_TEMPLATE_NAME);
	if (template_dir(cli, dir, sizeof(dir)) < 0 ||
	    build(cli, &b, dir, a->operands + used, a->count - used) < 0)
		return cli->command->failed;
	if (template_snapshot(cli, b.name) < 0) {
		cli_note("template %s was built, but has no snapshot: its VMs boot their kernel",
			 b.name);
		return cli->command->failed;
	}
	return report_built(cli, b.name);
}

static const struct opt build_options[] = {
	{OPT_FROM, "from", "DIR|TAR", "out of this root file system, as docker export gives one"},
	{OPT_NAME, "name", "NAME",
	 "what it is called; else as the one that it is made of, or as DIR or TAR"},
	{OPT_DISK_MIB, "disk-mib", "N",
	 "its VMs write to a disk of this size, not to memory (0: to memory)"},
	{0},
};

const struct command cmd_template_build = {
	.name = "template build",
	.operands = "[NAME] [-- BUILD-OPTION...]",
	.summary = "Build a template with rootfs/build, snapshot it and print its name",
	.details =
		"NAME is one that comes with hutch (base, debian); with --from, what it is called.\n"
		"The broker must be running: it boots the template once, and keeps what the VMs are\n"
		"restored from. Words after -- go to rootfs/build.\n",
	.opts = build_options,
	.literal = 2,
	FAILS_PLAINLY,
	.run = run_build,
};
