/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.*, template.snapshot and pool.*: what is taken, every refusal in its words, prefixes and mutations. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_snapshot.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

#define NAME_RULE "must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -"

static int decode_create(const void *buf, size_t len, struct hutch_error *err)
{
	struct snapshot_create m;

	return snapshot_create_decode(&m, buf, len, err);
}

static int decode_name(const void *buf, size_t len, struct hutch_error *err)
{
	char name[HUTCH_MAX_SNAPSHOT_NAME + 1];

	return snapshot_name_decode(name, "snapshot.info", buf, len, err);
}

static int decode_template(const void *buf, size_t len, struct hutch_error *err)
{
	struct template_snapshot m;

	return template_snapshot_decode(&m, buf, len, err);
}

static int decode_pool(const void *buf, size_t len, struct hutch_error *err)
{
	struct pool_set m;

	return pool_set_decode(&m, buf, len, err);
}

typedef int decoder(const void *buf, size_t len, struct hutch_error *err);

static const struct {
	decoder *decode;
	const char *text, *message; /* NULL: taken */
} cases[] = {
	{decode_create, "{'name':'s'}", NULL},
	{decode_create, NULL, "snapshot.create: name is missing"},
	{decode_create, "{'name':'a/b'}", "snapshot.create: name is \"a/b\"; it " NAME_RULE},
	{decode_create, "{'name':'..'}", "snapshot.create: name is \"..\"; it " NAME_RULE},
	{decode_create, "{'name':''}", "snapshot.create: name is \"\"; it " NAME_RULE},
	{decode_create, "{'name':'s','allow_secrets':1}",
	 "snapshot.create: allow_secrets is an integer; it must be a boolean"},
	{decode_name, "{'name':'s'}", NULL},
	{decode_name, "{'name':nil}", "snapshot.info: name is missing"},
	{decode_name, "{'name':'.s'}", "snapshot.info: name is \".s\"; it " NAME_RULE},
	{decode_template, "{'name':'base','memory_mib':64,'vcpus':32,'timeout_ms':1}", NULL},
	{decode_template, "{}", "template.snapshot: name is missing"},
	{decode_template, "{'name':'b','memory_mib':63}",
	 "template.snapshot: memory_mib is 63; it must be 64 to 65536"},
	{decode_template, "{'name':'b','vcpus':33}",
	 "template.snapshot: vcpus is 33; it must be 1 to 32"},
	{decode_template, "{'name':'b','timeout_ms':0}",
	 "template.snapshot: timeout_ms is 0; it must be 1 to 3600000"},
	{decode_pool, "{'template':'base','size':0}", NULL},
	{decode_pool, "{'template':'base','size':64}", NULL},
	{decode_pool, "{'template':'base'}", "pool.set: size is missing"},
	{decode_pool, "{'size':1}", "pool.set: template is missing"},
	{decode_pool, "{'template':'base','size':65}", "pool.set: size is 65; it must be 0 to 64"},
};
#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

START_TEST(params)
{
	struct hutch_error err;
	size_t len = 0;
	uint8_t *buf = cases[_i].text ? mp_text(cases[_i].text, &len) : NULL;
	int rc;

	hutch_error_clear(&err);
	rc = cases[_i].decode(buf, len, &err);
	free(buf);
	ck_assert_int_eq(rc, cases[_i].message ? -1 : 0);
	ck_assert_str_eq(err.message, cases[_i].message ? cases[_i].message : "");
}
END_TEST

START_TEST(values_and_defaults)
{
	struct template_snapshot t;
	struct snapshot_create c;
	struct hutch_error err;
	struct pool_set p;
	size_t len;
	uint8_t *buf = mp_text("{'name':'n','allow_secrets':true,'template':'t','size':3}", &len);

	ck_assert_int_eq(snapshot_create_decode(&c, buf, len, &err), 0);
	ck_assert(strcmp(c.name, "n") == 0 && c.allow_secrets);
	ck_assert_int_eq(template_snapshot_decode(&t, buf, len, &err), 0);
	ck_assert(strcmp(t.name, "n") == 0 && !t.memory_mib && !t.vcpus && t.timeout_ms == 60000);
	ck_assert_int_eq(pool_set_decode(&p, buf, len, &err), 0);
	ck_assert(strcmp(p.template_name, "t") == 0 && p.size == 3);
	free(buf);
}
END_TEST

START_TEST(prefixes_and_mutations)
{
	mp_mutate("{'name':'s','allow_secrets':true}", decode_create);
	mp_mutate("{'name':'s'}", decode_name);
	mp_mutate("{'name':'base','memory_mib':64,'vcpus':32,'timeout_ms':1}", decode_template);
	mp_mutate("{'template':'base','size':64}", decode_pool);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("msg_snapshot");
	TCase *tc = tcase_create("msg_snapshot");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, params, 0, COUNT(cases));
	tcase_add_test(tc, values_and_defaults);
	tcase_add_test(tc, prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
