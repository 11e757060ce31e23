/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch doctor: what works here, and what is missing. Asks the broker, or looks by itself where
 * none runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/hutch/cmd.h"
#include "tools/hutch/json.h"
#include "tools/hutch/paths.h"
#include "tools/hutch/text.h"

enum state { FINE, NOTE, MISSING };

struct report {
	const struct cli *cli;
	json_t *checks;
	bool missing;
};

static void check(struct report *r, enum state state, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void check(struct report *r, enum state state, const char *name, const char *fmt, ...)
{
	static const char *const words[] = {[FINE] = "ok", [NOTE] = "note", [MISSING] = "missing"};
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	r->missing = r->missing || state == MISSING;
	if (r->cli->json) {
		json_array_append_new(r->checks, json_pack("{s:s,s:s,s:o}", "name", name, "state",
							   words[state], "text",
							   json_from_bytes(text, strlen(text))));
		return;
	}
	printf("%-8s %-10s ", words[state], name);
	text_put(stdout, text, strlen(text), false);
	putchar('\n');
}

/* ---- What the broker says ---- */

static void check_accel(struct report *r, const struct hutch_value *accel)
{
	const char *verdict = hutch_get_text(accel, "verdict", "unknown");
	const char *reason = hutch_get_text(accel, "reason", "");
	bool kvm = strcmp(verdict, "kvm") == 0;

	check(r, kvm ? FINE : NOTE, "accel", "%s (asked for: %s)%s%s%s", verdict,
	      hutch_get_text(accel, "mode", "auto"), *reason ? ": " : "", reason,
	      strcmp(verdict, "tcg") == 0 ? "; guests are emulated, and slower" : "");
}

static void check_vmm(struct report *r, const struct hutch_value *vmm)
{
	const char *version = hutch_get_text(vmm, "version", "");

	check(r, *version ? FINE : MISSING, "vmm", "%s %s %s", hutch_get_text(vmm, "driver", "?"),
	      hutch_get_text(vmm, "path", "not found"), version);
}

static void check_isolation(struct report *r, const struct hutch_value *isolation)
{
	const struct hutch_value *missing = hutch_get(isolation, "missing");
	size_t count = missing != NULL && missing->type == HUTCH_ARRAY ? missing->as.array.count
								       : 0;

	check(r, count ? NOTE : FINE, "isolation", "%s",
	      hutch_get_text(isolation, "level", "unknown"));
	for (size_t i = 0; i < count; i++)
		if (missing->as.array.items[i].type == HUTCH_TEXT)
			check(r, NOTE, "isolation", "without %s",
			      missing->as.array.items[i].as.text.data);
	if (hutch_get(isolation, "reason"))
		check(r, NOTE, "isolation", "because of %s",
		      hutch_get_text(isolation, "reason", ""));
}

static void check_ceilings(struct report *r, const struct hutch_value *ceilings)
{
	const struct hutch_value *of = hutch_get(ceilings, "of");
	size_t count = of != NULL && of->type == HUTCH_ARRAY ? of->as.array.count : 0;
	char list[80] = "";
	size_t at = 0;

	if (ceilings == NULL)
		return;
	for (size_t i = 0; i < count && at < sizeof(list) - 16; i++)
		if (of->as.array.items[i].type == HUTCH_TEXT)
			at += (size_t)snprintf(list + at, sizeof(list) - at, " %.12s",
					       of->as.array.items[i].as.text.data);
	check(r, count ? FINE : NOTE, "ceilings", "%s%s", hutch_get_text(ceilings, "by", "unknown"),
	      list);
	if (hutch_get(ceilings, "reason"))
		check(r, NOTE, "ceilings", "not more: %s", hutch_get_text(ceilings, "reason", ""));
}

static void check_templates(struct report *r, struct hutch *h)
{
	struct hutch_call call = {.method = "template.list"};
	struct hutch_failure why;
	struct hutch_doc *doc = hutch_request(h, &call, PROMPT_MS, &why);
	const struct hutch_value *list;
	size_t count;

	if (doc == NULL) {
		check(r, MISSING, "templates", "%s", why.message);
		return;
	}
	list = hutch_get(hutch_doc_root(doc), "templates");
	count = list != NULL && list->type == HUTCH_ARRAY ? list->as.array.count : 0;
	for (size_t i = 0; i < count; i++)
		check(r, FINE, "template", "%s, kernel %s",
		      hutch_get_text(&list->as.array.items[i], "name", "?"),
		      hutch_get_text(&list->as.array.items[i], "kernel", "?"));
	if (count == 0)
		check(r, NOTE, "templates", "there are none; build one: hutch template build base");
	hutch_doc_free(doc);
}

static void check_broker(struct report *r, struct hutch *h)
{
	struct hutch_call call = {.method = "broker.info"};
	struct hutch_failure why;
	struct hutch_doc *doc = hutch_request(h, &call, PROMPT_MS, &why);
	const struct hutch_value *info;
	char uptime[64], own[48] = "";

	if (doc == NULL) {
		check(r, MISSING, "broker", "%s", why.message);
		return;
	}
	info = hutch_doc_root(doc);
	text_duration(uptime, sizeof(uptime), hutch_get_uint(info, "uptime_ms", 0));
	if (hutch_get_uint(info, "own_vms", 0) > 0)
		snprintf(own, sizeof(own), " and %" PRIu64 " of its own",
			 hutch_get_uint(info, "own_vms", 0));
	check(r, FINE, "broker",
	      "%s, pid %" PRIu64 ", uid %" PRIu64 ", up %s, %" PRIu64 " VMs%s, at %s",
	      hutch_get_text(info, "name", "?"), hutch_get_uint(info, "pid", 0),
	      hutch_get_uint(info, "uid", 0), uptime, hutch_get_uint(info, "vms", 0), own,
	      hutch_get_text(info, "socket", hutch_socket(h)));
	check(r, FINE, "state", "%s", hutch_get_text(info, "state_dir", "?"));
	check_vmm(r, hutch_get(info, "vmm"));
	check_accel(r, hutch_get(info, "accel"));
	check_isolation(r, hutch_get(info, "isolation"));
	check_ceilings(r, hutch_get(info, "ceilings"));
	hutch_doc_free(doc);
	check_templates(r, h);
}

/* ---- What can be seen without one ---- */

static void check_qemu(struct report *r)
{
	FILE *f = popen("exec qemu-system-x86_64 --version 2>/dev/null", "re");
	char line[256] = "";

	if (f == NULL || fgets(line, sizeof(line), f) == NULL)
		check(r, MISSING, "vmm",
		      "qemu-system-x86_64 is not in PATH (Debian: qemu-system-x86)");
	else
		check(r, FINE, "vmm", "%.*s", (int)strcspn(line, "\n"), line);
	if (f != NULL)
		pclose(f);
}

static void check_kvm(struct report *r)
{
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		check(r, NOTE, "kvm", "/dev/kvm: %s; guests will be emulated, and slower",
		      strerror(errno));
		return;
	}
	close(fd);
	check(r, NOTE, "kvm", "/dev/kvm opens; the broker finds out whether a guest boots on it");
}

