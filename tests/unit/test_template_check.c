/* SPDX-License-Identifier: Apache-2.0 */
/* Are a template's files what its build recorded? */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/template_check.h"
#include "tests/unit/vmm_rig.h"

#define BOOT "00000000-0000-4000-8000-000000000001"
/* SHA-256 of "kernel" and of "init" */
#define KERNEL "6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c"
#define INIT   "bb54068aea85faa7e487530083366be9962390af822e4c71ef1aca7033c83e66"
#define JSON(files)                                                               \
	"{\"version\":1,\"kernel\":\"k\",\"initramfs\":\"i\",\"memory_mib\":128," \
	"\"vcpus\":1" files "}"
#define FILES(k, i) ",\"files\":{\"k\":{\"sha256\":\"" k "\"},\"i\":{\"sha256\":\"" i "\"}}"

static struct loop loop;
static struct verified *v;
static struct worker *w;
static struct template tpl;
static struct {
	int calls;
	struct hutch_error err;
} told;

static void make(void)
{
	rig_make();
	ck_assert_int_eq(mkdirat(rig_dir_fd, "t", 0700), 0);
	rig_write("t/k", "kernel");
	rig_write("t/i", "init");
	ck_assert_int_eq(loop_init(&loop), 0);
	v = verified_load(rig_dir_fd, BOOT);
	w = worker_new(&loop);
	told.calls = 0;
}

static void drop(void)
{
	worker_free(w);
	verified_free(v);
	loop_free(&loop);
	rig_remove();
}

static void load(const char *json)
{
	struct hutch_error err;

	rig_write("t/template.json", json);
	ck_assert_msg(template_load(&tpl, rig_dir_fd, rig_dir, "t", &err) == 0, "%s", err.message);
}

static bool known(void)
{
	return template_check_is_known(v, &tpl, rig_dir_fd, TEMPLATE_CHECK_ALL);
}

static void on_done(void *arg, const struct hutch_error *err)
{
	(void)arg;
	told.calls++;
	hutch_error_clear(&told.err);
	if (err)
		told.err = *err;
}

static void check_now(unsigned files)
{
	struct hutch_error err;
	int before = told.calls;

	ck_assert_ptr_nonnull(
		template_check_start(v, w, &tpl, rig_dir_fd, files, on_done, NULL, &err));
	while (told.calls == before)
		event_base_loop(loop.base, EVLOOP_ONCE);
}

START_TEST(checked_once_and_remembered)
{
	struct verified *next;

	load(JSON(FILES(KERNEL, INIT)));
	ck_assert(!known());
	/* No root disk: nothing to check of it. */
	ck_assert(template_check_is_known(v, &tpl, rig_dir_fd, TEMPLATE_CHECK_ROOT));
	check_now(TEMPLATE_CHECK_ALL);
	ck_assert_msg(!told.err.kind, "%s", told.err.message);
	ck_assert(known());
	next = verified_load(rig_dir_fd, BOOT);
	ck_assert(template_check_is_known(next, &tpl, rig_dir_fd, TEMPLATE_CHECK_ALL));
	verified_free(next);
	/* Written anew: the same bytes, to be looked at again. */
	rig_write("t/i", "init");
	ck_assert(!known());
	check_now(TEMPLATE_CHECK_ALL);
	ck_assert(!told.err.kind && known());
}
END_TEST

START_TEST(the_damaged_file_is_named)
{
	load(JSON(FILES(KERNEL, INIT)));
	rig_write("t/i", "iNit");
	check_now(TEMPLATE_CHECK_ALL);
	ck_assert_int_eq(told.err.kind, HUTCH_E_STATE);
	ck_assert_str_eq(told.err.path, "i");
	ck_assert_str_eq(told.err.stage, "digest");
	ck_assert_ptr_nonnull(strstr(told.err.message, "template t: i: it does not have"));
	ck_assert(!known());
	ck_assert_int_eq(unlinkat(rig_dir_fd, "t/i", 0), 0);
	check_now(TEMPLATE_CHECK_ALL);
	ck_assert_str_eq(told.err.path, "i");
}
END_TEST

START_TEST(nothing_recorded_nothing_checked)
{
	static const char *const texts[] = {
		JSON(""), JSON(",\"files\":{}"), JSON(",\"files\":{\"k\":{\"bytes\":1}}"),
		JSON(",\"files\":[]"), JSON(",\"files\":{\"k\":7,\"other\":{\"sha256\":\"x\"}}")};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		load(texts[i]);
		ck_assert(known());
	}
}
END_TEST

START_TEST(a_digest_that_is_none)
{
	static const char *const texts[] = {JSON(FILES("12", INIT)), JSON(FILES("", INIT)),
					    JSON(",\"files\":{\"k\":{\"sha256\":1}}"),
					    JSON(FILES("E" KERNEL, INIT))};
	struct hutch_error err;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		rig_write("t/template.json", texts[i]);
		ck_assert_int_eq(template_load(&tpl, rig_dir_fd, rig_dir, "t", &err), -1);
		ck_assert_ptr_nonnull(strstr(err.message, "sha256 of a file"));
	}
}
END_TEST

START_TEST(canceled)
{
	struct template_check *c;
	struct hutch_error err;

	load(JSON(FILES(KERNEL, INIT)));
	c = template_check_start(v, w, &tpl, rig_dir_fd, TEMPLATE_CHECK_ALL, on_done, NULL, &err);
	template_check_cancel(c);
	template_check_cancel(NULL);
	check_now(TEMPLATE_CHECK_ALL);
	ck_assert_int_eq(told.calls, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("template_check");
	TCase *t = tcase_create("template_check");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, make, drop);
	tcase_add_test(t, checked_once_and_remembered);
	tcase_add_test(t, the_damaged_file_is_named);
	tcase_add_test(t, nothing_recorded_nothing_checked);
	tcase_add_test(t, a_digest_that_is_none);
	tcase_add_test(t, canceled);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
