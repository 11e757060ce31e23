/* SPDX-License-Identifier: Apache-2.0 */
/* What hutchd was told, from four places. */
#include "host/hutchd/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "protocol/limits.h"

#define CONFIG_FILE_MAX (64u << 10)
/* Above what adduser, subordinate ids and systemd's own ranges take (systemd: docs/UIDS-GIDS.md). */
#define CONFIG_FIRST_VM_UID 1900000000u
#define CONFIG_VM_UIDS	    65536u

static int bad(struct hutch_error *err, const char *key, const char *value, const char *wanted)
{
	return hutch_error_set(err, HUTCH_E_INVALID, 0, "%s = '%s': %s is wanted", key, value,
			       wanted);
}

static int set_path(char *out, const char *key, const char *value, struct hutch_error *err)
{
	if (!value[0] || strlen(value) >= CONFIG_PATH)
		return bad(err, key, value, "a path of at most 4095 bytes");
	memcpy(out, value, strlen(value) + 1);
	return 0;
}

static int get_uint(const char *key, const char *value, uint64_t min, uint64_t max, uint64_t *out,
		    struct hutch_error *err)
{
	char *end = NULL, wanted[80];

	errno = 0;
	*out = isdigit((unsigned char)value[0]) ? strtoull(value, &end, 10) : 0;
	if (end && !*end && errno == 0 && *out >= min && *out <= max)
		return 0;
	snprintf(wanted, sizeof(wanted), "a number from %llu to %llu", (unsigned long long)min,
		 (unsigned long long)max);
	return bad(err, key, value, wanted);
}

static int get_word(const char *key, const char *value, const char *const *words, int *out,
		    struct hutch_error *err)
{
	char wanted[80] = "";
	size_t at = 0;

	for (int i = 0; words[i]; i++) {
		if (strcmp(value, words[i]) == 0) {
			*out = i;
			return 0;
		}
		at += (size_t)snprintf(wanted + at, sizeof(wanted) - at, "%s%s", i ? ", " : "",
				       words[i]);
	}
	return bad(err, key, value, wanted);
}

static int set_admins(struct config *c, const char *value, struct hutch_error *err)
{
	char copy[512], *save = NULL;

	c->admin_count = 0;
	if (strlen(value) >= sizeof(copy))
		return bad(err, "admin_uids", value, "a shorter list");
	memcpy(copy, value, strlen(value) + 1);
	for (char *s = strtok_r(copy, ", ", &save); s; s = strtok_r(NULL, ", ", &save)) {
		uint64_t uid = 0;

		if (c->admin_count == CONFIG_ADMINS)
			return bad(err, "admin_uids", value, "a list of at most 32");
		if (get_uint("admin_uids", s, 0, UINT32_MAX - 1, &uid, err) < 0)
			return -1;
		c->admin_uids[c->admin_count++] = (uint32_t)uid;
	}
	return 0;
}

static int set_group(struct config *c, const char *value, struct hutch_error *err)
{
	const struct group *g = getgrnam(value);
	uint64_t gid = 0;

	if (!g && get_uint("group", value, 0, UINT32_MAX - 1, &gid, err) < 0)
		return bad(err, "group", value, "a group's name or number");
	c->has_group = true;
	c->group = g ? g->gr_gid : (gid_t)gid;
	return 0;
}

/* FIRST-LAST or "none". Neither root nor a uid that means nobody. */
static int set_vm_uids(struct config *c, const char *value, struct hutch_error *err)
{
	char first[32], *dash;
	uint64_t from = 0, to = 0;

	snprintf(first, sizeof(first), "%s", value);
	dash = strchr(first, '-');
	if (strcmp(value, "none") == 0) {
		c->vm_uids = 0;
		return 0;
	}
	if (strlen(value) >= sizeof(first) || !dash)
		return bad(err, "vm_uids", value, "FIRST-LAST or none");
	*dash = '\0';
	if (get_uint("vm_uids", first, 1000, UINT32_MAX - 2, &from, err) < 0 ||
	    get_uint("vm_uids", dash + 1, from, UINT32_MAX - 2, &to, err) < 0)
		return -1;
	c->first_vm_uid = (uint32_t)from;
	c->vm_uids = (uint32_t)(to - from + 1);
	return 0;
}

