/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The getters: what each takes, what it refuses, in which words, and that the first failure stays.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/codec.h"
#include "tests/unit/mp_text.h"

/* A document and a reader on it. */
struct fixture {
	uint8_t *buf;
	size_t len;
	struct hutch_error err;
	struct mp_doc doc;
	struct mp_reader r;
};

static void open_text(struct fixture *f, const char *text)
{
	f->buf = mp_text(text, &f->len);
	ck_assert_int_eq(mp_doc_parse(&f->doc, f->buf, f->len, &f->err), 0);
	free(f->buf);
	mp_reader_init(&f->r, &f->doc, &f->doc.root, "test", &f->err);
}

static void close_with(struct fixture *f, const char *message)
{
	ck_assert_int_eq(mp_close(&f->r), message ? -1 : 0);
	ck_assert_int_eq(f->err.kind, message ? HUTCH_E_INVALID : HUTCH_OK);
	ck_assert_str_eq(f->err.message, message ? message : "");
}

START_TEST(absent_and_nil_leave_the_default)
{
	struct fixture f;
	bool b = true;
	uint64_t u = 7;
	uint32_t u32 = 8;
	const char *s = "s";
	char buf[8] = "buf", name[8] = "name", cut[8] = "cut";
	const uint8_t *bytes = (const uint8_t *)"b";
	char **v = NULL;
	const msgpack_object *map = NULL;
	size_t n = 9;

	open_text(&f, _i ? "{}" : "{'k':nil}");
	mp_get_bool(&f.r, "k", &b);
	mp_get_uint(&f.r, "k", 1, 2, &u);
	mp_get_u32(&f.r, "k", 1, 2, &u32);
	mp_get_str(&f.r, "k", 1, &s);
	mp_get_strbuf(&f.r, "k", buf, sizeof(buf));
	mp_get_strcut(&f.r, "k", cut, sizeof(cut));
	mp_get_bytes(&f.r, "k", 1, 2, &bytes, &n);
	mp_get_strv(&f.r, "k", 1, &v, &n);
	mp_get_strmap(&f.r, "k", 1, &v, &n);
	mp_get_map(&f.r, "k", &map);
	mp_get_name(&f.r, "k", 4, name, sizeof(name));
	ck_assert(b && u == 7 && u32 == 8 && n == 9 && !v && !map && bytes[0] == 'b');
	ck_assert_str_eq(s, "s");
	ck_assert_str_eq(buf, "buf");
	ck_assert_str_eq(cut, "cut");
	ck_assert_str_eq(name, "name");
	close_with(&f, NULL);
}
END_TEST

START_TEST(required_keys)
{
	struct fixture f;

	open_text(&f, "{'a':1,'b':nil}");
	mp_require(&f.r, "a");
	ck_assert(mp_ok(&f.r));
	mp_require(&f.r, "b");
	mp_require(&f.r, "c");
	close_with(&f, "test: b is missing");
}
END_TEST

START_TEST(integers)
{
	static const struct {
		const char *text;
		uint64_t min, max, want;
		const char *message;
	} cases[] = {
		{"{'k':0}", 0, 10, 0, NULL},
		{"{'k':10}", 0, 10, 10, NULL},
		{"{'k':#cf0000000000000005}", 0, 10, 5, NULL},
		{"{'k':#d30000000000000005}", 0, 10, 5, NULL},
		{"{'k':#d005}", 0, 10, 5, NULL},
		{"{'k':18446744073709551615}", 0, UINT64_MAX, UINT64_MAX, NULL},
		{"{'k':9223372036854775807}", 0, HUTCH_MAX_UINT, HUTCH_MAX_UINT, NULL},
		{"{'k':9223372036854775808}", 0, HUTCH_MAX_UINT, 0,
		 "test: k is 9223372036854775808; it must be 0 to 9223372036854775807"},
		{"{'k':11}", 2, 10, 0, "test: k is 11; it must be 2 to 10"},
		{"{'k':1}", 2, 10, 0, "test: k is 1; it must be 2 to 10"},
		{"{'k':-1}", 0, 10, 0, "test: k is -1; it must be 0 to 10"},
		{"{'k':#d38000000000000000}", 0, UINT64_MAX, 0,
		 "test: k is -9223372036854775808; it must be 0 to 18446744073709551615"},
		{"{'k':1.5}", 0, 10, 0, "test: k is a float; it must be an integer"},
		{"{'k':#cb4000000000000000}", 0, 10, 0,
		 "test: k is a float; it must be an integer"},
		{"{'k':'5'}", 0, 10, 0, "test: k is a text; it must be an integer"},
		{"{'k':b'5'}", 0, 10, 0, "test: k is a text; it must be an integer"},
		{"{'k':true}", 0, 10, 0, "test: k is a boolean; it must be an integer"},
		{"{'k':[5]}", 0, 10, 0, "test: k is an array; it must be an integer"},
		{"{'k':{}}", 0, 10, 0, "test: k is a map; it must be an integer"},
	};
	struct fixture f;
	uint64_t v = 0;

	open_text(&f, cases[_i].text);
	mp_get_uint(&f.r, "k", cases[_i].min, cases[_i].max, &v);
	close_with(&f, cases[_i].message);
	ck_assert_uint_eq(v, cases[_i].want);
}
END_TEST

