/* SPDX-License-Identifier: Apache-2.0 */
/* What named snapshots take, and the limits on it. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/snapshot.h"
#include "tests/unit/vmm_rig.h"

#define MIB (1u << 20)

static struct broker b;
static struct config config;
static const uint32_t one = 1001, two = 1002, nobody = 5;

static void setup(void)
{
	rig_make();
	memset(&b, 0, sizeof(b));
	config_defaults(&config);
	b.config = &config;
	TAILQ_INIT(&b.vms);
	TAILQ_INIT(&b.clients);
	b.snapshots_fd = dir_make(rig_dir_fd, SNAPSHOTS_DIR);
	ck_assert_int_ge(b.snapshots_fd, 0);
}

static void teardown(void)
{
	fd_close(&b.snapshots_fd);
	rig_remove();
}

/* A directory of a snapshot, open. */
static int make(const char *owner, const char *name)
{
	int dir = dir_make(b.snapshots_fd, owner), fd = dir_make(dir, name);

	ck_assert_int_ge(fd, 0);
	close(dir);
	return fd;
}

static void fill(int dir, const char *name, unsigned mib)
{
	static char data[MIB];
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	memset(data, 1, sizeof(data));
	for (unsigned i = 0; i < mib; i++)
		ck_assert_int_eq(write_all(fd, data, sizeof(data)), 0);
	ck_assert_int_eq(fsync(fd), 0); /* its blocks are known */
	close(fd);
}

static uint64_t taken(const uint32_t *owner, int more)
{
	uint64_t bytes;

	ck_assert_int_eq(snapshot_bytes(&b, owner, more, &bytes), 0);
	return bytes / MIB; /* a file system may add a block or two to each */
}

START_TEST(files_count_once)
{
	int first = make("1001", "a"), second = make("1001", "b"), other = make("1002", "a");
	int hidden = make("1001", ".removed-c");

	ck_assert_uint_eq(taken(NULL, -1), 0);
	fill(first, "memory", 4);
	ck_assert_int_eq(linkat(first, "memory", second, "memory", 0), 0);
	ck_assert_int_eq(linkat(first, "memory", other, "memory", 0), 0);
	ck_assert_int_eq(linkat(first, "memory", rig_dir_fd, "a template's", 0), 0);
	fill(second, "layer-0", 2);
	fill(other, "layer-0", 1);
	fill(hidden, "memory", 1);
	ck_assert_int_eq(symlinkat("/", first, "link"), 0);
	ck_assert_uint_eq(taken(&one, -1), 6);
	ck_assert_uint_eq(taken(&two, -1), 5);
	ck_assert_uint_eq(taken(NULL, -1), 7);
	/* what would be added */
	ck_assert_uint_eq(taken(&two, second), 7);
	ck_assert_uint_eq(taken(&one, first), 6);
	ck_assert_uint_eq(taken(&nobody, -1), 0);
	close(first);
	close(second);
	close(other);
	close(hidden);
}
END_TEST

START_TEST(limits)
{
	struct hutch_error err;
	int dir = make("1001", "a"), next = dir_make(rig_dir_fd, "capture");

	fill(dir, "memory", 3);
	fill(next, "memory", 2);
	hutch_error_clear(&err);
	ck_assert_int_eq(limits_check_snapshot(&b, one, next, &err), 0);
	config.limits.uid_snapshot_mib = 4;
	ck_assert_int_eq(limits_check_snapshot(&b, two, next, &err), 0);
	ck_assert_int_eq(limits_check_snapshot(&b, 0, next, &err), 0);
	ck_assert_int_eq(limits_check_snapshot(&b, one, next, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_QUOTA);
	ck_assert_msg(strstr(err.message, "uid_snapshot_mib is 4; delete some") != NULL, "%s",
		      err.message);
	/* full: refused before anything is done for it */
	config.limits.uid_snapshot_mib = 3;
	ck_assert_int_eq(limits_check_snapshot(&b, one, -1, &err), -1);
	config.limits.uid_snapshot_mib = 0;
	config.limits.max_snapshot_mib = 4;
	ck_assert_int_eq(limits_check_snapshot(&b, 0, next, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_BUSY);
	close(dir);
	close(next);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("snapshot_size");
	TCase *t = tcase_create("store");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, files_count_once);
	tcase_add_test(t, limits);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
