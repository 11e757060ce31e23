/* SPDX-License-Identifier: Apache-2.0 */
/* fs.*: parameters of every method, their defaults and refusals, and records. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "protocol/msg_fs.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct hutch_error err;

static int decode(struct fs_call *m, enum fs_method method, const char *text)
{
	size_t len;
	uint8_t *p = mp_text(text, &len);
	int ret = fs_call_decode(m, method, p, len, &err);

	free(p);
	return ret;
}

START_TEST(method_names)
{
	for (int i = 0; i < FS_METHODS; i++)
		ck_assert_int_eq(fs_method_find(fs_method_name((enum fs_method)i)), i);
	ck_assert_int_eq(fs_method_find("fs.none"), -1);
	ck_assert_int_eq(fs_method_find("stat"), -1);
	ck_assert_int_eq(fs_method_find("fs.stat2"), -1);
}
END_TEST

START_TEST(defaults)
{
	struct fs_call m;

	ck_assert_int_eq(decode(&m, FS_WRITE, "{'path':'/f'}"), 0);
	ck_assert_uint_eq(m.given, FS_P_PATH);
	ck_assert(m.atomic && m.truncate && m.follow && m.replace && m.preserve && m.stat);
	ck_assert(!m.parents && !m.if_absent && !m.recursive && !m.missing_ok && !m.keep_owner);
	ck_assert_uint_eq(m.mode, 0644);
	ck_assert_uint_eq(m.uid, FS_NO_ID);
	ck_assert_uint_eq(m.gid, FS_NO_ID);
	ck_assert_uint_eq(m.depth, 1);
	ck_assert_int_eq(m.sync, FS_SYNC_NONE);
	ck_assert_ptr_null(m.user);
	ck_assert_ptr_null(m.root);
	ck_assert_ptr_null(m.names);
	fs_call_free(&m);
	ck_assert_int_eq(decode(&m, FS_MKDIR, "{'path':'/d'}"), 0);
	ck_assert_uint_eq(m.mode, 0755);
	fs_call_free(&m);
	ck_assert_int_eq(decode(&m, FS_WRITE, "{'path':'/f','atomic':false,'offset':0}"), 0);
	ck_assert(!m.truncate && (m.given & FS_P_OFFSET));
	fs_call_free(&m);
}
END_TEST

/* A key that the method does not have is ignored, whatever its value is. */
START_TEST(foreign_keys)
{
	struct fs_call m;

	ck_assert_int_eq(decode(&m, FS_STAT, "{'path':'/f','mode':'x','sha256':1,'owner':true}"),
			 0);
	ck_assert_uint_eq(m.given, FS_P_PATH);
	fs_call_free(&m);
}
END_TEST

static const struct {
	enum fs_method method;
	const char *text;
	const char *says;
} wrong[] = {
	{FS_STAT, "{}", "path"},
	{FS_STAT, "{'path':nil}", "path"},
	{FS_STAT, "{'path':''}", "path is empty"},
	{FS_STAT, "{'path':1}", "path"},
	{FS_STAT, "{'path':'a\\x00b'}", "NUL"},
	{FS_STAT, "{'path':'/','root':''}", "root is empty"},
	{FS_STAT, "{'path':'/','root':'r'}", "must start with /"},
	{FS_STAT, "{'path':'/','user':''}", "user is empty"},
	{FS_STAT, "{'path':'/','follow':1}", "follow"},
	{FS_LIST, "{'path':'/','depth':4294967296}", "depth"},
	{FS_LIST, "{'path':'/','depth':-1}", "depth"},
	{FS_MOVE, "{'path':'/'}", "to"},
	{FS_COPY, "{'path':'/'}", "to"},
	{FS_LINK, "{'path':'/'}", "to"},
	{FS_SYMLINK, "{'path':'/'}", "target"},
	{FS_SYMLINK, "{'path':'/','target':''}", "target is empty"},
	{FS_CHMOD, "{'path':'/'}", "mode"},
	{FS_CHMOD, "{'path':'/','mode':4096}", "mode"},
	{FS_CHMOD, "{'path':'/','mode':'0644'}", "mode"},
	{FS_CHOWN, "{'path':'/'}", "uid, gid or owner"},
	{FS_CHOWN, "{'path':'/','uid':4294967295}", "uid"},
	{FS_CHOWN, "{'path':'/','gid':1,'owner':'a'}", "both"},
	{FS_CHOWN, "{'path':'/','owner':true}", "owner"},
	{FS_TAR_IN, "{'path':'/','owner':'root'}", "owner"},
	{FS_TAR_OUT, "{'path':'/','names':[]}", "names is empty"},
	{FS_TAR_OUT, "{'path':'/','names':['']}", "names[0]"},
	{FS_TAR_OUT, "{'path':'/','names':['a','/b']}", "names[1]"},
	{FS_TAR_OUT, "{'path':'/','names':['..']}", "names[0]"},
	{FS_TAR_OUT, "{'path':'/','names':['a/../b']}", "names[0]"},
	{FS_TAR_OUT, "{'path':'/','names':['a/..']}", "names[0]"},
	{FS_TAR_OUT, "{'path':'/','names':'a'}", "names"},
	{FS_TAR_OUT, "{'path':'/','exclude':[1]}", "exclude"},
	{FS_WRITE, "{'path':'/','sync':'disk'}", "none, file or all"},
	{FS_WRITE, "{'path':'/','sha256':'00'}", "64 lower-case"},
	{FS_WRITE, "{'path':'/','sha256':'" SHA "0'}", "sha256"},
	{FS_WRITE, "{'path':'/','offset':1}", "atomic"},
	{FS_WRITE, "{'path':'/','truncate':false}", "atomic"},
	{FS_WRITE, "{'path':'/','atomic':false,'sha256':'" SHA "'}", "need atomic"},
	{FS_WRITE, "{'path':'/','atomic':false,'if_size':1}", "need atomic"},
	{FS_WRITE, "{'path':'/','if_absent':true,'if_size':1}", "if_absent"},
	{FS_WRITE, "{'path':'/','size':1.5}", "size"},
	{FS_UTIMES, "{'path':'/','mtime_ns':9223372036854775808}", "mtime_ns"},
};