START_TEST(integers_of_32_bits)
{
	struct fixture f;
	uint32_t v = 3;

	open_text(&f, "{'k':4294967295,'l':4294967296}");
	mp_get_u32(&f.r, "k", 0, UINT32_MAX, &v);
	ck_assert_uint_eq(v, UINT32_MAX);
	mp_get_u32(&f.r, "l", 0, UINT32_MAX, &v);
	ck_assert_uint_eq(v, UINT32_MAX);
	close_with(&f, "test: l is 4294967296; it must be 0 to 4294967295");
}
END_TEST

START_TEST(booleans)
{
	struct fixture f;
	bool a = false, b = true;

	open_text(&f, "{'a':true,'b':false,'c':1}");
	mp_get_bool(&f.r, "a", &a);
	mp_get_bool(&f.r, "b", &b);
	ck_assert(a && !b);
	mp_get_bool(&f.r, "c", &a);
	close_with(&f, "test: c is an integer; it must be a boolean");
}
END_TEST

START_TEST(texts)
{
	static const struct {
		const char *text, *want, *message;
	} cases[] = {
		{"{'k':'','z':1}", "", NULL},
		{"{'k':b'','z':1}", "", NULL},
		{"{'k':'abcd','z':1}", "abcd", NULL},
		{"{'k':b'abcd'}", "abcd", NULL},
		{"{'k':#db000000024142,'z':1}", "AB", NULL},
		{"{'k':'\\xff\\xfe'}", "\xff\xfe", NULL},
		{"{'k':'abcde'}", NULL, "test: k is 5 bytes long; it must be at most 4"},
		{"{'k':'a\\x00b'}", NULL, "test: k holds a NUL byte; it must not"},
		{"{'k':b'\\x00'}", NULL, "test: k holds a NUL byte; it must not"},
		{"{'k':'abc\\x00'}", NULL, "test: k holds a NUL byte; it must not"},
		{"{'k':5}", NULL, "test: k is an integer; it must be a text"},
		{"{'k':[]}", NULL, "test: k is an array; it must be a text"},
		{"{'k':false}", NULL, "test: k is a boolean; it must be a text"},
	};
	const char *s = NULL;
	char buf[5] = "";
	struct fixture f;

	open_text(&f, cases[_i].text);
	mp_get_str(&f.r, "k", 4, &s);
	if (cases[_i].want)
		ck_assert_str_eq(s, cases[_i].want);
	else
		ck_assert_ptr_null(s);
	close_with(&f, cases[_i].message);

	open_text(&f, cases[_i].text);
	mp_get_strbuf(&f.r, "k", buf, sizeof(buf));
	ck_assert_str_eq(buf, cases[_i].want ? cases[_i].want : "");
	close_with(&f, cases[_i].message);
}
END_TEST

/* The NUL goes where the next value's head was; the values themselves stay whole. */
START_TEST(terminating_spoils_no_neighbour)
{
	const char *a = NULL, *b = NULL, *c = NULL, *d = NULL;
	struct fixture f;

	open_text(&f, "{'a':'one','b':'','c':b'three','d':'four'}");
	for (int i = 0; i < 2; i++) {
		mp_get_str(&f.r, "b", 9, &b);
		mp_get_str(&f.r, "d", 9, &d);
		mp_get_str(&f.r, "c", 9, &c);
		mp_get_str(&f.r, "a", 9, &a);
	}
	ck_assert_str_eq(a, "one");
	ck_assert_str_eq(b, "");
	ck_assert_str_eq(c, "three");
	ck_assert_str_eq(d, "four");
	close_with(&f, NULL);
}
END_TEST

START_TEST(long_texts_can_be_cut)
{
	struct fixture f;
	char out[8] = "";

	open_text(&f,
		  "{'a':'1234567','b':'12345678','c':'123456\\xc3\\xa9','d':'12345\\xe2\\x82\\xac',"
		  "'e':'\\x80\\x80\\x80\\x80\\x80\\x80\\x80\\x80','f':'x\\x00'}");
	mp_get_strcut(&f.r, "a", out, sizeof(out));
	ck_assert_str_eq(out, "1234567");
	mp_get_strcut(&f.r, "b", out, sizeof(out));
	ck_assert_str_eq(out, "1234567");
	mp_get_strcut(&f.r, "c", out, sizeof(out));
	ck_assert_str_eq(out, "123456");
	mp_get_strcut(&f.r, "d", out, sizeof(out));
	ck_assert_str_eq(out, "12345");
	mp_get_strcut(&f.r, "e", out, sizeof(out));
	ck_assert_str_eq(out, "\x80\x80\x80\x80");
	mp_get_strcut(&f.r, "f", out, sizeof(out));
	close_with(&f, "test: f holds a NUL byte; it must not");
}
END_TEST

