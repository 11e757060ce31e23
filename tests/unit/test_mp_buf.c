/* SPDX-License-Identifier: Apache-2.0 */
/* Output: the bytes of each form, patched counts, frames, and every way to fail. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/codec.h"
#include "protocol/frame.h"

/* The next n calls of realloc succeed, then it fails; negative: never. Set with -Wl,--wrap. */
static int allocations_left = -1;

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_realloc(void *p, size_t size)
{
	if (allocations_left == 0)
		return NULL;
	if (allocations_left > 0)
		allocations_left--;
	return __real_realloc(p, size);
}

static void expect(struct mp_buf *b, const char *want, size_t len)
{
	ck_assert(!b->failed);
	ck_assert_uint_eq(b->len, len);
	ck_assert_mem_eq(b->data, want, len);
	mp_buf_free(b);
}
#define EXPECT(b, want) expect(b, want, sizeof(want) - 1)

START_TEST(integers_take_the_shortest_form)
{
	static const struct {
		uint64_t v;
		const char *want;
		size_t len;
	} cases[] = {
		{0, "\x00", 1},
		{0x7f, "\x7f", 1},
		{0x80, "\xcc\x80", 2},
		{0xff, "\xcc\xff", 2},
		{0x100, "\xcd\x01\x00", 3},
		{0xffff, "\xcd\xff\xff", 3},
		{0x10000, "\xce\x00\x01\x00\x00", 5},
		{0xffffffff, "\xce\xff\xff\xff\xff", 5},
		{0x100000000, "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 9},
		{UINT64_MAX, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9},
	};
	struct mp_buf b = {0};

	mp_put_uint(&b, cases[_i].v);
	expect(&b, cases[_i].want, cases[_i].len);
}
END_TEST

START_TEST(strings_take_the_shortest_form)
{
	static const struct {
		size_t n, head;
		const char *want, *bin;
	} cases[] = {
		{0, 1, "\xa0", "\xc4\x00"},
		{31, 1, "\xbf", "\xc4\x1f"},
		{32, 2, "\xd9\x20", "\xc4\x20"},
		{255, 2, "\xd9\xff", "\xc4\xff"},
		{256, 3, "\xda\x01\x00", "\xc5\x01\x00"},
		{65535, 3, "\xda\xff\xff", "\xc5\xff\xff"},
		{65536, 5, "\xdb\x00\x01\x00\x00", "\xc6\x00\x01\x00\x00"},
	};
	size_t n = cases[_i].n, bin_head = n < 32 ? 2 : cases[_i].head;
	char *text = malloc(n + 1);
	struct mp_buf b = {0};

	ck_assert_ptr_nonnull(text);
	memset(text, 'x', n);
	mp_put_strn(&b, text, n);
	ck_assert_uint_eq(b.len, cases[_i].head + n);
	ck_assert_mem_eq(b.data, cases[_i].want, cases[_i].head);
	mp_buf_reset(&b);
	mp_put_bin(&b, text, n);
	ck_assert_uint_eq(b.len, bin_head + n);
	ck_assert_mem_eq(b.data, cases[_i].bin, bin_head);
	mp_buf_free(&b);
	free(text);
}
END_TEST

START_TEST(small_values)
{
	struct mp_buf b = {0};

	mp_put_nil(&b);
	mp_put_bool(&b, false);
	mp_put_bool(&b, true);
	mp_put_str(&b, "\xc3\xa9");
	mp_put_str(&b, "\xc3");
	mp_put_str(&b, NULL);
	EXPECT(&b, "\xc0\xc2\xc3\xa2\xc3\xa9\xc4\x01\xc3\xc0");
}
END_TEST

START_TEST(counts_are_patched)
{
	struct mp_buf b = {0};

	mp_map_begin(&b);
	mp_kv_uint(&b, "a", 1);
	mp_key(&b, "v");
	mp_array_begin(&b);
	mp_put_uint(&b, 2);
	mp_map_begin(&b);
	mp_kv_bool(&b, "x", true);
	mp_map_end(&b);
	mp_put_raw(&b, "\x92\x01\x02", 3);
	mp_array_begin(&b);
	mp_array_end(&b);
	mp_array_end(&b);
	mp_kv_str(&b, "s", "t");
	mp_map_end(&b);
	EXPECT(&b, "\xde\x00\x03\xa1"
		   "a\x01\xa1"
		   "v\xdc\x00\x04\x02\xde\x00\x01\xa1x\xc3\x92\x01\x02"
		   "\xdc\x00\x00\xa1s\xa1t");
}
END_TEST

START_TEST(unbalanced_is_a_failure)
{
	struct mp_buf b = {0};

	switch (_i) {
	case 0:
		mp_map_end(&b);
		break;
	case 1:
		mp_array_begin(&b);
		mp_map_end(&b);
		break;
	case 2:
		mp_map_begin(&b);
		mp_array_end(&b);
		break;
	case 3:
		mp_array_begin(&b);
		mp_key(&b, "k");
		break;
	case 4:
		mp_key(&b, "k");
		break;
	default:
		for (int i = 0; i <= MP_BUF_NEST; i++)
			mp_array_begin(&b);
	}
	ck_assert(b.failed);
	mp_buf_free(&b);
}
END_TEST

START_TEST(nesting_up_to_the_limit)
{
	struct mp_buf b = {0};

	for (int i = 0; i < MP_BUF_NEST; i++)
		mp_array_begin(&b);
	for (int i = 0; i < MP_BUF_NEST; i++)
		mp_array_end(&b);
	ck_assert(!b.failed);
	ck_assert_uint_eq(b.len, 3 * MP_BUF_NEST);
	mp_buf_free(&b);
}
END_TEST

START_TEST(counts_up_to_16_bits)
{
	struct mp_buf b = {0};

	mp_array_begin(&b);
	for (unsigned i = 0; i < 65535; i++)
		mp_put_nil(&b);
	mp_array_end(&b);
	ck_assert(!b.failed);
	ck_assert_mem_eq(b.data, "\xdc\xff\xff", 3);
	mp_buf_reset(&b);
	mp_array_begin(&b);
	for (unsigned i = 0; i < 65536; i++)
		mp_put_nil(&b);
	mp_array_end(&b);
	ck_assert(b.failed);
	mp_buf_free(&b);
}
END_TEST

START_TEST(the_maximum_is_hard)
{
	struct mp_buf b;

	mp_buf_init(&b, 10);
	mp_put_raw(&b, "0123456789", 10);
	ck_assert(!b.failed);
	ck_assert_uint_le(b.cap, 10);
	mp_put_raw(&b, "x", 1);
	ck_assert(b.failed);
	mp_put_uint(&b, 1);
	ck_assert_uint_eq(b.len, 10);
	mp_buf_reset(&b);
	mp_put_raw(&b, "0123456789x", 11);
	ck_assert(b.failed);
	ck_assert_uint_eq(b.len, 0);
	mp_buf_free(&b);
	ck_assert_uint_eq(b.max, 10);
}
END_TEST

START_TEST(a_zeroed_buffer_holds_the_largest_frame)
{
	static uint8_t payload[HUTCH_MAX_CALL];
	struct mp_buf b = {0};
	size_t start = mp_frame_begin(&b);

	mp_put_raw(&b, payload, sizeof(payload));
	ck_assert_int_eq(mp_frame_finish(&b, start, FRAME_CALL, FRAME_END), 0);
	ck_assert_mem_eq(b.data, "\x00\x10\x00\x00\x02\x01\x00\x00", 8);
	mp_put_raw(&b, payload, 1);
	ck_assert(b.failed);
	mp_buf_free(&b);
}
END_TEST

START_TEST(no_memory_is_a_failure)
{
	struct mp_buf b = {0};
	char text[600];

	memset(text, 'x', sizeof(text));
	allocations_left = 0;
	mp_map_begin(&b);
	mp_map_end(&b);
	allocations_left = -1;
	ck_assert(b.failed);
	mp_buf_reset(&b);
	allocations_left = 1;
	mp_put_uint(&b, 7);
	mp_put_strn(&b, text, sizeof(text));
	allocations_left = -1;
	ck_assert(b.failed);
	mp_buf_free(&b);
}
END_TEST

START_TEST(frames_follow_each_other)
{
	struct mp_buf b = {0};
	size_t start = mp_frame_begin(&b);

	mp_map_begin(&b);
	mp_map_end(&b);
	ck_assert_int_eq(mp_frame_finish(&b, start, FRAME_EVENT, 0), 0);
	start = mp_frame_begin(&b);
	ck_assert_uint_eq(start, 11);
	mp_map_begin(&b);
	mp_kv_uint(&b, "k", 1);
	mp_map_end(&b);
	ck_assert_int_eq(mp_frame_finish(&b, start, FRAME_RESULT, FRAME_END), 0);
	EXPECT(&b, "\0\0\0\3\5\0\0\0\xde\0\0"
		   "\0\0\0\6\3\1\0\0\xde\0\1\xa1k\1");
}
END_TEST

/* Whatever went wrong inside: the frame is gone, what was before it is not, and nobody misses it. */
START_TEST(a_failed_frame_leaves_no_trace)
{
	static uint8_t payload[HUTCH_MAX_EVENT + 1];
	struct mp_buf b;
	size_t start;

	mp_buf_init(&b, 1 << 20);
	mp_put_raw(&b, "before", 6);
	start = mp_frame_begin(&b);
	switch (_i) {
	case 0:
		mp_put_raw(&b, payload, sizeof(payload));
		break;
	case 1:
		mp_map_begin(&b);
		break;
	case 2:
		b.failed = true;
		break;
	case 3:
		allocations_left = 0;
		mp_put_raw(&b, payload, 1024);
		allocations_left = -1;
		ck_assert(b.failed);
		break;
	default: /* an unknown type holds nothing */
		mp_put_nil(&b);
	}
	ck_assert_int_eq(mp_frame_finish(&b, start, _i < 4 ? FRAME_EVENT : 99, 0), -1);
	ck_assert(b.failed);
	ck_assert_uint_eq(b.depth, 0);
	b.failed = false;
	EXPECT(&b, "before");
}
END_TEST

START_TEST(the_largest_event_fits)
{
	static uint8_t payload[HUTCH_MAX_EVENT];
	struct mp_buf b = {0};
	size_t start = mp_frame_begin(&b);

	mp_put_raw(&b, payload, sizeof(payload));
	ck_assert_int_eq(mp_frame_finish(&b, start, FRAME_EVENT, 0), 0);
	mp_buf_free(&b);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mp_buf");
	TCase *tc = tcase_create("output");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, integers_take_the_shortest_form, 0, 10);
	tcase_add_loop_test(tc, strings_take_the_shortest_form, 0, 7);
	tcase_add_test(tc, small_values);
	tcase_add_test(tc, counts_are_patched);
	tcase_add_loop_test(tc, unbalanced_is_a_failure, 0, 6);
	tcase_add_test(tc, nesting_up_to_the_limit);
	tcase_add_test(tc, counts_up_to_16_bits);
	tcase_add_test(tc, the_maximum_is_hard);
	tcase_add_test(tc, a_zeroed_buffer_holds_the_largest_frame);
	tcase_add_test(tc, no_memory_is_a_failure);
	tcase_add_test(tc, frames_follow_each_other);
	tcase_add_loop_test(tc, a_failed_frame_leaves_no_trace, 0, 5);
	tcase_add_test(tc, the_largest_event_fits);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
