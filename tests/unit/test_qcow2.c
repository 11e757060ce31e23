/* SPDX-License-Identifier: Apache-2.0 */
/* Overlays: made, checked, merged; and by qemu-img's own reading, where there is one. */
#include "host/hutchd/qcow2.h"

#include <check.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE  (1200ull << 20) /* three tables of L2, the last one in part */
#define C     QCOW2_CLUSTER
#define L1_AT (2ull * C)

static int new_file(void)
{
	int fd = memfd_create("qcow2", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int empty(void)
{
	int fd = new_file();

	ck_assert_int_eq(qcow2_create(fd, SIZE), 0);
	return fd;
}

static uint64_t length_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

static void set64(int fd, uint64_t at, uint64_t value)
{
	value = htobe64(value);
	ck_assert_int_eq(pwrite(fd, &value, 8, (off_t)at), 8);
}

static uint64_t get64(int fd, uint64_t at)
{
	uint64_t value;

	ck_assert_int_eq(pread(fd, &value, 8, (off_t)at), 8);
	return be64toh(value);
}

/* Where the entry of a guest's cluster is; made if it is missing. */
static uint64_t entry_at(int fd, uint64_t cluster)
{
	uint64_t l1 = L1_AT + cluster / 8192 * 8, l2 = get64(fd, l1) & ~(1ull << 63);

	if (!l2) {
		l2 = length_of(fd);
		ck_assert_int_eq(ftruncate(fd, (off_t)(l2 + C)), 0);
		set64(fd, l1, l2 | 1ull << 63);
	}
	return l2 + cluster % 8192 * 8;
}

/* As QEMU would write it; refcounts are nobody's concern here. mark 0: a cluster of zeros without data. */
static void put(int fd, uint64_t cluster, char mark)
{
	uint64_t entry = entry_at(fd, cluster), at = length_of(fd);
	char data[C];

	if (!mark) {
		set64(fd, entry, 1);
		return;
	}
	memset(data, mark, sizeof(data));
	ck_assert_int_eq(pwrite(fd, data, C, (off_t)at), C);
	set64(fd, entry, at | 1ull << 63);
}

/* The mark of a cluster; 0: zeros; -1: it is not in there. */
static int mark_of(int fd, uint64_t cluster)
{
	uint64_t l2 = get64(fd, L1_AT + cluster / 8192 * 8) & ~(1ull << 63), entry;
	char first, last;

	if (!l2)
		return -1;
	entry = get64(fd, l2 + cluster % 8192 * 8);
	if (entry & 1)
		return 0;
	entry &= ~(1ull << 63);
	if (!entry)
		return -1;
	ck_assert_int_eq(pread(fd, &first, 1, (off_t)entry), 1);
	ck_assert_int_eq(pread(fd, &last, 1, (off_t)(entry + C - 1)), 1);
	ck_assert_int_eq(first, last);
	return first;
}

/* What qemu-img says of it; where there is none, what is wanted. */
static void check_by_qemu(int fd, const char *command, const char *wanted)
{
	char line[200], text[4096] = "";
	size_t n;
	FILE *p;

	if (system("qemu-img --version >/dev/null 2>&1") != 0)
		return;
	snprintf(line, sizeof(line), "qemu-img %s /proc/%ld/fd/%d 2>&1", command, (long)getpid(),
		 fd);
	p = popen(line, "r");
	ck_assert_ptr_nonnull(p);
	n = fread(text, 1, sizeof(text) - 1, p);
	text[n] = '\0';
	ck_assert_msg(pclose(p) == 0 && strstr(text, wanted), "%s: %s", line, text);
}

START_TEST(an_empty_overlay)
{
	static const uint64_t sizes[] = {512, 16ull << 20, SIZE, QCOW2_MAX_SIZE};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int fd = new_file();
		struct stat st;

		ck_assert_int_eq(qcow2_create(fd, sizes[i]), 0);
		ck_assert_ptr_null(qcow2_check(fd, sizes[i]));
		ck_assert_uint_eq(length_of(fd), qcow2_empty_length(sizes[i]));
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_int_le(st.st_blocks * 512, 4 * 4096);
		check_by_qemu(fd, "check -f qcow2", "No errors");
		close(fd);
	}
}
END_TEST

START_TEST(sizes_that_are_none)
{
	static const uint64_t sizes[] = {0, 511, QCOW2_MAX_SIZE + 512};
	int fd = new_file();

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_int_eq(qcow2_create(fd, sizes[i]), -1);
		ck_assert_int_eq(errno, EINVAL);
	}
	close(fd);
}
END_TEST

