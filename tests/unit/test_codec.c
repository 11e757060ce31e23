/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate: what it refuses, at what cost, and that whatever passes can be decoded. The hostile
 * bytes of case C042 and their kin are here; the same bytes go to live sockets in tests/system.
 */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "protocol/codec.h"
#include "tests/unit/alloc_watch.h"
#include "tests/unit/mp_text.h"

/* What fails while set; in front of the real ones with -Wl,--wrap. */
static bool no_malloc, no_zone;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
bool __real_msgpack_zone_init(msgpack_zone *zone, size_t chunk_size);
bool __wrap_msgpack_zone_init(msgpack_zone *zone, size_t chunk_size);

void *__wrap_malloc(size_t size) /* what a compiler may make of realloc(NULL, size) */
{
	return no_malloc ? NULL : __real_malloc(size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return no_malloc ? NULL : __real_realloc(p, size);
}

bool __wrap_msgpack_zone_init(msgpack_zone *zone, size_t chunk_size)
{
	return !no_zone && __real_msgpack_zone_init(zone, chunk_size);
}

/* Of CPU time: other work on the machine does not count. */
static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* n bytes of memory, so that an overrun is seen. */
static uint8_t *bytes(size_t n)
{
	uint8_t *p = malloc(n ? n : 1);

	ck_assert_ptr_nonnull(p);
	return p;
}

static int check_copy(const void *buf, size_t len, struct hutch_error *err)
{
	uint8_t *copy = bytes(len);
	int rc;

	memcpy(copy, buf, len);
	rc = codec_check(copy, len, err);
	free(copy);
	return rc;
}

static void put_be(uint8_t *to, uint32_t v, unsigned width)
{
	while (width-- > 0) {
		to[width] = (uint8_t)v;
		v >>= 8;
	}
}

/* Refused, by the check and by the decoder, at once and without a byte of memory. */
static void refuse_cheaply(const uint8_t *buf, size_t len)
{
	struct hutch_error err;
	struct alloc_watch cost;
	struct mp_doc doc;
	double began = seconds();
	int checked, parsed;

	alloc_watch_start();
	checked = codec_check(buf, len, &err);
	parsed = mp_doc_parse(&doc, buf, len, &err);
	cost = alloc_watch_stop();
	ck_assert_int_eq(checked, -1);
	ck_assert_int_eq(parsed, -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_uint_eq(cost.count, 0);
	ck_assert(seconds() - began < 0.1);
	mp_doc_free(&doc);
}

static void refuse_pattern(const char *unit, size_t unit_len, size_t times, const char *head,
			   size_t head_len)
{
	uint8_t *buf = bytes(head_len + unit_len * times);

	memcpy(buf, head, head_len);
	for (size_t i = 0; i < times; i++)
		memcpy(buf + head_len + i * unit_len, unit, unit_len);
	refuse_cheaply(buf, head_len + unit_len * times);
	free(buf);
}

/* C042: each as the payload itself, and as a value inside of a map. */
START_TEST(few_bytes_that_claim_much)
{
	static const struct {
		const char *unit;
		size_t unit_len, times;
	} cases[] = {
		{"\xdd\xff\xff\xff\xff", 5, 1},
		{"\xdf\xff\xff\xff\xff", 5, 1},
		{"\xc6\xff\xff\xff\xff", 5, 1},
		{"\x91", 1, 100000},
		{"\xdc\xff\xff", 3, 24000},
		{"\xdb\xff\xff\xff\xff", 5, 1},
		{"\x81\xa1k", 3, 100000},
		{"\xdf\x7f\xff\xff\xff\xa1k", 7, 10000},
		{"\xdf\x80\x00\x00\x00\xa1k", 7, 1},
		{"\xdd\x00\x10\x00\x00", 5, 200000},
		{"\xc9\xff\xff\xff\xff\x01", 6, 1},
	};

	refuse_pattern(cases[_i].unit, cases[_i].unit_len, cases[_i].times, "", 0);
	refuse_pattern(cases[_i].unit, cases[_i].unit_len, cases[_i].times, "\x81\xa1x", 3);
}
END_TEST

/* A count that the bytes left could hold, each element of which makes the same claim. */
START_TEST(nested_claims_that_fit)
{
	const size_t len = 1 << 20;
	uint8_t *buf = bytes(len);

	memset(buf, 0xc0, len);
	memcpy(buf, "\x81\xa1x", 3);
	for (unsigned depth = 0; depth < 15; depth++) {
		buf[3 + 5 * depth] = 0xdd;
		put_be(buf + 4 + 5 * depth, 60000, 4);
	}
	refuse_cheaply(buf, len);
	free(buf);
}
END_TEST

static int check_depth(unsigned arrays, struct hutch_error *err)
{
	uint8_t buf[64] = "\x81\xa1x";

	memset(buf + 3, 0x91, arrays);
	buf[3 + arrays] = 0xc0;
	return check_copy(buf, 4 + arrays, err);
}

START_TEST(sixteen_levels_and_no_more)
{
	struct hutch_error err;

	ck_assert_int_eq(check_depth(15, &err), 0);
	ck_assert_int_eq(check_depth(16, &err), -1);
	ck_assert_str_eq(err.message, "payload: byte 18 of 20: nested more than 16 levels deep");
}
END_TEST

START_TEST(depth_counts_empty_containers)
{
	uint8_t buf[64] = "\x81\xa1x";
	struct hutch_error err;

	memset(buf + 3, 0x91, 15);
	buf[18] = 0x90;
	ck_assert_int_eq(check_copy(buf, 19, &err), -1);
	buf[17] = 0x80;
	ck_assert_int_eq(check_copy(buf, 18, &err), 0);
}
END_TEST

static uint8_t *array_of_nils(uint32_t n, size_t *len)
{
	uint8_t *buf = bytes(8 + n);

	memcpy(buf, "\x81\xa1x\xdd", 4);
	put_be(buf + 4, n, 4);
	memset(buf + 8, 0xc0, n);
	*len = 8 + n;
	return buf;
}

START_TEST(values_are_limited)
{
	struct hutch_error err;
	size_t len;
	uint8_t *buf = array_of_nils(HUTCH_MAX_VALUES - 2, &len);

	ck_assert_int_eq(codec_check(buf, len, &err), 0);
	free(buf);
	buf = array_of_nils(HUTCH_MAX_VALUES - 1, &len);
	refuse_cheaply(buf, len);
	free(buf);
}
END_TEST

START_TEST(payload_is_limited)
{
	const size_t len = HUTCH_MAX_CALL + 1;
	uint8_t *buf = bytes(len);

	memcpy(buf, "\x81\xa1x\xc6", 4);
	put_be(buf + 4, (uint32_t)len - 8, 4);
	memset(buf + 8, 0, len - 8);
	refuse_cheaply(buf, len);
	put_be(buf + 4, (uint32_t)len - 9, 4);
	ck_assert_int_eq(codec_check(buf, len - 1, NULL), 0);
	free(buf);
}
END_TEST

START_TEST(payloads_that_are_refused)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *why;
	} cases[] = {
		{"", 0, "not a MessagePack map"},
		{"\xc0", 1, "not a MessagePack map"},
		{"\x90", 1, "not a MessagePack map"},
		{"\xa1x", 2, "not a MessagePack map"},
		{"\xde\x00", 2, "not a MessagePack map"},
		{"\x80\xc0", 2, "bytes behind the map"},
		{"\x80\x80", 2, "bytes behind the map"},
		{"\x81\xa1k", 3, "the bytes end inside a value"},
		{"\x81\xa1", 2, "a count is larger than the bytes that are left"},
		{"\x81\x01\x01", 3, "a map's key is not a str"},
		{"\x81\xc4\x01k\x01", 5, "a map's key is not a str"},
		{"\x81\xc0\x01", 3, "a map's key is not a str"},
		{"\x81\x90\x01", 3, "a map's key is not a str"},
		{"\x81\x80\x01", 3, "a map's key is not a str"},
		{"\x81\xa1k\xc1", 4, "an ext type or the unused type 0xc1"},
		{"\x81\xa1k\xd4\x01\x00", 6, "an ext type or the unused type 0xc1"},
		{"\x81\xa1k\xd6\xff\x00\x00\x00\x00", 9, "an ext type or the unused type 0xc1"},
		{"\x81\xa1k\xc7\x00\x01", 6, "an ext type or the unused type 0xc1"},
		{"\x81\xd4\x01\x00\x01", 5, "a map's key is not a str"},
		{"\x82\xa1k\x01\xa1k\x02", 7, "key \"k\" is there twice"},
		{"\x82\xa1k\x01\xd9\x01k\x02", 8, "key \"k\" is there twice"},
		{"\x82\xa0\x01\xa0\x02", 5, "key \"\" is there twice"},
		{"\x81\xa1m\x82\xa1k\x01\xa1k\x02", 10, "key \"k\" is there twice"},
		{"\x81\xa1k\xcd\x01", 5, "the bytes end inside a value"},
		{"\x81\xa1k\xcb\x01\x02\x03\x04\x05\x06\x07", 11, "the bytes end inside a value"},
		{"\x81\xa1k\xd9", 4, "the bytes end inside a value"},
		{"\x81\xa1k\xd9\x02x", 6, "the bytes end inside a value"},
		{"\x81\xa1k\xdc\x00", 5, "the bytes end inside a value"},
		{"\x81\xa1k\x92\x01", 5, "a count is larger than the bytes that are left"},
	};
	struct hutch_error err;

	ck_assert_int_eq(check_copy(cases[_i].bytes, cases[_i].len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_msg(strstr(err.message, cases[_i].why) != NULL, "case %d: %s", _i, err.message);
}
END_TEST

/* Every form that is allowed, at its shortest. */
#define ALL_FORMS                                                                         \
	"{'a':[#00,#7f,#e0,#ff,nil,true,false,1.5,#cb0000000000000000],"                  \
	"'i':[#ccff,#cdffff,#ceffffffff,#cfffffffffffffffff,#d080,#d18000],"              \
	"'j':[#d280000000,#d38000000000000000,-1,300],"                                   \
	"'s':['','x',#d90178,#da000178,#db0000000178,#c400,#c40178,#c50000,#c600000000]," \
	"'m':{'':{},'k':[],'a':{'k':1}},'k':#df00000000,'l':#dd00000000}"

START_TEST(every_allowed_form_passes)
{
	struct hutch_error err;
	struct mp_doc doc;
	size_t len;
	uint8_t *buf = mp_text(ALL_FORMS, &len);

	ck_assert_int_eq(mp_doc_parse(&doc, buf, len, &err), 0);
	ck_assert_uint_eq(doc.root.via.map.size, 7);
	ck_assert_int_eq(err.kind, HUTCH_OK);
	mp_doc_free(&doc);
	free(buf);
}
END_TEST

START_TEST(every_prefix_is_refused)
{
	struct hutch_error err;
	size_t len;
	uint8_t *buf = mp_text(ALL_FORMS, &len);

	for (size_t n = 0; n < len; n++) {
		ck_assert_int_eq(check_copy(buf, n, &err), -1);
		ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	}
	free(buf);
}
END_TEST

/* Whatever the check lets through, the decoder takes: each byte at each place. */
START_TEST(every_mutation_is_refused_or_decoded)
{
	struct hutch_error err;
	struct mp_doc doc;
	size_t len, accepted = 0;
	uint8_t *buf = mp_text(ALL_FORMS, &len);

	for (size_t at = 0; at < len; at++) {
		uint8_t was = buf[at];

		for (unsigned v = 0; v < 256; v++) {
			bool good;

			buf[at] = (uint8_t)v;
			good = codec_check(buf, len, &err) == 0;
			accepted += good;
			if ((mp_doc_parse(&doc, buf, len, &err) == 0) != good)
				ck_abort_msg("byte %zu as 0x%02x: check and decoder differ", at, v);
			mp_doc_free(&doc);
		}
		buf[at] = was;
	}
	ck_assert_uint_gt(accepted, len);
	free(buf);
}
END_TEST

/* n keys of width bytes that differ in their last four; the last equals the first when twice. */
static uint8_t *many_keys(uint32_t n, uint32_t width, bool twice, size_t *len)
{
	uint8_t *buf = bytes(5 + n * (4 + (size_t)width)), *p = buf + 5;

	buf[0] = 0xdf;
	put_be(buf + 1, n, 4);
	for (uint32_t i = 0; i < n; i++, p += 4 + width) {
		p[0] = 0xda;
		put_be(p + 1, width, 2);
		memset(p + 3, 'k', width);
		put_be(p + 3 + width - 4, (twice && i == n - 1 ? 0 : i) * 2654435761u, 4);
		p[3 + width] = 0xc0;
	}
	*len = (size_t)(p - buf);
	return buf;
}

START_TEST(many_distinct_keys)
{
	static const uint32_t counts[] = {2, 63, 64, 65, 66, 128, 129, 4096, 32768};
	struct alloc_watch cost;
	int rc;
	struct hutch_error err;
	size_t len;
	uint8_t *buf = many_keys(counts[_i], 4, false, &len);
	double began = seconds();

	alloc_watch_start();
	rc = codec_check(buf, len, &err);
	cost = alloc_watch_stop();
	ck_assert_int_eq(rc, 0);
	ck_assert(seconds() - began < 0.5);
	if (counts[_i] <= 64)
		ck_assert_uint_eq(cost.count, 0);
	ck_assert_uint_le(cost.bytes, 32 * (size_t)counts[_i]);
	free(buf);
	buf = many_keys(counts[_i], 4, true, &len);
	ck_assert_int_eq(codec_check(buf, len, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "is there twice"));
	free(buf);
}
END_TEST

/* The worst for comparing: long keys with a common start, as many as fit. */
START_TEST(long_common_prefixes_stay_fast)
{
	static const uint32_t widths[] = {8, 28, 124, 1000, 10000};
	uint32_t width = widths[_i];
	uint32_t n = (HUTCH_MAX_CALL - 5) / (4 + width);
	struct hutch_error err;
	double began;
	size_t len;
	uint8_t *buf;

	if (n > HUTCH_MAX_VALUES / 2)
		n = HUTCH_MAX_VALUES / 2;
	buf = many_keys(n, width, false, &len);
	began = seconds();
	ck_assert_int_eq(codec_check(buf, len, &err), 0);
	ck_assert(seconds() - began < 0.5);
	free(buf);
}
END_TEST

START_TEST(no_memory_is_not_the_peers_fault)
{
	struct hutch_error err;
	struct mp_doc doc;
	int rc;
	size_t len;
	uint8_t *buf = many_keys(65, 4, false, &len);

	no_malloc = true;
	rc = codec_check(buf, len, &err);
	no_malloc = false;
	ck_assert_int_eq(rc, -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INTERNAL);
	ck_assert_int_eq(err.errnum, ENOMEM);
	no_zone = true;
	ck_assert_int_eq(mp_doc_parse(&doc, buf, len, &err), -1);
	no_zone = false;
	ck_assert_int_eq(err.kind, HUTCH_E_INTERNAL);
	ck_assert_int_eq(err.errnum, ENOMEM);
	mp_doc_free(&doc);
	free(buf);
}
END_TEST

/* Keys of an outer map stay on the key stack while inner maps come and go. */
START_TEST(keys_of_nested_maps_are_apart)
{
	struct hutch_error err;
	size_t len;
	uint8_t *buf = mp_text("{'a':{'a':{'a':1,'b':2},'b':{'a':1}},'b':[{'a':1},{'a':1}],'c':{}}",
			       &len);

	ck_assert_int_eq(codec_check(buf, len, &err), 0);
	free(buf);
	buf = mp_text("{'a':{'x':1,'y':2},'b':{'x':1},'a':1}", &len);
	ck_assert_int_eq(codec_check(buf, len, &err), -1);
	ck_assert_str_eq(err.message, "payload: key \"a\" is there twice");
	free(buf);
}
END_TEST

/* One allocation, whose size follows from the bytes. */
START_TEST(decoding_allocates_once)
{
	static const char *const texts[] = {"{}", ALL_FORMS,
					    "{'argv':['a','b','c'],'env':{'A':''}}"};
	struct alloc_watch cost;
	int rc;
	struct hutch_error err;
	struct mp_doc doc;
	size_t len;
	uint8_t *buf = mp_text(texts[_i], &len);

	alloc_watch_start();
	rc = mp_doc_parse(&doc, buf, len, &err);
	cost = alloc_watch_stop();
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(cost.count, 1);
	ck_assert_uint_le(cost.bytes, 33 * len + 256);
	mp_doc_free(&doc);
	free(buf);
}
END_TEST

START_TEST(the_largest_tree_allocates_once)
{
	struct alloc_watch cost;
	int rc;
	struct hutch_error err;
	struct mp_doc doc;
	size_t len;
	uint8_t *buf = array_of_nils(HUTCH_MAX_VALUES - 2, &len);

	alloc_watch_start();
	rc = mp_doc_parse(&doc, buf, len, &err);
	cost = alloc_watch_stop();
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(cost.count, 1);
	ck_assert_uint_le(cost.bytes, 33 * (size_t)HUTCH_MAX_VALUES + 256);
	mp_doc_free(&doc);
	free(buf);
}
END_TEST

START_TEST(the_document_keeps_its_own_bytes)
{
	struct hutch_error err;
	struct mp_doc doc;
	size_t len;
	uint8_t *buf = mp_text("{'k':'value'}", &len);

	ck_assert_int_eq(mp_doc_parse(&doc, buf, len, &err), 0);
	memset(buf, 0, len);
	free(buf);
	ck_assert_mem_eq(doc.root.via.map.ptr[0].val.via.str.ptr, "value", 5);
	mp_doc_free(&doc);
	mp_doc_free(&doc);
}
END_TEST

START_TEST(one_value_can_be_left_encoded)
{
	static const struct {
		const char *text;
		size_t at, len;
	} cases[] = {
		{"{'params':{'a':[1,2,{}]},'z':7}", 10, 13},
		{"{'z':7,'params':{}}", 13, 3},
		{"{'a':{'params':1},'z':7,'params':'x'}", 26, 2},
		{"{'z':7}", 0, 0},
		{"{'z':7,'params':nil}", 0, 0},
		{"{'z':7,'param':{},'paramsx':{}}", 0, 0},
	};
	const uint8_t *raw;
	struct hutch_error err;
	struct mp_doc doc;
	struct mp_reader r;
	size_t len, raw_len;
	uint8_t *buf = mp_text(cases[_i].text, &len);
	uint64_t z = 0;

	ck_assert_int_eq(mp_doc_parse_except(&doc, buf, len, "params", &raw, &raw_len, &err), 0);
	ck_assert_uint_eq(raw_len, cases[_i].len);
	if (raw_len)
		ck_assert_ptr_eq(raw, buf + cases[_i].at);
	else
		ck_assert_ptr_null(raw);
	mp_reader_init(&r, &doc, &doc.root, "test", &err);
	ck_assert_ptr_null(mp_find(&r, "params"));
	mp_get_uint(&r, "z", 0, 10, &z);
	ck_assert_uint_eq(z, 7);
	mp_doc_free(&doc);
	free(buf);
}
END_TEST

/* A large value that is left encoded costs no memory. */
START_TEST(what_is_left_encoded_is_not_copied)
{
	const uint8_t *raw;
	struct alloc_watch cost;
	int rc;
	struct hutch_error err;
	struct mp_doc doc;
	size_t len, raw_len;
	uint8_t *buf = array_of_nils(60000, &len);

	alloc_watch_start();
	rc = mp_doc_parse_except(&doc, buf, len, "x", &raw, &raw_len, &err);
	cost = alloc_watch_stop();
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_eq(raw_len, 60005);
	ck_assert_uint_le(cost.bytes, 1024);
	mp_doc_free(&doc);
	free(buf);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("codec");
	TCase *gate = tcase_create("gate"), *doc = tcase_create("document");
	SRunner *sr;
	int failed;

	tcase_set_timeout(gate, 60);
	tcase_add_loop_test(gate, few_bytes_that_claim_much, 0, 11);
	tcase_add_test(gate, nested_claims_that_fit);
	tcase_add_test(gate, sixteen_levels_and_no_more);
	tcase_add_test(gate, depth_counts_empty_containers);
	tcase_add_test(gate, values_are_limited);
	tcase_add_test(gate, payload_is_limited);
	tcase_add_loop_test(gate, payloads_that_are_refused, 0, 29);
	tcase_add_test(gate, every_allowed_form_passes);
	tcase_add_test(gate, every_prefix_is_refused);
	tcase_add_test(gate, every_mutation_is_refused_or_decoded);
	tcase_add_loop_test(gate, many_distinct_keys, 0, 9);
	tcase_add_loop_test(gate, long_common_prefixes_stay_fast, 0, 5);
	tcase_add_test(gate, no_memory_is_not_the_peers_fault);
	tcase_add_test(gate, keys_of_nested_maps_are_apart);
	suite_add_tcase(s, gate);
	tcase_add_loop_test(doc, decoding_allocates_once, 0, 3);
	tcase_add_test(doc, the_largest_tree_allocates_once);
	tcase_add_test(doc, the_document_keeps_its_own_bytes);
	tcase_add_loop_test(doc, one_value_can_be_left_encoded, 0, 6);
	tcase_add_test(doc, what_is_left_encoded_is_not_copied);
	suite_add_tcase(s, doc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