/* That dir can be made and written to: its nearest ancestor that is there. */
static void check_dir(struct report *r, const char *name, const char *dir)
{
	char at[PATH_MAX];
	char *slash;

	snprintf(at, sizeof(at), "%s", dir);
	while (access(at, F_OK) < 0 && (slash = strrchr(at, '/')) != NULL)
		at[slash == at ? 1 : slash - at] = '\0';
	if (access(at, W_OK | X_OK) == 0)
		check(r, FINE, name, "%s can be written", dir);
	else
		check(r, MISSING, name, "%s cannot be written: %s: %s", dir, at, strerror(errno));
}

/* As hutchd chooses them: the system's for root, else the user's. */
static void check_dirs(struct report *r)
{
	const char *home = getenv("HOME"), *state = getenv("XDG_STATE_HOME");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char path[PATH_MAX];

	if (geteuid() == 0)
		snprintf(path, sizeof(path), "/var/lib/hutch");
	else if (state != NULL && *state == '/')
		snprintf(path, sizeof(path), "%s/hutch", state);
	else
		snprintf(path, sizeof(path), "%s/.local/state/hutch", home ? home : "");
	check_dir(r, "state", path);
	if (runtime != NULL && *runtime == '/')
		snprintf(path, sizeof(path), "%s/hutch", runtime);
	else
		snprintf(path, sizeof(path), "/run/hutch");
	check_dir(r, "socket", path);
}

static void check_files(struct report *r)
{
	char path[PATH_MAX];

	if (path_agent(path, sizeof(path)) == 0)
		check(r, FINE, "agent", "%s", path);
	else
		check(r, NOTE, "agent",
		      "hutch-agent was not found; templates cannot be built here");
	if (path_rootfs(path, sizeof(path)) == 0)
		check(r, FINE, "rootfs", "%s", path);
	else
		check(r, NOTE, "rootfs",
		      "the build script was not found; templates cannot be built here");
}

static int run(struct cli *cli, struct args *a)
{
	struct report r = {.cli = cli};
	struct hutch_failure why;
	struct hutch *h;

	if (args_operands(a, 0, 0) < 0)
		return a->status;
	if (cli->json)
		r.checks = json_array();
	h = hutch_open(cli->socket, CLIENT_NAME, &why);
	if (h != NULL) {
		check_broker(&r, h);
	} else {
		bool absent = strcmp(why.kind, "not_dispatched") == 0;

		check(&r, absent ? NOTE : MISSING, "broker", "%s%s", why.message,
		      absent ? "; start one: hutchd" : "");
		check_qemu(&r);
		check_kvm(&r);
		check_dirs(&r);
	}
	check_files(&r);
	hutch_close(h);
	if (cli->json)
		json_print(stdout, json_pack("{s:b,s:o}", "ok", !r.missing, "checks", r.checks));
	return cli_finish(cli, r.missing ? EXIT_FAILED : EXIT_OK);
}

const struct command cmd_doctor = {
	.name = "doctor",
	.operands = "",
	.summary = "Tell what works on this machine, and what is missing",
	.details = "The exit status is 1 when something is missing that hutch needs.\n",
	FAILS_PLAINLY,
	.run = run,
};
