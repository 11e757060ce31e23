/* SPDX-License-Identifier: Apache-2.0 */
/* Templates on disk: what is right, what is wrong and named, what is left out of the list. */
#include "host/hutchd/template.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/vmm_rig.h"

#define GOOD                                                                                     \
	"{\"version\":1,\"name\":\"t\",\"kernel\":\"vmlinux\",\"initramfs\":\"initramfs.cpio\"," \
	"\"cmdline\":\"a=b\",\"kernel_version\":\"6.1\",\"memory_mib\":256,\"vcpus\":2,"         \
	"\"files\":{\"vmlinux\":{\"bytes\":6}},\"packages\":{}}"

#define FIELDS(kernel, rest) \
	"{\"version\":1,\"kernel\":" kernel ",\"initramfs\":\"initramfs.cpio\"," rest "}"
#define NUMBERS "\"memory_mib\":256,\"vcpus\":1"

static void make(const char *name, const char *json)
{
	char path[128];

	ck_assert_int_eq(mkdirat(rig_dir_fd, name, 0700), 0);
	snprintf(path, sizeof(path), "%s/vmlinux", name);
	rig_write(path, "kernel");
	snprintf(path, sizeof(path), "%s/initramfs.cpio", name);
	rig_write(path, "init");
	snprintf(path, sizeof(path), "%s/template.json", name);
	if (json)
		rig_write(path, json);
}

START_TEST(a_good_one)
{
	struct hutch_error err;
	struct template t;

	make("t", GOOD);
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), 0);
	ck_assert_str_eq(t.name, "t");
	ck_assert_str_eq(t.kernel, "vmlinux");
	ck_assert_str_eq(t.initramfs, "initramfs.cpio");
	ck_assert_str_eq(t.cmdline, "a=b");
	ck_assert_str_eq(t.kernel_version, "6.1");
	ck_assert_uint_eq(t.memory_mib, 256);
	ck_assert_uint_eq(t.vcpus, 2);
	ck_assert_uint_eq(t.bytes, 6 + 4 + strlen(GOOD));
	ck_assert_uint_gt(t.created_ms, 1600000000000);
}
END_TEST

START_TEST(one_with_a_writable_disk)
{
	struct hutch_error err;
	struct template t;

	make("t", FIELDS("\"vmlinux\"", "\"disk\":\"disk.ext4\",\"disk_mib\":64," NUMBERS));
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "disk.ext4: No such file"));
	rig_write("t/disk.ext4", "12345678");
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), 0);
	ck_assert_str_eq(t.disk, "disk.ext4");
	ck_assert_uint_eq(t.disk_mib, 64);
}
END_TEST

START_TEST(one_with_a_root_disk)
{
	struct hutch_error err;
	struct template t;

	make("t", FIELDS("\"vmlinux\"", "\"root\":\"root.erofs\"," NUMBERS));
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "root.erofs: No such file"));
	rig_write("t/root.erofs", "12345678");
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), 0);
	ck_assert_str_eq(t.root, "root.erofs");
}
END_TEST

START_TEST(one_that_is_not_there)
{
	struct hutch_error err;
	struct template t;

	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "nope", &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(err.message, "nope"));
	ck_assert_ptr_nonnull(strstr(err.message, rig_dir));
	ck_assert_ptr_nonnull(strstr(err.message, "hutch template build nope"));
}
END_TEST

static const char *const bad_names[] = {"", ".", "..", ".x", "-x", "a/b", "../t", "a b", "a\nb"};
#define BAD_NAMES ((int)(sizeof(bad_names) / sizeof(bad_names[0])))