/* Byte of the header, its new value, and a word of what is then said. */
static const struct forgery {
	unsigned at;
	uint8_t value;
	const char *why;
} forgeries[] = {
	{0, 0, "no qcow2"},	  {7, 2, "no qcow2"},	    {15, 112, "backing file"},
	{19, 11, "backing file"}, {23, 12, "another size"}, {27, 1, "another size"},
	{35, 1, "encrypted"},	  {39, 9, "another size"},  {47, 1, "table"},
	{40, 1, "table"},	  {63, 1, "snapshots"},	    {79, 1, "features"},
	{79, 4, "features"},	  {72, 1, "features"},	    {95, 1, "bitmaps"},
	{99, 3, "another size"},
};

/* A VMM could have another open what it names: a file of the host, its own data file. */
START_TEST(a_forged_header)
{
	const struct forgery *f = &forgeries[_i];
	int fd = empty(), to = new_file();
	const char *why;

	ck_assert_int_eq(pwrite(fd, &f->value, 1, f->at), 1);
	why = qcow2_check(fd, SIZE);
	ck_assert_msg(why && strstr(why, f->why), "%u: %s", f->at, why);
	ck_assert_int_eq(qcow2_merge(&fd, 1, SIZE, to, NULL, &why), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_msg(why && strstr(why, f->why), "%u: %s", f->at, why);
	close(fd);
	close(to);
}
END_TEST

START_TEST(merged)
{
	int layers[3] = {empty(), empty(), empty()}, to = new_file();
	const char *why = "";
	struct stat st;

	put(layers[0], 0, 'a');
	put(layers[0], 1, 'a');
	put(layers[0], 8192, 'a'); /* the second table */
	put(layers[1], 1, 'b');
	put(layers[1], 2, 'b');
	put(layers[1], 5, 'b');
	put(layers[2], 2, 0);
	put(layers[2], SIZE / C - 1, 'c');
	ck_assert_int_eq(qcow2_merge(layers, 3, SIZE, to, NULL, &why), 0);
	ck_assert_ptr_null(why);
	ck_assert_ptr_null(qcow2_check(to, SIZE));
	ck_assert_int_eq(mark_of(to, 0), 'a');
	ck_assert_int_eq(mark_of(to, 1), 'b');
	ck_assert_int_eq(mark_of(to, 2), 0);
	ck_assert_int_eq(mark_of(to, 3), -1);
	ck_assert_int_eq(mark_of(to, 5), 'b');
	ck_assert_int_eq(mark_of(to, 8192), 'a');
	ck_assert_int_eq(mark_of(to, 8193), -1);
	ck_assert_int_eq(mark_of(to, SIZE / C - 1), 'c');
	ck_assert_int_eq(fstat(to, &st), 0);
	ck_assert_int_le(st.st_blocks * 512, 12 * C);
	check_by_qemu(to, "check -f qcow2", "No errors");
	check_by_qemu(to, "map -f qcow2 --output=json", "\"present\": true");
	/* What is merged can be merged on. */
	layers[0] = to;
	to = new_file();
	put(layers[1], 5, 'd');
	ck_assert_int_eq(qcow2_merge(layers, 2, SIZE, to, NULL, &why), 0);
	ck_assert_int_eq(mark_of(to, 2), 'b');
	ck_assert_int_eq(mark_of(to, 5), 'd');
	ck_assert_int_eq(mark_of(to, SIZE / C - 1), 'c');
}
END_TEST

/* A disk grows, and what lies below its top was made when it was smaller. */
START_TEST(smaller_ones_below)
{
	const uint64_t small = 600ull << 20; /* two tables of L2 */
	int layers[2] = {new_file(), empty()}, to = new_file();
	const char *why = "";

	ck_assert_int_eq(qcow2_create(layers[0], small), 0);
	ck_assert_ptr_nonnull(qcow2_check(layers[0], SIZE));
	ck_assert_ptr_null(qcow2_check_below(layers[0], SIZE));
	ck_assert_ptr_null(qcow2_check_below(layers[1], SIZE));
	ck_assert_ptr_nonnull(qcow2_check_below(layers[1], small));
	put(layers[0], 3, 'a');
	put(layers[0], small / C - 1, 'a');
	put(layers[1], SIZE / C - 1, 'b');
	ck_assert_int_eq(qcow2_merge(layers, 2, SIZE, to, NULL, &why), 0);
	ck_assert_ptr_null(qcow2_check(to, SIZE));
	ck_assert_int_eq(mark_of(to, 3), 'a');
	ck_assert_int_eq(mark_of(to, small / C - 1), 'a');
	ck_assert_int_eq(mark_of(to, small / C), -1);
	ck_assert_int_eq(mark_of(to, SIZE / C - 1), 'b');
	check_by_qemu(to, "check -f qcow2", "No errors");
	/* Its size is whatever a VMM wrote there, and its table still not longer than it says. */
	set64(layers[0], 24, 512);
	ck_assert_ptr_nonnull(qcow2_check_below(layers[0], SIZE));
	set64(layers[0], 24, 0);
	ck_assert_ptr_nonnull(qcow2_check_below(layers[0], SIZE));
}
END_TEST

START_TEST(nothing_merged)
{
	int layer = empty(), to = new_file();
	const char *why;

	ck_assert_int_eq(qcow2_merge(&layer, 1, SIZE, to, NULL, &why), 0);
	ck_assert_uint_eq(length_of(to), qcow2_empty_length(SIZE));
	close(layer);
	close(to);
}
END_TEST

/* An entry of L1 or L2 that no VMM in good health writes. */
START_TEST(broken_tables)
{
	static const uint64_t entries[] = {
		1ull << 40,	       /* outside of the file */
		3 * C + 512,	       /* inside of a cluster */
		1ull << 62 | 3ull * C, /* compressed */
	};
	int fd = empty(), to = new_file();
	const char *why = NULL;

	put(fd, 7, 'x');
	set64(fd, _i < 3 ? entry_at(fd, 7) : L1_AT, entries[_i % 3]);
	if (_i == 5) /* not in an L1 */
		set64(fd, L1_AT, 0x00fffffffffffe00);
	ck_assert_int_eq(qcow2_merge(&fd, 1, SIZE, to, NULL, &why), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_nonnull(why);
	close(fd);
	close(to);
}
END_TEST

START_TEST(a_canceled_merge)
{
	atomic_bool cancel = true;
	int fd = empty(), to = new_file();
	const char *why;

	put(fd, 7, 'x');
	ck_assert_int_eq(qcow2_merge(&fd, 1, SIZE, to, &cancel, &why), -1);
	ck_assert_int_eq(errno, ECANCELED);
	close(fd);
	close(to);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("qcow2");
	TCase *tc = tcase_create("qcow2");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, an_empty_overlay);
	tcase_add_test(tc, sizes_that_are_none);
	tcase_add_loop_test(tc, a_forged_header, 0, sizeof(forgeries) / sizeof(forgeries[0]));
	tcase_add_test(tc, merged);
	tcase_add_test(tc, smaller_ones_below);
	tcase_add_test(tc, nothing_merged);
	tcase_add_loop_test(tc, broken_tables, 0, 6);
	tcase_add_test(tc, a_canceled_merge);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