static int set_isolation(struct config *c, const char *value, struct hutch_error *err)
{
	int level = jail_level_parse(value);

	if (level < 0)
		return bad(err, "require_isolation", value, "none, seccomp, namespaces or uid");
	c->require_isolation = (enum jail_level)level;
	return 0;
}

static int set_cgroup(struct config *c, const char *key, const char *value, struct hutch_error *err)
{
	static const char *const words[] = {"auto", "none", NULL};
	const struct {
		const char *key;
		uint32_t *value, min, max;
	} numbers[] = {
		{"vm_cpu_percent", &c->cgroup.cpu_percent, 0, CGROUP_MAX_CPU_PERCENT},
		{"vm_cpu_weight", &c->cgroup.cpu_weight, 1, CGROUP_MAX_CPU_WEIGHT},
		{"vm_io_weight", &c->cgroup.io_weight, 1, CGROUP_MAX_IO_WEIGHT},
	};
	uint64_t n = 0;
	int i = 0;

	for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
		if (strcmp(key, numbers[k].key) != 0)
			continue;
		if (get_uint(key, value, numbers[k].min, numbers[k].max, &n, err) < 0)
			return -1;
		*numbers[k].value = (uint32_t)n;
		return 0;
	}
	if (strcmp(key, "vm_cgroup") != 0)
		return 1;
	if (get_word(key, value, words, &i, err) < 0)
		return -1;
	c->cgroup_asked = true;
	c->cgroup.on = i == 0;
	return 0;
}

int config_set(struct config *c, const char *key, const char *value, struct hutch_error *err)
{
	static const char *const accels[] = {"auto", "kvm", "tcg", NULL};
	static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
	static const char *const formats[] = {"text", "json", NULL};
	static const struct {
		const char *key;
		size_t offset;
	} paths[] = {
		{"socket", offsetof(struct config, socket)},
		{"state", offsetof(struct config, state)},
		{"qemu", offsetof(struct config, qemu)},
		{"vmm_library", offsetof(struct config, vmm_library)},
		{"test_vmm", offsetof(struct config, test_vmm)},
	};
	uint64_t n = 0;
	int i = 0, rc;

	for (size_t p = 0; p < sizeof(paths) / sizeof(paths[0]); p++)
		if (strcmp(key, paths[p].key) == 0)
			return set_path((char *)c + paths[p].offset, key, value, err);
	if (strcmp(key, "accel") == 0) {
		rc = get_word(key, value, accels, &i, err);
		c->accel = (enum vmm_accel)i;
	} else if (strcmp(key, "log_level") == 0) {
		rc = get_word(key, value, levels, &i, err);
		c->log_level = (enum log_level)i;
	} else if (strcmp(key, "log_format") == 0) {
		rc = get_word(key, value, formats, &i, err);
		c->log_json = i == 1;
	} else if (strcmp(key, "default_ttl_ms") == 0) {
		rc = get_uint(key, value, 1, HUTCH_MAX_TTL_MS, &c->default_ttl_ms, err);
	} else if (strcmp(key, "ready_fd") == 0) {
		rc = get_uint(key, value, 0, 1u << 20, &n, err);
		c->ready_fd = (int)n;
	} else if (strcmp(key, "admin_uids") == 0) {
		rc = set_admins(c, value, err);
	} else if (strcmp(key, "group") == 0) {
		rc = set_group(c, value, err);
	} else if (strcmp(key, "vm_uids") == 0) {
		rc = set_vm_uids(c, value, err);
	} else if (strcmp(key, "zygotes") == 0) {
		rc = get_uint(key, value, 0, ZYGOTES_MAX, &n, err);
		c->zygotes = (uint32_t)n;
	} else if (strcmp(key, "require_isolation") == 0) {
		rc = set_isolation(c, value, err);
	} else if ((rc = set_cgroup(c, key, value, err)) > 0 &&
		   (rc = limits_set(&c->limits, key, value, err)) > 0) {
		rc = hutch_error_set(err, HUTCH_E_INVALID, 0, "there is no setting '%s'", key);
	}
	return rc;
}