START_TEST(names_that_are_none)
{
	struct hutch_error err;
	struct template t;

	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, bad_names[_i], &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_int_eq(template_remove(rig_dir_fd, bad_names[_i], &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_NOT_FOUND);
}
END_TEST

static const struct {
	const char *json, *said;
} wrong[] = {
	{"", "template.json is not a JSON object"},
	{"[]", "template.json is not a JSON object"},
	{"{\"version\":1,\"version\":1}", "template.json is not a JSON object"},
	{"{\"version\":2}", "version in template.json is out of range"},
	{"{}", "version in template.json is missing"},
	{FIELDS("5", NUMBERS), "kernel in template.json is no text"},
	{FIELDS("\"../../etc/passwd\"", NUMBERS), "kernel in template.json is not a file name"},
	{FIELDS("\"\"", NUMBERS), "kernel in template.json is not a file name"},
	{FIELDS("\"a\\u0000b\"", NUMBERS), "template.json"},
	{FIELDS("\"vmlinux\"", "\"disk\":\"a/b\",\"disk_mib\":64," NUMBERS),
	 "disk in template.json is not a file name"},
	{FIELDS("\"vmlinux\"", "\"disk\":\"d\"," NUMBERS), "disk_mib in template.json is missing"},
	{FIELDS("\"vmlinux\"", "\"disk\":\"d\",\"disk_mib\":15," NUMBERS),
	 "disk_mib in template.json is out of range"},
	{FIELDS("\"vmlinux\"", "\"root\":\"/dev/vda\"," NUMBERS),
	 "root in template.json is not a file name"},
	{FIELDS("\"missing\"", NUMBERS), "missing: No such file or directory"},
	{FIELDS("\"vmlinux\"", "\"memory_mib\":63,\"vcpus\":1"),
	 "memory_mib in template.json is out of range"},
	{FIELDS("\"vmlinux\"", "\"memory_mib\":65537,\"vcpus\":1"),
	 "memory_mib in template.json is out of range"},
	{FIELDS("\"vmlinux\"", "\"memory_mib\":\"256\",\"vcpus\":1"),
	 "memory_mib in template.json is no number"},
	{FIELDS("\"vmlinux\"", "\"memory_mib\":256,\"vcpus\":33"),
	 "vcpus in template.json is out of range"},
	{FIELDS("\"vmlinux\"", "\"memory_mib\":256,\"vcpus\":-1"),
	 "vcpus in template.json is out of range"},
	{FIELDS("\"vmlinux\"", "\"cmdline\":\"a\\nb\"," NUMBERS),
	 "cmdline in template.json holds a control character"},
};
#define WRONG ((int)(sizeof(wrong) / sizeof(wrong[0])))

START_TEST(the_field_that_is_wrong_is_named)
{
	struct hutch_error err;
	struct template t;

	make("t", wrong[_i].json);
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_msg(strstr(err.message, wrong[_i].said) != NULL, "%s", err.message);
	ck_assert_ptr_nonnull(strstr(err.message, "template t"));
}
END_TEST

START_TEST(texts_and_files_have_limits)
{
	char json[70000], name[HUTCH_MAX_TEMPLATE_NAME + 2];
	struct hutch_error err;
	struct template t;

	snprintf(json, sizeof(json), FIELDS("\"vmlinux\"", "\"cmdline\":\"%0512d\"," NUMBERS), 0);
	make("t", json);
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "cmdline in template.json is too long"));
	snprintf(json, sizeof(json), FIELDS("\"vmlinux\"", "\"x\":\"%065536d\"," NUMBERS), 0);
	make("u", json);
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "u", &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_IO);
	memset(name, 'n', sizeof(name));
	name[HUTCH_MAX_TEMPLATE_NAME] = '\0';
	make(name, FIELDS("\"vmlinux\"", NUMBERS));
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, name, &err), 0);
}
END_TEST

START_TEST(a_kernel_that_is_a_link_is_refused)
{
	struct hutch_error err;
	struct template t;

	make("t", GOOD);
	ck_assert_int_eq(unlinkat(rig_dir_fd, "t/vmlinux", 0), 0);
	ck_assert_int_eq(symlinkat("/etc/shadow", rig_dir_fd, "t/vmlinux"), 0);
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "t", &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "vmlinux is not a regular file"));
}
END_TEST

START_TEST(the_list_is_sorted_and_leaves_broken_ones_out)
{
	struct hutch_error err;
	struct template *list;
	char name[16];
	size_t count;

	make("zz", FIELDS("\"vmlinux\"", NUMBERS));
	make("broken", "{");
	make("no-json", NULL);
	make(".hidden", GOOD);
	rig_write("file", "x");
	for (int i = 9; i >= 0; i--) {
		snprintf(name, sizeof(name), "a%d", i);
		make(name, FIELDS("\"vmlinux\"", NUMBERS));
	}
	ck_assert_int_eq(template_list(rig_dir_fd, rig_dir, &list, &count, &err), 0);
	ck_assert_uint_eq(count, 11);
	ck_assert_str_eq(list[0].name, "a0");
	ck_assert_str_eq(list[9].name, "a9");
	ck_assert_str_eq(list[10].name, "zz");
	free(list);
}
END_TEST

START_TEST(removing)
{
	struct hutch_error err;
	struct template t;

	make("t", GOOD);
	make("u", GOOD);	  /* a copy: the directory's name counts */
	make(".removed-t", NULL); /* an earlier removal was interrupted */
	make(".removed-w", NULL);
	ck_assert_int_eq(template_remove(rig_dir_fd, "t", &err), 0);
	ck_assert_int_ne(faccessat(rig_dir_fd, "t", F_OK, 0), 0);
	ck_assert_int_ne(faccessat(rig_dir_fd, ".removed-t", F_OK, 0), 0);
	ck_assert_int_ne(faccessat(rig_dir_fd, ".removed-w", F_OK, 0), 0);
	ck_assert_int_eq(template_remove(rig_dir_fd, "t", &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_NOT_FOUND);
	ck_assert_int_eq(template_load(&t, rig_dir_fd, rig_dir, "u", &err), 0);
	ck_assert_str_eq(t.name, "u");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("template");
	TCase *tc = tcase_create("template");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, rig_make, rig_remove);
	tcase_add_test(tc, a_good_one);
	tcase_add_test(tc, one_with_a_root_disk);
	tcase_add_test(tc, one_with_a_writable_disk);
	tcase_add_test(tc, one_that_is_not_there);
	tcase_add_loop_test(tc, names_that_are_none, 0, BAD_NAMES);
	tcase_add_loop_test(tc, the_field_that_is_wrong_is_named, 0, WRONG);
	tcase_add_test(tc, texts_and_files_have_limits);
	tcase_add_test(tc, a_kernel_that_is_a_link_is_refused);
	tcase_add_test(tc, the_list_is_sorted_and_leaves_broken_ones_out);
	tcase_add_test(tc, removing);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