START_TEST(bytes)
{
	const uint8_t *p = NULL;
	struct fixture f;
	size_t n = 0;

	open_text(&f, "{'a':b'\\x00\\x01','b':'xy','c':'','d':b'123','e':7}");
	mp_get_bytes(&f.r, "a", 1, 2, &p, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_mem_eq(p, "\0\1", 2);
	mp_get_bytes(&f.r, "b", 2, 2, &p, &n);
	ck_assert_mem_eq(p, "xy", 2);
	mp_get_bytes(&f.r, "c", 0, 2, &p, &n);
	ck_assert_uint_eq(n, 0);
	ck_assert_ptr_nonnull(p);
	mp_get_bytes(&f.r, "d", 0, 2, &p, &n);
	close_with(&f, "test: d is 3 bytes long; it must be 0 to 2");
	open_text(&f, "{'e':7}");
	mp_get_bytes(&f.r, "e", 0, 2, &p, &n);
	close_with(&f, "test: e is an integer; it must be bytes");
}
END_TEST

START_TEST(vectors)
{
	static const struct {
		const char *text;
		const char *message;
	} cases[] = {
		{"{'v':['a',b'bc','']}", NULL},
		{"{'v':'a'}", "test: v is a text; it must be an array of texts"},
		{"{'v':{}}", "test: v is a map; it must be an array of texts"},
		{"{'v':['a','b','c','d']}", "test: v has 4 entries; it must have at most 3"},
		{"{'v':['a',nil,'c']}", "test: v[1] is nil; it must be a text"},
		{"{'v':['a','b',7]}", "test: v[2] is an integer; it must be a text"},
		{"{'v':['a','b\\x00','c']}", "test: v[1] holds a NUL byte; it must not"},
	};
	char **v = NULL;
	struct fixture f;
	size_t n = 99;

	open_text(&f, cases[_i].text);
	mp_get_strv(&f.r, "v", 3, &v, &n);
	if (!cases[_i].message) {
		ck_assert_uint_eq(n, 3);
		ck_assert_str_eq(v[0], "a");
		ck_assert_str_eq(v[1], "bc");
		ck_assert_str_eq(v[2], "");
		ck_assert_ptr_null(v[3]);
	} else {
		ck_assert_ptr_null(v);
		ck_assert_uint_eq(n, 99);
	}
	close_with(&f, cases[_i].message);
}
END_TEST

START_TEST(maps_of_texts)
{
	static const struct {
		const char *text;
		const char *message;
	} cases[] = {
		{"{'m':{'A':'1','':'','B':nil}}", NULL},
		{"{'m':['A']}", "test: m is an array; it must be a map of texts"},
		{"{'m':{'A':'','B':'','C':'','D':''}}",
		 "test: m has 4 entries; it must have at most 3"},
		{"{'m':{'A\\x00':''}}", "test: a name in m holds a NUL byte; it must not"},
		{"{'m':{'A':'\\x00'}}", "test: m[\"A\"] holds a NUL byte; it must not"},
		{"{'m':{'AB':7}}", "test: m[\"AB\"] is an integer; it must be a text"},
		{"{'m':{'012345678901234567890123456789012345678901234567890123456789':7}}",
		 "test: m[\"012345678901234567890123456789012345678901234567\"] is an integer; "
		 "it must be a text"},
	};
	char **v = NULL;
	struct fixture f;
	size_t n = 99;

	open_text(&f, cases[_i].text);
	mp_get_strmap(&f.r, "m", 3, &v, &n);
	if (!cases[_i].message) {
		ck_assert_uint_eq(n, 3);
		ck_assert_str_eq(v[0], "A");
		ck_assert_str_eq(v[1], "1");
		ck_assert_str_eq(v[2], "");
		ck_assert_str_eq(v[3], "");
		ck_assert_str_eq(v[4], "B");
		ck_assert_ptr_null(v[5]);
		ck_assert_ptr_null(v[6]);
	} else {
		ck_assert_ptr_null(v);
	}
	close_with(&f, cases[_i].message);
}
END_TEST

START_TEST(empty_containers)
{
	char **v = NULL, **m = NULL;
	size_t n = 9, pairs = 9;
	struct fixture f;

	open_text(&f, "{'v':[],'m':{}}");
	mp_get_strv(&f.r, "v", 3, &v, &n);
	mp_get_strmap(&f.r, "m", 3, &m, &pairs);
	ck_assert_uint_eq(n, 0);
	ck_assert_uint_eq(pairs, 0);
	ck_assert_ptr_null(v[0]);
	ck_assert_ptr_null(m[0]);
	close_with(&f, NULL);
}
END_TEST

START_TEST(nested_readers_share_the_error)
{
	const msgpack_object *map = NULL;
	struct mp_reader in;
	struct fixture f;
	uint64_t v = 0;

	open_text(&f, "{'in':{'k':9},'k':1}");
	mp_get_map(&f.r, "in", &map);
	mp_reader_init(&in, &f.doc, map, "test: in.", &f.err);
	mp_get_uint(&in, "k", 0, 5, &v);
	ck_assert(!mp_ok(&f.r));
	mp_get_uint(&f.r, "k", 0, 5, &v);
	ck_assert_uint_eq(v, 0);
	close_with(&f, "test: in.k is 9; it must be 0 to 5");
	open_text(&f, "{'in':[]}");
	mp_get_map(&f.r, "in", &map);
	close_with(&f, "test: in is an array; it must be a map");
}
END_TEST

START_TEST(the_first_failure_stays)
{
	char **v = NULL;
	struct fixture f;
	uint64_t u = 0;
	bool b = false;
	size_t n;

	open_text(&f, "{'a':1,'b':true,'v':['x']}");
	mp_fail(&f.r, "first %d", 1);
	mp_fail(&f.r, "second");
	mp_get_uint(&f.r, "a", 0, 5, &u);
	mp_get_bool(&f.r, "b", &b);
	mp_get_strv(&f.r, "v", 3, &v, &n);
	mp_require(&f.r, "nothing");
	ck_assert(u == 0 && !b && !v);
	close_with(&f, "test: first 1");
}
END_TEST

START_TEST(names)
{
	static const char *const good[] = {"a", "A-b_c.9", "0", "_x", "12345678"};
	static const char *const bad[] = {"",	 ".a",	     "-a",	  "a b",
					  "a/b", "\xc3\xa9", "123456789", "a\n"};
	struct fixture f;
	char out[9] = "";

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert(hutch_name_valid(good[i], strlen(good[i]), 8));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert(!hutch_name_valid(bad[i], strlen(bad[i]), 8));
	ck_assert(!hutch_name_valid("a\0b", 3, 8));
	open_text(&f, "{'k':'12345678','l':'a b'}");
	mp_get_name(&f.r, "k", 64, out, sizeof(out));
	ck_assert_str_eq(out, "12345678");
	mp_get_name(&f.r, "l", 64, out, sizeof(out));
	close_with(&f, "test: l is \"a b\"; it must be 1 to 8 of A-Z a-z 0-9 . _ -, not starting "
		       "with . or -");
	open_text(&f, "{'k':7}");
	mp_get_name(&f.r, "k", 64, out, sizeof(out));
	close_with(&f, "test: k is an integer; it must be a text");
}
END_TEST

START_TEST(params_may_be_left_out)
{
	static const uint8_t bad[] = {0x81, 0xa1};
	struct hutch_error err;
	struct mp_reader r;
	struct mp_doc doc;

	ck_assert_int_eq(mp_params_open(&doc, &r, NULL, 0, "x.y", &err), 0);
	ck_assert_uint_eq(r.map->via.map.size, 0);
	ck_assert_int_eq(mp_close(&r), 0);
	ck_assert_int_eq(mp_params_open(&doc, &r, bad, sizeof(bad), "x.y", &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_PROTOCOL);
	ck_assert_ptr_eq(strstr(err.message, "x.y: payload:"), err.message);
	mp_doc_free(&doc);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mp_reader");
	TCase *tc = tcase_create("getters");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, absent_and_nil_leave_the_default, 0, 2);
	tcase_add_test(tc, required_keys);
	tcase_add_loop_test(tc, integers, 0, 19);
	tcase_add_test(tc, integers_of_32_bits);
	tcase_add_test(tc, booleans);
	tcase_add_loop_test(tc, texts, 0, 13);
	tcase_add_test(tc, terminating_spoils_no_neighbour);
	tcase_add_test(tc, long_texts_can_be_cut);
	tcase_add_test(tc, bytes);
	tcase_add_loop_test(tc, vectors, 0, 7);
	tcase_add_loop_test(tc, maps_of_texts, 0, 7);
	tcase_add_test(tc, empty_containers);
	tcase_add_test(tc, nested_readers_share_the_error);
	tcase_add_test(tc, the_first_failure_stays);
	tcase_add_test(tc, names);
	tcase_add_test(tc, params_may_be_left_out);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