static char *trim(char *s)
{
	char *end = s + strlen(s);

	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*s))
		s++;
	return s;
}

static int parse_line(struct config *c, char *line, struct hutch_error *err)
{
	char *key = trim(line), *eq;

	if (!*key || *key == '#')
		return 0;
	eq = strchr(key, '=');
	if (!eq)
		return hutch_error_set(err, HUTCH_E_INVALID, 0, "'%s' is not 'key = value'", key);
	*eq = '\0';
	return config_set(c, trim(key), trim(eq + 1), err);
}

int config_parse_text(struct config *c, const char *text, const char *name, struct hutch_error *err)
{
	char *copy = strdup(text), *next = copy;
	unsigned number = 0;
	int rc = 0;

	while (next && rc == 0) {
		char *line = strsep(&next, "\n");

		number++;
		rc = parse_line(c, line, err);
	}
	free(copy);
	if (rc < 0)
		hutch_error_prefix(err, "%s: line %u", name, number);
	return rc;
}

static int parse_file(struct config *c, const char *path, struct hutch_error *err)
{
	size_t len = 0;
	char *text = file_read(AT_FDCWD, path, CONFIG_FILE_MAX, &len);
	int rc;

	if (!text)
		return hutch_error_set(err, HUTCH_E_IO, errno, "cannot read %s: %s", path,
				       strerror(errno));
	rc = strlen(text) == len ? config_parse_text(c, text, path, err)
				 : hutch_error_set(err, HUTCH_E_INVALID, 0, "%s holds a NUL", path);
	free(text);
	return rc;
}

void config_defaults(struct config *c)
{
	*c = (struct config){
		.accel = ACCEL_AUTO,
		.log_level = LOG_LEVEL_INFO,
		.default_ttl_ms = HUTCH_DEFAULT_TTL_MS,
		.ready_fd = -1,
		.first_vm_uid = CONFIG_FIRST_VM_UID,
		.vm_uids = CONFIG_VM_UIDS,
		.zygotes = ZYGOTES_DEFAULT,
		.cgroup = {.on = true, .cpu_weight = 100, .io_weight = 100},
	};
	limits_defaults(&c->limits);
}

static int set_default(char *out, struct hutch_error *err, const char *fmt, const char *a,
		       const char *b)
{
	if (out[0])
		return 0;
	if (snprintf(out, CONFIG_PATH, "%s%s", a, b) < (int)CONFIG_PATH)
		return 0;
	return hutch_error_set(err, HUTCH_E_INVALID, 0, "%s: the path is too long", fmt);
}

/* $XDG_RUNTIME_DIR/hutch/hutchd.sock; /run/hutch/hutchd.sock for root. */
static int default_socket(struct config *c, struct hutch_error *err)
{
	const char *run = getenv("XDG_RUNTIME_DIR");

	if (c->socket[0])
		return 0;
	if (geteuid() == 0)
		return set_default(c->socket, err, "socket", "/run/hutch/hutchd.sock", "");
	if (!run || run[0] != '/')
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "XDG_RUNTIME_DIR is not set: give --socket PATH");
	return set_default(c->socket, err, "XDG_RUNTIME_DIR", run, "/hutch/hutchd.sock");
}

