/* SPDX-License-Identifier: Apache-2.0 */
/* The frame header: every type, flag and reserved bit, and both sides of each length limit. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/frame.h"

static const struct {
	unsigned type;
	uint32_t max;
	bool data;
	const char *name;
} known[] = {
	{1, 4096, false, "HELLO"},   {2, 1048576, false, "CALL"}, {3, 1048576, false, "RESULT"},
	{4, 65536, false, "ERROR"},  {5, 65536, false, "EVENT"},  {16, 65536, true, "STDIN"},
	{17, 65536, true, "STDOUT"}, {18, 65536, true, "STDERR"},
};
#define KNOWN (sizeof(known) / sizeof(known[0]))

static int index_of(unsigned type)
{
	for (size_t i = 0; i < KNOWN; i++)
		if (known[i].type == type)
			return (int)i;
	return -1;
}

START_TEST(layout_is_that_of_the_document)
{
	struct frame f = {.type = FRAME_STDOUT, .flags = FRAME_END, .length = 0x8001};
	const uint8_t want[] = {0, 0, 0x80, 0x01, 17, 1, 0, 0};
	uint8_t got[HUTCH_FRAME_HEADER];

	frame_encode(got, &f);
	ck_assert_mem_eq(got, want, sizeof(want));
}
END_TEST

START_TEST(lengths_up_to_the_maximum)
{
	const uint32_t max = known[_i].max;
	const uint32_t lengths[] = {0, 1, max - 1, max};
	uint8_t header[HUTCH_FRAME_HEADER];
	struct hutch_error err;
	struct frame f, g;

	for (size_t i = 0; i < 4; i++) {
		f = (struct frame){(enum frame_type)known[_i].type, i % 2 ? FRAME_END : 0,
				   lengths[i]};
		frame_encode(header, &f);
		ck_assert_int_eq(frame_decode(header, &g, &err), 0);
		ck_assert_int_eq(g.type, f.type);
		ck_assert_uint_eq(g.flags, f.flags);
		ck_assert_uint_eq(g.length, f.length);
	}
	f.length = max + 1;
	frame_encode(header, &f);
	ck_assert_int_eq(frame_decode(header, &g, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(err.message, known[_i].name));
	f.length = UINT32_MAX;
	frame_encode(header, &f);
	ck_assert_int_eq(frame_decode(header, &g, &err), -1);
}
END_TEST

START_TEST(every_type_byte)
{
	uint8_t header[HUTCH_FRAME_HEADER] = {0};
	struct hutch_error err;
	struct frame f;

	for (unsigned type = 0; type < 256; type++) {
		int i = index_of(type);

		header[4] = (uint8_t)type;
		ck_assert_int_eq(frame_decode(header, &f, &err), i < 0 ? -1 : 0);
		ck_assert_uint_eq(frame_max(type), i < 0 ? 0 : known[i].max);
		ck_assert_str_eq(frame_type_name(type), i < 0 ? "?" : known[i].name);
		ck_assert(frame_is_data((enum frame_type)type) == (i >= 0 && known[i].data));
	}
	ck_assert_str_eq(err.message, "frame: type 255 is unknown");
	ck_assert_uint_eq(frame_max(256 + FRAME_CALL), 0);
}
END_TEST

START_TEST(every_flag_and_reserved_bit)
{
	struct hutch_error err;
	struct frame f;

	for (unsigned flags = 0; flags < 256; flags++) {
		const uint8_t header[] = {0, 0, 0, 0, FRAME_CALL, (uint8_t)flags, 0, 0};

		ck_assert_int_eq(frame_decode(header, &f, &err), flags > 1 ? -1 : 0);
	}
	ck_assert_str_eq(err.message, "CALL frame: flags are 0xff; only END (0x01) may be set");
	for (unsigned bit = 0; bit < 16; bit++) {
		const uint8_t header[] = {0,
					  0,
					  0,
					  0,
					  FRAME_EVENT,
					  0,
					  (uint8_t)(1u << bit >> 8),
					  (uint8_t)(1u << bit)};

		ck_assert_int_eq(frame_decode(header, &f, &err), -1);
		ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	}
	ck_assert_str_eq(err.message, "EVENT frame: reserved bytes are 0x8000; they must be 0");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("frame");
	TCase *tc = tcase_create("frame");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, layout_is_that_of_the_document);
	tcase_add_loop_test(tc, lengths_up_to_the_maximum, 0, (int)KNOWN);
	tcase_add_test(tc, every_type_byte);
	tcase_add_test(tc, every_flag_and_reserved_bit);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