START_TEST(refused)
{
	struct fs_call m;

	ck_assert_int_eq(decode(&m, wrong[_i].method, wrong[_i].text), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_msg(strstr(err.message, wrong[_i].says), "%s: %s", wrong[_i].text, err.message);
	ck_assert_int_eq(strncmp(err.message, fs_method_name(wrong[_i].method),
				 strlen(fs_method_name(wrong[_i].method))),
			 0);
	fs_call_free(&m);
}
END_TEST

/* Names that look like "..", and are not. */
START_TEST(names_with_dots)
{
	struct fs_call m;

	ck_assert_int_eq(decode(&m, FS_TAR_OUT, "{'path':'/','names':['..a','a..','a/...','.']}"),
			 0);
	ck_assert_uint_eq(m.nnames, 4);
	ck_assert_str_eq(m.names[2], "a/...");
	ck_assert_ptr_null(m.names[4]);
	fs_call_free(&m);
}
END_TEST

START_TEST(lengths)
{
	char text[HUTCH_MAX_PATH + 32];
	struct fs_call m;

	for (size_t n = HUTCH_MAX_PATH; n <= HUTCH_MAX_PATH + 1; n++) {
		strcpy(text, "{'path':'");
		memset(text + 9, 'x', n);
		strcpy(text + 9 + n, "'}");
		ck_assert_int_eq(decode(&m, FS_STAT, text), n > HUTCH_MAX_PATH ? -1 : 0);
		fs_call_free(&m);
	}
}
END_TEST

static const struct {
	enum fs_method method;
	const char *text;
} full[] = {
	{FS_STAT, "{'path':b'/\\xff','user':'u:g','root':'/r','follow':false}"},
	{FS_LIST, "{'path':'/','depth':4294967295,'stat':false}"},
	{FS_READ, "{'path':'/','offset':9223372036854775807,'length':0}"},
	{FS_TAR_OUT, "{'path':'/','names':['a','b/c'],'exclude':['*.o',b'\\xff']}"},
	{FS_WATCH, "{'path':'/','recursive':true}"},
	{FS_WRITE, "{'path':'/','mode':4095,'uid':0,'gid':4294967294,'parents':true,'size':1,"
		   "'sha256':'" SHA "','if_size':2,'if_sha256':'" SHA "','sync':'all'}"},
	{FS_WRITE, "{'path':'/','atomic':false,'offset':7,'truncate':true,'if_absent':true}"},
	{FS_APPEND, "{'path':'/','mode':384,'parents':true,'size':0,'sync':'file'}"},
	{FS_REMOVE, "{'path':'/','recursive':true,'missing_ok':true}"},
	{FS_COPY, "{'path':'/','to':'/b','recursive':true,'preserve':false,'replace':false,"
		  "'parents':true}"},
	{FS_SYMLINK, "{'path':'/','target':b'\\xfe'}"},
	{FS_CHOWN, "{'path':'/','owner':'a:b','follow':false,'recursive':true}"},
	{FS_UTIMES, "{'path':'/','mtime_ns':0,'atime_ns':9223372036854775807}"},
	{FS_TAR_IN, "{'path':'/','parents':true,'owner':true,'replace':false}"},
};

START_TEST(round_trip)
{
	struct mp_buf a = {0}, b = {0};
	struct fs_call m, again;

	ck_assert_msg(decode(&m, full[_i].method, full[_i].text) == 0, "%s", err.message);
	fs_call_encode_params(&a, &m);
	ck_assert_int_eq(fs_call_decode(&again, full[_i].method, a.data, a.len, &err), 0);
	ck_assert_uint_eq(again.given, m.given);
	fs_call_encode_params(&b, &again);
	ck_assert(!a.failed && !b.failed);
	ck_assert_uint_eq(a.len, b.len);
	ck_assert_int_eq(memcmp(a.data, b.data, a.len), 0);
	fs_call_free(&m);
	fs_call_free(&again);
	mp_buf_free(&a);
	mp_buf_free(&b);
}
END_TEST

/* What a caller in C sets; what it does not say it gives is left out. */
START_TEST(encodes_what_is_given)
{
	struct fs_call m = {.method = FS_WRITE,
			    .given = FS_P_PATH | FS_P_MODE | FS_P_RECURSIVE,
			    .path = "/f",
			    .user = "nobody",
			    .mode = 0600,
			    .recursive = true};
	struct mp_buf b = {0};
	struct fs_call got;

	fs_call_encode_params(&b, &m);
	ck_assert_int_eq(fs_call_decode(&got, FS_WRITE, b.data, b.len, &err), 0);
	ck_assert_uint_eq(got.given, FS_P_PATH | FS_P_MODE);
	ck_assert_uint_eq(got.mode, 0600);
	fs_call_free(&got);
	mp_buf_free(&b);
}
END_TEST

static int decode_write(const void *buf, size_t len, struct hutch_error *e)
{
	struct fs_call m;
	int ret = fs_call_decode(&m, FS_WRITE, buf, len, e);

	fs_call_free(&m);
	return ret;
}

static int decode_tar_out(const void *buf, size_t len, struct hutch_error *e)
{
	struct fs_call m;
	int ret = fs_call_decode(&m, FS_TAR_OUT, buf, len, e);

	fs_call_free(&m);
	return ret;
}

START_TEST(mutated)
{
	mp_mutate(full[5].text, decode_write);
	mp_mutate(full[3].text, decode_tar_out);
}
END_TEST

START_TEST(records)
{
	const struct fs_record in = {.path = "a/\xff",
				     .type = FS_TYPE_LINK,
				     .full = true,
				     .mode = 07777,
				     .uid = 1,
				     .gid = UINT32_MAX,
				     .size = HUTCH_MAX_UINT,
				     .nlink = 2,
				     .ino = UINT64_MAX,
				     .dev = 3,
				     .blocks = 4,
				     .mtime_ns = 5,
				     .atime_ns = 6,
				     .ctime_ns = 7,
				     .target = "b"};
	struct mp_buf b = {0};
	struct fs_record out;
	struct mp_reader r;
	struct mp_doc doc;

	fs_record_put(&b, &in);
	ck_assert_int_eq(mp_params_open(&doc, &r, b.data, b.len, "record", &err), 0);
	fs_record_get(&r, &out);
	ck_assert(mp_ok(&r) && out.full);
	ck_assert_str_eq(out.path, in.path);
	ck_assert_str_eq(out.target, in.target);
	ck_assert_int_eq(out.type, in.type);
	ck_assert_uint_eq(out.mode, in.mode);
	ck_assert_uint_eq(out.gid, in.gid);
	ck_assert_uint_eq(out.size, in.size);
	ck_assert_uint_eq(out.ino, in.ino);
	ck_assert_uint_eq(out.mtime_ns, in.mtime_ns);
	mp_close(&r);
	mp_buf_free(&b);
}
END_TEST

START_TEST(types)
{
	static const struct {
		uint32_t mode;
		const char *name;
	} known[] = {{S_IFREG, "file"},	   {S_IFDIR, "dir"},  {S_IFLNK, "link"},  {S_IFIFO, "fifo"},
		     {S_IFSOCK, "socket"}, {S_IFCHR, "char"}, {S_IFBLK, "block"}, {0, "unknown"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		ck_assert_str_eq(fs_type_name(fs_type_of_mode(known[i].mode | 0644)),
				 known[i].name);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("msg_fs");
	TCase *t = tcase_create("msg_fs");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_test(t, method_names);
	tcase_add_test(t, defaults);
	tcase_add_test(t, foreign_keys);
	tcase_add_loop_test(t, refused, 0, sizeof(wrong) / sizeof(wrong[0]));
	tcase_add_test(t, names_with_dots);
	tcase_add_test(t, lengths);
	tcase_add_loop_test(t, round_trip, 0, sizeof(full) / sizeof(full[0]));
	tcase_add_test(t, encodes_what_is_given);
	tcase_add_test(t, mutated);
	tcase_add_test(t, records);
	tcase_add_test(t, types);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