/* $XDG_STATE_HOME/hutch, else ~/.local/state/hutch; /var/lib/hutch for root. */
static int default_state(struct config *c, struct hutch_error *err)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const struct passwd *pw;

	if (c->state[0])
		return 0;
	if (geteuid() == 0)
		return set_default(c->state, err, "state", "/var/lib/hutch", "");
	if (state && state[0] == '/')
		return set_default(c->state, err, "XDG_STATE_HOME", state, "/hutch");
	if (!home || home[0] != '/') {
		pw = getpwuid(geteuid());
		home = pw ? pw->pw_dir : NULL;
	}
	if (!home)
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "there is no home directory: give --state DIR");
	return set_default(c->state, err, "HOME", home, "/.local/state/hutch");
}

static int make_absolute(char *path, struct hutch_error *err)
{
	char cwd[CONFIG_PATH], joined[2 * CONFIG_PATH];

	if (!path[0] || path[0] == '/')
		return 0;
	if (!getcwd(cwd, sizeof(cwd)))
		return hutch_error_set(err, HUTCH_E_IO, errno, "getcwd: %s", strerror(errno));
	snprintf(joined, sizeof(joined), "%s/%s", cwd, path);
	if (strlen(joined) >= CONFIG_PATH)
		return hutch_error_set(err, HUTCH_E_INVALID, 0, "the path %s is too long", path);
	memcpy(path, joined, strlen(joined) + 1);
	return 0;
}

/* Beside the program: in the build tree, in an installed one, else where it was to be installed. */
static int default_library(struct config *c, struct hutch_error *err)
{
	static const char *const beside[] = {"/../lib/hutch-vmm.so", "/../lib/hutch/hutch-vmm.so"};
	char exe[CONFIG_PATH];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *slash;

	if (c->vmm_library[0])
		return 0;
	exe[n > 0 ? n : 0] = '\0';
	slash = strrchr(exe, '/');
	for (size_t i = 0; slash && i < sizeof(beside) / sizeof(beside[0]); i++) {
		*slash = '\0';
		c->vmm_library[0] = '\0';
		if (set_default(c->vmm_library, err, "vmm_library", exe, beside[i]) == 0 &&
		    access(c->vmm_library, R_OK) == 0)
			return 0;
	}
	c->vmm_library[0] = '\0';
	return set_default(c->vmm_library, err, "vmm_library", HUTCH_LIBDIR, "/hutch-vmm.so");
}

