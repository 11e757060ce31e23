/* SPDX-License-Identifier: Apache-2.0 */
/* Tar headers: what is written is read again; numbers and times at their limits; archives that lie. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "guest/tar.h"

/* An archive in memory, handed out in pieces of at most piece bytes. */
struct source {
	const uint8_t *p;
	size_t left, piece;
};

static ssize_t next_piece(void *arg, const uint8_t **p, size_t max)
{
	struct source *s = arg;
	size_t n = s->left < s->piece ? s->left : s->piece;

	if (n > max)
		n = max;
	*p = s->p;
	s->p += n;
	s->left -= n;
	return (ssize_t)n;
}

static uint8_t archive[1 << 20];
static size_t length;

static void add(const void *p, size_t n)
{
	memcpy(archive + length, p, n);
	length += n;
}

static void add_zeros(size_t n)
{
	memset(archive + length, 0, n);
	length += n;
}

static void add_member(const struct tar_entry *e, const char *data)
{
	uint8_t h[TAR_MAX_HEAD];
	size_t n = strlen(data);

	add(h, tar_put(h, e, n, false, 0));
	add(data, n);
	add_zeros((TAR_BLOCK - n % TAR_BLOCK) % TAR_BLOCK);
}

static void start(void)
{
	length = 0;
}

static struct tar_reader reader;
static struct source source;
static struct tar_entry got;

static void open_archive(size_t piece)
{
	source = (struct source){archive, length, piece};
	reader = (struct tar_reader){.next = next_piece, .arg = &source};
}

static void name_of(char *out, size_t n, char c)
{
	memset(out, c, n);
	for (size_t i = 50; i + 1 < n; i += 50)
		out[i] = '/';
	out[n] = '\0';
}

static const struct {
	size_t path, link;
	char type;
	mode_t mode;
	uint32_t uid, gid;
	struct timespec mtime;
	const char *data;
} members[] = {
	{1, 0, '0', 0644, 0, 0, {0, 0}, ""},
	{100, 0, '0', 07777, 07777777, 07777777, {077777777777, 0}, "x"},
	{101, 0, '0', 0, 010000000, 4294967294u, {0100000000000, 0}, "data"},
	{99, 100, '2', 0777, 1, 2, {1, 1}, ""},
	{4000, 4000, '2', 0777, 1, 2, {1234567890, 999999999}, ""},
	{300, 101, '1', 0600, 1, 2, {-1, 0}, ""},
	{20, 0, '5', 01755, 1, 2, {-2, 500000000}, ""},
	{20, 0, '6', 0600, 1, 2, {-1000000000, 1}, ""},
};
#define COUNT (sizeof(members) / sizeof(members[0]))

static struct tar_entry entry_of(size_t i)
{
	struct tar_entry e = {.type = members[i].type,
			      .mode = members[i].mode,
			      .uid = members[i].uid,
			      .gid = members[i].gid,
			      .mtime = members[i].mtime};

	name_of(e.path, members[i].path, 'p');
	name_of(e.link, members[i].link, 'l');
	return e;
}

static void check_member(size_t i)
{
	struct tar_entry e = entry_of(i);
	char data[64] = "";
	const uint8_t *p;
	uint64_t at;
	ssize_t n;

	ck_assert_msg(tar_next(&reader, &got) == 1, "%s", reader.wrong);
	ck_assert_int_eq(got.type, e.type);
	ck_assert_uint_eq(got.mode, e.mode);
	ck_assert_uint_eq(got.uid, e.uid);
	ck_assert_uint_eq(got.gid, e.gid);
	ck_assert_int_eq(got.mtime.tv_sec, e.mtime.tv_sec);
	ck_assert_int_eq(got.mtime.tv_nsec, e.mtime.tv_nsec);
	ck_assert_str_eq(got.path, e.path);
	ck_assert_str_eq(got.link, e.link);
	ck_assert_uint_eq(got.size, strlen(members[i].data));
	while ((n = tar_data(&reader, &p, &at)) > 0)
		memcpy(data + at, p, (size_t)n);
	ck_assert_int_eq(n, 0);
	ck_assert_str_eq(data, members[i].data);
}

