/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: file, options, precedence, and what is refused by name. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/hutchd/config.h"

static struct config c;
static struct hutch_error err;

static void setup(void)
{
	config_defaults(&c);
	hutch_error_clear(&err);
	unsetenv("HUTCH_SOCKET");
}

START_TEST(file)
{
	static const char text[] = "# a comment\n"
				   "\n"
				   "  socket = /tmp/a b.sock  \r\n"
				   "state=/tmp/state\n"
				   "accel = tcg\n"
				   "log_level = debug\n"
				   "log_format = json\n"
				   "max_vms = 12\n"
				   "admin_uids = 7, 8 9\n"
				   "default_ttl_ms = 5000";

	ck_assert_int_eq(config_parse_text(&c, text, "f", &err), 0);
	ck_assert_str_eq(c.socket, "/tmp/a b.sock");
	ck_assert_str_eq(c.state, "/tmp/state");
	ck_assert_int_eq(c.accel, ACCEL_TCG);
	ck_assert_int_eq(c.log_level, LOG_LEVEL_DEBUG);
	ck_assert(c.log_json);
	ck_assert_uint_eq(c.limits.max_vms, 12);
	ck_assert_uint_eq(c.admin_count, 3);
	ck_assert_uint_eq(c.admin_uids[2], 9);
	ck_assert_uint_eq(c.default_ttl_ms, 5000);
	ck_assert_int_eq(config_finish(&c, &err), 0);
	ck_assert_str_eq(c.template_dir, "/tmp/state/templates");
}
END_TEST

static const char *const bad[] = {
	"nonsense",
	"sockett = x",
	"max_vms = 0",
	"vm_cgroup = some",
	"vm_cpu_weight = 0",
	"vm_io_weight = 1001",
	"vm_cpu_percent = x",
	"max_vms = 1x",
	"max_vms = -1",
	"max_vms =",
	"accel = maybe",
	"log_level = loud",
	"admin_uids = bob",
	"socket =",
	"group = no-such-group",
	"default_ttl_ms = 99999999999999",
	"= 5",
};

START_TEST(bad_lines)
{
	char text[128];

	snprintf(text, sizeof(text), "# fine\n%s\n", bad[_i]);
	ck_assert_int_eq(config_parse_text(&c, text, "name", &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_msg(strstr(err.message, "name: line 2") != NULL, "%s", err.message);
}
END_TEST

static enum config_result load(char *a, char *b, char *d, char *e)
{
	char name[] = "hutchd";
	char *argv[] = {name, a, b, d, e, NULL};
	int argc = 1;

	while (argv[argc])
		argc++;
	return config_load(&c, argc, argv, &err);
}

START_TEST(later_places_win)
{
	char path[] = "/tmp/hutch-config-XXXXXX", config[] = "--config", opt[] = "--socket=/opt";
	static const char text[] = "socket = /file\nmax_vms = 5\n";
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, text, sizeof(text) - 1), (ssize_t)sizeof(text) - 1);
	close(fd);
	ck_assert_int_eq(load(config, path, NULL, NULL), CONFIG_RUN);
	ck_assert_str_eq(c.socket, "/file");
	setenv("HUTCH_SOCKET", "/env", 1);
	ck_assert_int_eq(load(config, path, NULL, NULL), CONFIG_RUN);
	ck_assert_str_eq(c.socket, "/env");
	ck_assert_int_eq(load(opt, config, path, NULL), CONFIG_RUN);
	ck_assert_str_eq(c.socket, "/opt");
	ck_assert_uint_eq(c.limits.max_vms, 5);
	unlink(path);
	ck_assert_int_eq(load(config, path, NULL, NULL), CONFIG_BAD);
	ck_assert_ptr_nonnull(strstr(err.message, path));
}
END_TEST

START_TEST(relative_paths)
{
	char a[] = "--socket=s.sock", b[] = "--state", d[] = "st", cwd[1024], want[2048];

	ck_assert_int_eq(load(a, b, d, NULL), CONFIG_RUN);
	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	snprintf(want, sizeof(want), "%s/s.sock", cwd);
	ck_assert_str_eq(c.socket, want);
	snprintf(want, sizeof(want), "%s/st/templates", cwd);
	ck_assert_str_eq(c.template_dir, want);
}
END_TEST

START_TEST(bad_options)
{
	char a[] = "--accel=maybe", b[] = "--no-such-option", d[] = "stray";

	ck_assert_int_eq(load(a, NULL, NULL, NULL), CONFIG_BAD);
	ck_assert_ptr_nonnull(strstr(err.message, "--accel"));
	ck_assert_int_eq(load(b, NULL, NULL, NULL), CONFIG_BAD);
	ck_assert_int_eq(load(d, NULL, NULL, NULL), CONFIG_BAD);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, file);
	tcase_add_loop_test(t, bad_lines, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(t, later_places_win);
	tcase_add_test(t, relative_paths);
	tcase_add_test(t, bad_options);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