int config_finish(struct config *c, struct hutch_error *err)
{
	char *const paths[] = {c->socket, c->state, c->qemu, c->vmm_library, c->test_vmm};

	if (default_socket(c, err) < 0 || default_state(c, err) < 0 || default_library(c, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (make_absolute(paths[i], err) < 0)
			return -1;
	if (c->test_vmm[0] && !c->cgroup_asked)
		c->cgroup.on = false;
	c->template_dir[0] = '\0';
	return set_default(c->template_dir, err, "state", c->state, "/templates");
}

static void usage(void)
{
	puts("usage: hutchd [options]\n"
	     "The hutch broker: starts virtual machines and relays calls to them.\n"
	     "\n"
	     "  --socket PATH         listen here (HUTCH_SOCKET; $XDG_RUNTIME_DIR/hutch/hutchd.sock;\n"
	     "                        root: /run/hutch/hutchd.sock)\n"
	     "  --state DIR           templates and VMs ($XDG_STATE_HOME/hutch; root: /var/lib/hutch)\n"
	     "  --config FILE         lines of 'key = value'; see hutchd(8)\n"
	     "  --accel MODE          auto (default), kvm or tcg\n"
	     "  --require-isolation LEVEL\n"
	     "                        do not run where VMMs get less: none (default), seccomp,\n"
	     "                        namespaces or uid; hutch doctor says what there is\n"
	     "  --vm-uids FIRST-LAST  uids for VMMs, as root (1900000000-1900065535), or none\n"
	     "  --vm-cgroup MODE      auto (default): VMMs get a cgroup where the host has one; or none\n"
	     "  --zygotes N           templates, at most, of which a VM is kept to fork others off (8);\n"
	     "                        0: none, and no two VMMs have the same address layout\n"
	     "  --test-vmm PATH       a program that plays the VMM in tests: no isolation\n"
	     "  --log-level LEVEL     debug, info (default), warn or error\n"
	     "  --log-format FORMAT   text (default) or json\n"
	     "  --ready-fd N          write a newline to descriptor N when the socket serves\n"
	     "  --version, --help");
}

enum { OPT_CONFIG = 1, OPT_VERSION, OPT_HELP, OPT_KEY };

static const struct option options[] = {
	{"config", required_argument, NULL, OPT_CONFIG},
	{"version", no_argument, NULL, OPT_VERSION},
	{"help", no_argument, NULL, OPT_HELP},
	{"socket", required_argument, NULL, OPT_KEY},
	{"state", required_argument, NULL, OPT_KEY},
	{"accel", required_argument, NULL, OPT_KEY},
	{"test-vmm", required_argument, NULL, OPT_KEY},
	{"qemu", required_argument, NULL, OPT_KEY},
	{"vmm-library", required_argument, NULL, OPT_KEY},
	{"log-level", required_argument, NULL, OPT_KEY},
	{"log-format", required_argument, NULL, OPT_KEY},
	{"max-vms", required_argument, NULL, OPT_KEY},
	{"require-isolation", required_argument, NULL, OPT_KEY},
	{"vm-uids", required_argument, NULL, OPT_KEY},
	{"vm-cgroup", required_argument, NULL, OPT_KEY},
	{"zygotes", required_argument, NULL, OPT_KEY},
	{"ready-fd", required_argument, NULL, OPT_KEY},
	{NULL, 0, NULL, 0},
};

/* An option's key is its name with underscores. */
static int set_option(struct config *c, const char *name, const char *value,
		      struct hutch_error *err)
{
	char key[32];
	size_t n = 0;

	for (; name[n] && n < sizeof(key) - 1; n++)
		key[n] = name[n] == '-' ? '_' : name[n];
	key[n] = '\0';
	if (config_set(c, key, value, err) == 0)
		return 0;
	hutch_error_prefix(err, "--%s", name);
	return -1;
}

/* One walk over the arguments: for the file alone (values false), or for all but the file. */
static enum config_result walk(struct config *c, int argc, char **argv, bool values,
			       struct hutch_error *err)
{
	int opt, index = 0;

	optind = 0; /* getopt(3): start anew */
	while ((opt = getopt_long(argc, argv, "", options, &index)) != -1) {
		switch (opt) {
		case OPT_CONFIG:
			if (!values && parse_file(c, optarg, err) < 0)
				return CONFIG_BAD;
			break;
		case OPT_VERSION:
			puts("hutchd " HUTCH_VERSION);
			return CONFIG_EXIT;
		case OPT_HELP:
			usage();
			return CONFIG_EXIT;
		case OPT_KEY:
			if (values && set_option(c, options[index].name, optarg, err) < 0)
				return CONFIG_BAD;
			break;
		default:
			hutch_error_set(err, HUTCH_E_INVALID, 0, "try hutchd --help");
			return CONFIG_BAD;
		}
	}
	if (optind == argc)
		return CONFIG_RUN;
	hutch_error_set(err, HUTCH_E_INVALID, 0, "unexpected argument '%s'", argv[optind]);
	return CONFIG_BAD;
}

enum config_result config_load(struct config *c, int argc, char **argv, struct hutch_error *err)
{
	const char *env = getenv("HUTCH_SOCKET");
	enum config_result rc;

	config_defaults(c);
	rc = walk(c, argc, argv, false, err);
	if (rc == CONFIG_RUN && env && env[0] && config_set(c, "socket", env, err) < 0)
		rc = CONFIG_BAD;
	if (rc == CONFIG_RUN)
		rc = walk(c, argc, argv, true, err);
	if (rc == CONFIG_RUN && config_finish(c, err) < 0)
		rc = CONFIG_BAD;
	return rc;
}