static const size_t pieces[] = {1, 7, 511, 512, 513, 100000};

START_TEST(round_trip)
{
	start();
	for (size_t i = 0; i < COUNT; i++) {
		struct tar_entry e = entry_of(i);

		add_member(&e, members[i].data);
	}
	add_zeros(2 * TAR_BLOCK + 5000);
	open_archive(pieces[_i]);
	for (size_t i = 0; i < COUNT; i++)
		check_member(i);
	ck_assert_int_eq(tar_next(&reader, &got), 0);
	ck_assert_uint_eq(source.left, 0);
	tar_free(&reader);
}
END_TEST

/* Members whose data nobody takes are passed over. */
START_TEST(skipping)
{
	struct tar_entry e = {.type = '0', .path = "first"};

	start();
	add_member(&e, "some data");
	strcpy(e.path, "second");
	add_member(&e, "");
	add_zeros(2 * TAR_BLOCK);
	open_archive(100);
	ck_assert_int_eq(tar_next(&reader, &got), 1);
	ck_assert_int_eq(tar_next(&reader, &got), 1);
	ck_assert_str_eq(got.path, "second");
	ck_assert_int_eq(tar_next(&reader, &got), 0);
	tar_free(&reader);
}
END_TEST

static void add_sparse(uint64_t size, uint64_t data, const char *map)
{
	struct tar_entry e = {.type = '0', .path = "sparse", .size = size};
	size_t n = strlen(map), blocks = (n + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
	uint8_t h[TAR_MAX_HEAD];

	start();
	add(h, tar_put(h, &e, blocks + data, true, 0));
	add(map, n);
	add_zeros(blocks - n);
	for (uint64_t i = 0; i < data; i++)
		add("d", 1);
	add_zeros((TAR_BLOCK - data % TAR_BLOCK) % TAR_BLOCK);
	add_zeros(2 * TAR_BLOCK);
}

START_TEST(sparse)
{
	const uint8_t *p;
	uint64_t at, total = 0;
	ssize_t n;

	add_sparse(1000000, 15, "3\n10\n5\n999000\n10\n1000000\n0\n");
	open_archive(pieces[_i]);
	ck_assert_msg(tar_next(&reader, &got) == 1, "%s", reader.wrong);
	ck_assert_str_eq(got.path, "sparse");
	ck_assert_uint_eq(got.size, 1000000);
	while ((n = tar_data(&reader, &p, &at)) > 0) {
		ck_assert((at >= 10 && at + (size_t)n <= 15) ||
			  (at >= 999000 && at + (size_t)n <= 999010));
		total += (size_t)n;
	}
	ck_assert_int_eq(n, 0);
	ck_assert_uint_eq(total, 15);
	ck_assert_int_eq(tar_next(&reader, &got), 0);
	tar_free(&reader);
}
END_TEST

static const struct {
	uint64_t size, data;
	const char *map;
} false_maps[] = {
	{100, 5, "1\n10\n6\n"},			  /* more than there is */
	{100, 5, "1\n10\n4\n"},			  /* less */
	{100, 5, "1\n96\n5\n"},			  /* behind the end */
	{100, 10, "2\n50\n5\n10\n5\n"},		  /* backwards */
	{100, 10, "2\n50\n5\n54\n5\n"},		  /* overlapping */
	{100, 5, "2\n10\n5\n"},			  /* fewer than it says */
	{100, 5, "x\n"},			  /* no number */
	{100, 5, ""},				  /* no map */
	{100, 5, "99999999999999999999999999\n"}, /* a count that fits nothing */
	{100, 0, "1\n9223372036854775807\n9223372036854775807\n"},
};

START_TEST(maps_that_lie)
{
	add_sparse(false_maps[_i].size, false_maps[_i].data, false_maps[_i].map);
	open_archive(512);
	ck_assert_int_eq(tar_next(&reader, &got), -1);
	ck_assert_ptr_nonnull(reader.wrong);
	tar_free(&reader);
}
END_TEST

/* A header with this text in a field, and its checksum. */
static void add_header(size_t at, const void *field, size_t n)
{
	struct tar_entry e = {.type = '0', .path = "f"};
	uint8_t h[TAR_MAX_HEAD];
	unsigned sum = 0;

	start();
	tar_put(h, &e, 0, false, 0);
	memcpy(h + at, field, n);
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += h[i];
	for (int i = 5; i >= 0; i--, sum >>= 3)
		h[148 + i] = (uint8_t)('0' + (sum & 7));
	add(h, TAR_BLOCK);
}

static const struct {
	const char *field;
	size_t n;
	uint64_t size;
} sizes[] = {
	{"00000000007\0", 12, 7},
	{"      17    ", 12, 15},
	{"777777777777", 12, 0777777777777},
	{"\x80\0\0\0\0\0\0\0\0\0\1\0", 12, 256},
	{"\x80\0\0\0\1\0\0\0\0\0\0\0", 12, 1ull << 56},
	{"\x80\1\0\0\0\0\0\0\0\0\0\0", 12, INT64_MAX},
	{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, 0},
	{"no number!!!", 12, 0},
};

START_TEST(numbers)
{
	add_header(124, sizes[_i].field, sizes[_i].n);
	open_archive(512);
	ck_assert_int_eq(tar_next(&reader, &got), 1);
	ck_assert_uint_eq(got.size, sizes[_i].size);
	tar_free(&reader);
}
END_TEST

START_TEST(extended_header_too_large)
{
	add_header(124, "77777777777\0", 12);
	archive[156] = 'x';
	/* 'x' instead of '0' */
	archive[148] = '\0';
	for (unsigned sum = 0, i = 0; i <= TAR_BLOCK; i++) {
		if (i < TAR_BLOCK) {
			sum += i >= 148 && i < 156 ? ' ' : archive[i];
			continue;
		}
		for (int k = 5; k >= 0; k--, sum >>= 3)
			archive[148 + k] = (uint8_t)('0' + (sum & 7));
	}
	open_archive(512);
	ck_assert_int_eq(tar_next(&reader, &got), -1);
	ck_assert_str_eq(reader.wrong, "an extended header is too large");
	tar_free(&reader);
}
END_TEST

START_TEST(cut_anywhere)
{
	struct tar_entry e = entry_of(4);

	start();
	add_member(&e, "");
	e = entry_of(2);
	add_member(&e, "data");
	add_zeros(2 * TAR_BLOCK);
	for (size_t cut = 0; cut < length; cut++) {
		int ret;

		open_archive(1000);
		source.left = cut;
		while ((ret = tar_next(&reader, &got)) > 0)
			continue;
		ck_assert_int_eq(ret, -1);
		ck_assert_ptr_nonnull(reader.wrong);
		tar_free(&reader);
	}
}
END_TEST

START_TEST(devices)
{
	struct tar_entry e = {.type = '3', .path = "null"};
	uint8_t h[TAR_MAX_HEAD];

	ck_assert_uint_eq(tar_put(h, &e, 0, false, makedev(1, 3)), TAR_BLOCK);
	ck_assert_str_eq((char *)h + 329, "0000001");
	ck_assert_str_eq((char *)h + 337, "0000003");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tar");
	TCase *t = tcase_create("tar");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, round_trip, 0, sizeof(pieces) / sizeof(pieces[0]));
	tcase_add_test(t, skipping);
	tcase_add_loop_test(t, sparse, 0, sizeof(pieces) / sizeof(pieces[0]));
	tcase_add_loop_test(t, maps_that_lie, 0, sizeof(false_maps) / sizeof(false_maps[0]));
	tcase_add_loop_test(t, numbers, 0, sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_test(t, extended_header_too_large);
	tcase_add_test(t, cut_anywhere);
	tcase_add_test(t, devices);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
