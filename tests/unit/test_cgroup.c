/* SPDX-License-Identifier: Apache-2.0 */
/* Ceilings of VMMs against directory trees that look like cgroups: where they are made, what is written, what is removed. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/cgroup_priv.h"
#include "host/hutchd/fdutil.h"
#include "tests/unit/vmm_rig.h"

#define ID   "11111111-2222-4333-8444-555555555555"
#define NAME "hutch-" ID
#define CPU  (1u << CGROUP_CPU)
#define MEM  (1u << CGROUP_MEMORY)
#define PIDS (1u << CGROUP_PIDS)
#define IO   (1u << CGROUP_IO)

static struct cgroups c;
static char own[300], mounts[300];
static struct cgroup_places places = {.own = own, .mounts = mounts};
static const struct cgroup_size size = {.id = ID, .memory_mib = 128, .vcpus = 2, .tcg = true};

/* A file of the tree, and the directories that it lies in. */
static void put(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *path, const char *fmt, ...)
{
	char at[512], text[2048];
	va_list ap;
	int fd;

	snprintf(at, sizeof(at), "%s", path);
	for (char *s = strchr(at, '/'); s; s = strchr(s + 1, '/')) {
		*s = '\0';
		ck_assert(mkdirat(rig_dir_fd, at, 0700) == 0 || errno == EEXIST);
		*s = '/';
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fd = openat(rig_dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	ck_assert_int_eq(write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static void expect(const char *path, const char *text)
{
	size_t len;
	char *is = file_read(rig_dir_fd, path, 4096, &len);

	ck_assert_msg(is != NULL, "%s: %s", path, strerror(errno));
	ck_assert_str_eq(is, text);
	free(is);
}

static bool there(const char *path)
{
	return faccessat(rig_dir_fd, path, F_OK, 0) == 0;
}

static void make(void)
{
	rig_make();
	snprintf(own, sizeof(own), "%s/own", rig_dir);
	snprintf(mounts, sizeof(mounts), "%s/mounts", rig_dir);
	memset(&c, 0, sizeof(c));
	c.wish = (struct cgroup_wish){.cpu_weight = 100, .cpu_percent = 50, .io_weight = 70};
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		c.bases[i].fd = -1;
}

static void drop(void)
{
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		fd_close(&c.bases[i].fd);
	rig_remove();
}

/* ---- v1 ---- */

static void put_v1(void)
{
	put("own", "9:name=systemd:/\n8:pids:/user/x\n7:blkio:/gone\n4:memory:/svc\n"
		   "2:cpuacct:/\n1:cpu,cpuset:/svc/a\n0::/\nnonsense\n3:\n");
	put("mounts",
	    "1 2 0:1 / / rw - ext4 /dev/vda rw\n"
	    "30 2 0:30 / %1$s/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuset\n"
	    "31 2 0:31 /svc %1$s/memory rw - cgroup cgroup rw,memory\n"
	    "32 2 0:32 / %1$s/elsewhere\\040x rw - cgroup cgroup rw,pids\n"
	    "33 2 0:33 / %1$s/pids rw - cgroup cgroup rw,pids\n"
	    "34 2 0:34 / %1$s/blkio rw - cgroup cgroup rw,blkio\n"
	    "35 2 0:35 / %1$s\nbroken - cgroup\n",
	    rig_dir);
	put("cpu/svc/a/" NAME "/cpu.shares", "1024");
	put("cpu/svc/a/" NAME "/cpu.cfs_quota_us", "-1");
	put("cpu/svc/a/" NAME "/tasks", "%s", "");
	put("memory/" NAME "/memory.limit_in_bytes", "%s", "");
	put("memory/" NAME "/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
	put("memory/" NAME "/tasks", "%s", "");
	put("pids/user/x/" NAME "/pids.max", "%s", "");
	put("pids/user/x/" NAME "/tasks", "%s", "");
	put("blkio/tasks", "%s", "");
}

START_TEST(v1_limits_are_written_before_a_child_enters)
{
	struct cgroup_vm v;

	put_v1();
	ck_assert_int_eq(cgroup_find_v1(&c, &places), 0);
	ck_assert_uint_eq(c.report.kind, CGROUP_V1);
	ck_assert_uint_eq(c.report.has, CPU | MEM | PIDS); /* our blkio cgroup is not shown */
	ck_assert_int_eq(cgroup_vm_make(&c, &size, rig_dir_fd, &v), 0);
	ck_assert_int_eq(v.into, -1);
	expect("cpu/svc/a/" NAME "/cpu.shares", "2050");
	expect("cpu/svc/a/" NAME "/cpu.cfs_quota_us", "100000");
	expect("memory/" NAME "/memory.limit_in_bytes", "1744830464"); /* 128 + 512 + 1024 MiB */
	expect("pids/user/x/" NAME "/pids.max", "512");
	expect("cpu/svc/a/" NAME "/tasks", "");
	ck_assert_int_eq(cgroup_vm_enter(&v), 0);
	expect("cpu/svc/a/" NAME "/tasks", "0");
	expect("memory/" NAME "/tasks", "0");
	expect("pids/user/x/" NAME "/tasks", "0");
	cgroup_vm_close(&v);
}
END_TEST

START_TEST(v1_what_cannot_be_made_leaves_nothing)
{
	struct cgroup_vm v;

	put_v1();
	ck_assert_int_eq(cgroup_find_v1(&c, &places), 0);
	/* A new directory has no control files here: the first write fails. */
	const struct cgroup_size other = {.id = "other", .memory_mib = 64, .vcpus = 1};

	ck_assert_int_eq(cgroup_vm_make(&c, &other, rig_dir_fd, &v), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert(!there("cpu/svc/a/hutch-other") && !there("memory/hutch-other"));
	ck_assert_int_eq(v.tasks[CGROUP_CPU], -1);
}
END_TEST

/* ---- v2 ---- */

static void put_v2(const char *path, const char *controllers, const char *on, const char *procs)
{
	char at[200];

	put("own", "1:name=x:/no\n0::%s\n", path);
	put("mounts", "40 2 0:40 / %s/u rw,nosuid - cgroup2 cgroup2 rw\n", rig_dir);
	snprintf(at, sizeof(at), "u%s/cgroup.procs", path);
	put(at, "%s", procs);
	put("u/unit/cgroup.controllers", "%s", controllers);
	put("u/unit/cgroup.subtree_control", "%s", on);
	put("u/unit/cgroup.type", "domain\n");
}

START_TEST(v2_in_the_leaf_that_it_was_started_in)
{
	struct cgroup_vm v;
	char want[400];

	put_v2("/unit/hutchd", "cpu memory pids\n", "cpu memory pids\n", "1\n2\n3\n");
	put("u/unit/" NAME "/cpu.weight", "%s", "");
	put("u/unit/" NAME "/cpu.max", "%s", "");
	put("u/unit/" NAME "/memory.max", "%s", "");
	put("u/unit/" NAME "/pids.max", "%s", "");
	ck_assert_int_eq(cgroup_find_v2(&c, &places), 0);
	ck_assert_uint_eq(c.report.kind, CGROUP_V2);
	ck_assert_uint_eq(c.report.has, CPU | MEM | PIDS);
	ck_assert_int_eq(cgroup_vm_make(&c, &size, rig_dir_fd, &v), 0);
	ck_assert_int_ge(v.into, 0);
	ck_assert_int_eq(cgroup_vm_enter(&v), 0); /* nothing is left to do */
	cgroup_vm_close(&v);
	expect("u/unit/" NAME "/cpu.weight", "200");
	expect("u/unit/" NAME "/cpu.max", "100000 100000");
	expect("u/unit/" NAME "/memory.max", "1744830464");
	expect("u/unit/" NAME "/pids.max", "512");
	snprintf(want, sizeof(want), "%s/u/unit/" NAME "\n", rig_dir);
	expect(CGROUP_FILE, want);
}
END_TEST

START_TEST(v2_moves_to_a_leaf_only_when_alone)
{
	char procs[64];

	put_v2("/unit", "cpu memory pids io\n", "", "1\n2\n3\n");
	put("u/unit/hutchd/cgroup.procs", "%s", "");
	ck_assert_int_eq(cgroup_find_v2(&c, &places), -1);
	ck_assert_msg(strstr(c.report.reason, "/u/unit: Device or resource busy") != NULL, "%s",
		      c.report.reason);
	expect("u/unit/hutchd/cgroup.procs", "");
	ck_assert_int_eq(c.bases[0].fd, -1);

	snprintf(procs, sizeof(procs), "%ld\n%ld\n", (long)getpid(), (long)getppid());
	put_v2("/unit", "cpu memory pids io\n", "", procs);
	/* A plain file hands nothing on, whatever is written to it. */
	ck_assert_int_eq(cgroup_find_v2(&c, &places), -1);
	ck_assert(there("u/unit/hutchd/cgroup.procs"));
	put_v2("/unit", "hugetlb\n", "", procs);
	c.report.reason[0] = '\0';
	ck_assert_int_eq(cgroup_find_v2(&c, &places), -1);
	ck_assert_ptr_nonnull(strstr(c.report.reason, "not supported"));
}
END_TEST

START_TEST(v2_that_is_not_shown)
{
	static const char *const paths[] = {"/../other", "/unit/gone", "/else"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		put("own", "0::%s\n", paths[i]);
		put("mounts", "40 2 0:40 /unit %s/u rw - cgroup2 cgroup2 rw\n", rig_dir);
		put("u/cgroup.controllers", "cpu memory pids\n");
		ck_assert_int_eq(cgroup_find_v2(&c, &places), -1);
		ck_assert_str_eq(c.report.reason, "");
	}
	put("own", "%s", "");
	ck_assert_int_eq(cgroup_find_v2(&c, &places), -1);
	ck_assert_int_eq(cgroup_find_v1(&c, &places), -1);
}
END_TEST

/* ---- the end ---- */

static int remove_named(const char *id, bool *oom)
{
	int file = cgroup_vm_file(rig_dir_fd), rc;

	ck_assert_int_ge(file, 0);
	rc = cgroup_vm_remove(file, id, oom);
	close(file);
	return rc;
}

START_TEST(removal_takes_what_is_named_and_empty)
{
	bool oom;

	put(CGROUP_FILE, "%1$s/a/" NAME "\n%1$s/b/" NAME "\n%1$s/gone/" NAME "\n", rig_dir);
	put("a/x", "%s", "");
	put("b/" NAME "/memory.events", "low 0\noom 1\noom_kill 1\n");
	ck_assert_int_eq(mkdirat(rig_dir_fd, "a/" NAME, 0700), 0);
	ck_assert_int_eq(remove_named(ID, &oom), -1);
	ck_assert_int_eq(errno, ENOTEMPTY);
	ck_assert(oom && !there("a/" NAME) && there("b/" NAME));
	ck_assert_int_eq(unlinkat(rig_dir_fd, "b/" NAME "/memory.events", 0), 0);
	ck_assert_int_eq(remove_named(ID, &oom), 0);
	ck_assert(!oom && !there("b/" NAME));
}
END_TEST

START_TEST(removal_takes_nothing_of_others)
{
	static const char *const lines[] = {"/a/hutch-other", "/a", "a/" NAME, "/a/" NAME "/..",
					    "/"};
	bool oom;

	put("a/hutch-other/x", "%s", "");
	ck_assert_int_eq(unlinkat(rig_dir_fd, "a/hutch-other/x", 0), 0);
	ck_assert_int_eq(mkdirat(rig_dir_fd, "a/" NAME, 0700), 0);
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char text[400];

		snprintf(text, sizeof(text), "%s%s\n", lines[i][0] == '/' ? rig_dir : "", lines[i]);
		put(CGROUP_FILE, "%s", text);
		ck_assert_int_eq(remove_named(ID, &oom), -1);
		ck_assert_int_eq(errno, EINVAL);
	}
	ck_assert(there("a/hutch-other") && there("a/" NAME));
}
END_TEST

START_TEST(off_is_off)
{
	const struct cgroup_wish off = {.on = false};
	struct cgroups *none = cgroups_new(&off, &places);
	struct cgroup_vm v;

	ck_assert_uint_eq(cgroups_report(none)->kind, CGROUP_NONE);
	ck_assert_int_eq(cgroup_vm_make(none, &size, rig_dir_fd, &v), 0);
	ck_assert(v.into == -1 && cgroup_vm_enter(&v) == 0);
	cgroup_vm_close(&v);
	ck_assert_int_eq(cgroup_vm_file(rig_dir_fd), -1);
	cgroups_free(none);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cgroup");
	TCase *t = tcase_create("trees");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, make, drop);
	tcase_add_test(t, v1_limits_are_written_before_a_child_enters);
	tcase_add_test(t, v1_what_cannot_be_made_leaves_nothing);
	tcase_add_test(t, v2_in_the_leaf_that_it_was_started_in);
	tcase_add_test(t, v2_moves_to_a_leaf_only_when_alone);
	tcase_add_test(t, v2_that_is_not_shown);
	tcase_add_test(t, removal_takes_what_is_named_and_empty);
	tcase_add_test(t, removal_takes_nothing_of_others);
	tcase_add_test(t, off_is_off);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
