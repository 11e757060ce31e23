/* SPDX-License-Identifier: Apache-2.0 */
/* vm.* and template.*: round trips, every refusal in its words, prefixes and mutations. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/msg_vm.h"
#include "tests/unit/mp_mutate.h"
#include "tests/unit/mp_text.h"

START_TEST(create_defaults)
{
	struct hutch_error err;
	struct vm_create m;
	struct mp_buf b = {0};

	ck_assert_int_eq(vm_create_decode(&m, NULL, 0, &err), 0);
	ck_assert_str_eq(m.template_name, "base");
	ck_assert_str_eq(m.name, "");
	ck_assert_uint_eq(m.ttl_ms, 3600000);
	ck_assert_uint_eq(m.timeout_ms, 60000);
	ck_assert(!m.memory_mib && !m.vcpus && !m.metadata_pairs && !m.metadata);
	vm_create_encode_params(&b, &m);
	ck_assert_uint_eq(b.len, 3);
	vm_create_free(&m);
	vm_create_free(&m);
	mp_buf_free(&b);
}
END_TEST

#define FULL                                                                                              \
	"{'template':'t.1','name':'my_vm','ttl_ms':2592000000,'timeout_ms':3600000,"                      \
	"'memory_mib':65536,'vcpus':32,'disk_mib':16,'metadata':{'a':'1','gone':nil,'b':'\\xff','c':''}," \
	"'idle':{'pause_after_ms':1000,'park_after_ms':2592000000},'share_group':'users'}"

static void check_full(const struct vm_create *m)
{
	ck_assert_str_eq(m->template_name, "t.1");
	ck_assert_str_eq(m->name, "my_vm");
	ck_assert_uint_eq(m->ttl_ms, HUTCH_MAX_TTL_MS);
	ck_assert_uint_eq(m->timeout_ms, 3600000);
	ck_assert_uint_eq(m->memory_mib, 65536);
	ck_assert_uint_eq(m->vcpus, 32);
	ck_assert_uint_eq(m->disk_mib, 16);
	ck_assert_uint_eq(m->metadata_pairs, 3);
	ck_assert_str_eq(m->metadata[0], "a");
	ck_assert_str_eq(m->metadata[1], "1");
	ck_assert_str_eq(m->metadata[2], "b");
	ck_assert_str_eq(m->metadata[3], "\xff");
	ck_assert_str_eq(m->metadata[5], "");
	ck_assert_ptr_null(m->metadata[6]);
	ck_assert_uint_eq(m->idle.pause_after_ms, 1000);
	ck_assert_str_eq(m->share_group, "users");
	ck_assert_uint_eq(m->idle.park_after_ms, HUTCH_MAX_TTL_MS);
}

START_TEST(create_round_trip)
{
	struct vm_create m, again;
	struct hutch_error err;
	struct mp_buf b = {0};
	size_t len;
	uint8_t *buf = mp_text(FULL, &len);

	ck_assert_int_eq(vm_create_decode(&m, buf, len, &err), 0);
	free(buf);
	check_full(&m);
	vm_create_encode_params(&b, &m);
	ck_assert(!b.failed);
	vm_create_free(&m);
	ck_assert_int_eq(vm_create_decode(&again, b.data, b.len, &err), 0);
	check_full(&again);
	vm_create_free(&again);
	mp_buf_free(&b);
}
END_TEST

static const struct {
	const char *text, *message;
} refusals[] = {
	{"{'template':'../etc'}",
	 "template is \"../etc\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, "
	 "not starting with . or -"},
	{"{'template':''}",
	 "template is \"\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting "
	 "with . or -"},
	{"{'snapshot':'..'}",
	 "snapshot is \"..\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting with . or -"},
	{"{'snapshot':'s','template':'base'}", "'template' and 'snapshot' exclude each other"},
	{"{'snapshot':'s','cold':true}", "'cold' and 'snapshot' exclude each other"},
	{"{'cold':1}", "cold is an integer; it must be a boolean"},
	{"{'name':'a/b'}",
	 "name is \"a/b\"; it must be 1 to 128 of A-Z a-z 0-9 . _ -, not starting with . or -"},
	{"{'name':7}", "name is an integer; it must be a text"},
	{"{'ttl_ms':0}", "ttl_ms is 0; it must be 1 to 2592000000"},
	{"{'ttl_ms':2592000001}", "ttl_ms is 2592000001; it must be 1 to 2592000000"},
	{"{'ttl_ms':-1}", "ttl_ms is -1; it must be 1 to 2592000000"},
	{"{'timeout_ms':0}", "timeout_ms is 0; it must be 1 to 3600000"},
	{"{'timeout_ms':3600001}", "timeout_ms is 3600001; it must be 1 to 3600000"},
	{"{'memory_mib':63}", "memory_mib is 63; it must be 64 to 65536"},
	{"{'memory_mib':4294967360}", "memory_mib is 4294967360; it must be 64 to 65536"},
	{"{'vcpus':0}", "vcpus is 0; it must be 1 to 32"},
	{"{'vcpus':33}", "vcpus is 33; it must be 1 to 32"},
	{"{'disk_mib':15}", "disk_mib is 15; it must be 16 to 65536"},
	{"{'disk_mib':65537}", "disk_mib is 65537; it must be 16 to 65536"},
	{"{'vcpus':1.5}", "vcpus is a float; it must be an integer"},
	{"{'idle':5}", "idle is an integer; it must be a map"},
	{"{'idle':{'park_after_ms':999}}",
	 "idle.park_after_ms is 999; it must be 0 or at least 1000"},
	{"{'metadata':[]}", "metadata is an array; it must be a map of texts"},
	{"{'metadata':{'':'x'}}", "metadata has an empty key; keys must not be empty"},
	{"{'metadata':{'a':1}}", "metadata[\"a\"] is an integer; it must be a text"},
	{"{'metadata':{'a':'\\x00'}}", "metadata[\"a\"] holds a NUL byte; it must not"},
};
#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

START_TEST(create_is_refused)
{
	char want[256];
	struct hutch_error err;
	struct vm_create m;
	size_t len;
	uint8_t *buf = mp_text(refusals[_i].text, &len);

	snprintf(want, sizeof(want), "vm.create: %s", refusals[_i].message);
	ck_assert_int_eq(vm_create_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_str_eq(err.message, want);
	vm_create_free(&m);
	free(buf);
}
END_TEST

START_TEST(create_from_a_snapshot)
{
	struct vm_create m;
	struct hutch_error err;
	struct mp_buf b = {0};
	size_t len;
	uint8_t *buf = mp_text("{'snapshot':'s.1','secrets':true}", &len);

	ck_assert_int_eq(vm_create_decode(&m, buf, len, &err), 0);
	ck_assert(m.secrets && !m.cold);
	ck_assert_str_eq(m.snapshot, "s.1");
	vm_create_encode_params(&b, &m);
	ck_assert(!b.failed);
	vm_create_free(&m);
	ck_assert_int_eq(vm_create_decode(&m, b.data, b.len, &err), 0);
	ck_assert(m.secrets && strcmp(m.snapshot, "s.1") == 0);
	vm_create_free(&m);
	mp_buf_free(&b);
	free(buf);
}
END_TEST

static const struct {
	const char *text, *message;
} forks[] = {
	{"{'count':0}", "vm.fork: count is 0; it must be 1 to 64"},
	{"{'count':65}", "vm.fork: count is 65; it must be 1 to 64"},
	{"{'name':'-'}",
	 "vm.fork: name is \"-\"; it must be 1 to 128 of A-Z a-z 0-9 . _ -, not starting with . or -"},
	{"{'ttl_ms':0}", "vm.fork: ttl_ms is 0; it must be 1 to 2592000000"},
	{"{'allow_secrets':1}", "vm.fork: allow_secrets is an integer; it must be a boolean"},
	{"{'metadata':{'':'x'}}", "vm.fork: metadata has an empty key; keys must not be empty"},
};

START_TEST(fork_is_refused)
{
	struct hutch_error err;
	struct vm_fork m;
	size_t len;
	uint8_t *buf = mp_text(forks[_i].text, &len);

	ck_assert_int_eq(vm_fork_decode(&m, buf, len, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_str_eq(err.message, forks[_i].message);
	vm_fork_free(&m);
	free(buf);
}
END_TEST

START_TEST(fork_params)
{
	static const char text[] =
		"{'count':64,'name':'w','ttl_ms':5,'metadata':{'a':nil,'b':'2'}}";
	struct hutch_error err;
	struct mp_buf b = {0};
	struct vm_fork m;
	char name[129];
	size_t len;
	uint8_t *buf = mp_text(text, &len);

	ck_assert_int_eq(vm_fork_decode(&m, NULL, 0, &err), 0);
	ck_assert(m.count == 1 && !m.name[0] && !m.ttl_ms && m.timeout_ms == 60000 &&
		  !m.has_metadata);
	vm_fork_free(&m);
	ck_assert_int_eq(vm_fork_decode(&m, buf, len, &err), 0);
	ck_assert(m.count == 64 && m.ttl_ms == 5 && m.has_metadata);
	ck_assert_str_eq(m.metadata[0], "b");
	ck_assert_ptr_null(m.metadata[2]);
	vm_fork_free(&m);
	free(buf);

	memset(name, 'n', sizeof(name));
	name[126] = '\0';
	for (unsigned count = 1; count <= 2; count++) {
		mp_map_begin(&b);
		mp_kv_uint(&b, "count", count);
		mp_kv_str(&b, "name", name);
		mp_map_end(&b);
		ck_assert_int_eq(vm_fork_decode(&m, b.data, b.len, &err), count == 1 ? 0 : -1);
		vm_fork_free(&m);
		mp_buf_free(&b);
		mp_buf_init(&b, 0);
	}
	ck_assert_str_eq(err.message,
			 "vm.fork: 'name' is 126 bytes; with this count it must be at most 125");
}
END_TEST

/* entries pairs of 4 bytes, the last value longer by extra. */
static void put_metadata(struct mp_buf *b, unsigned entries, size_t extra)
{
	static char filler[HUTCH_MAX_METADATA_BYTES + 1];
	char key[16];

	memset(filler, 'x', sizeof(filler));
	mp_map_begin(b);
	mp_key(b, "metadata");
	mp_map_begin(b);
	for (unsigned i = 0; i < entries; i++) {
		snprintf(key, sizeof(key), "k%02u", i);
		mp_key(b, key);
		mp_put_strn(b, filler, 1 + (i == entries - 1 ? extra : 0));
	}
	mp_map_end(b);
	mp_map_end(b);
}

START_TEST(metadata_limits)
{
	static const struct {
		unsigned entries;
		size_t extra;
		const char *message;
	} cases[] = {
		{64, 4096 - 256, ""},
		{64, 4096 - 255, "vm.create: metadata is 4097 bytes; it must be at most 4096"},
		{65, 0, "vm.create: metadata has 65 entries; it must have at most 64"},
	};
	struct hutch_error err;
	struct mp_buf b = {0};
	struct vm_create m;

	put_metadata(&b, cases[_i].entries, cases[_i].extra);
	ck_assert_int_eq(vm_create_decode(&m, b.data, b.len, &err), _i ? -1 : 0);
	ck_assert_str_eq(err.message, cases[_i].message);
	vm_create_free(&m);
	mp_buf_free(&b);
}
END_TEST

static const struct {
	char method; /* i: set_idle, t: set_ttl, k: kill, r: template.remove */
	const char *text, *want, *message;
} smalls[] = {
	{'i', NULL, "0 0", NULL},
	{'i', "{'pause_after_ms':1000,'park_after_ms':0}", "1000 0", NULL},
	{'i', "{'park_after_ms':2592000001}", NULL,
	 "vm.set_idle: park_after_ms is 2592000001; it must be 0 to 2592000000"},
	{'i', "{'pause_after_ms':1}", NULL,
	 "vm.set_idle: pause_after_ms is 1; it must be 0 or at least 1000"},
	{'t', "{'ttl_ms':1}", "1", NULL},
	{'t', "{'ttl_ms':2592000000}", "2592000000", NULL},
	{'t', NULL, NULL, "vm.set_ttl: ttl_ms is missing"},
	{'t', "{'ttl_ms':0}", NULL, "vm.set_ttl: ttl_ms is 0; it must be 1 to 2592000000"},
	{'t', "{'ttl_ms':2592000001}", NULL,
	 "vm.set_ttl: ttl_ms is 2592000001; it must be 1 to 2592000000"},
	{'k', NULL, "0", NULL},
	{'k', "{'all':true}", "1", NULL},
	{'k', "{'all':'yes'}", NULL, "vm.kill: all is a text; it must be a boolean"},
	{'r', "{'name':'base'}", "base", NULL},
	{'r', "{}", NULL, "template.remove: name is missing"},
	{'r', "{'name':'..'}", NULL,
	 "template.remove: name is \"..\"; it must be 1 to 64 of A-Z a-z 0-9 . _ -, not starting with "
	 ". or -"},
};

START_TEST(small_params)
{
	char got[128] = "", name[HUTCH_MAX_TEMPLATE_NAME + 1];
	struct hutch_error err;
	struct vm_idle idle;
	uint64_t ttl;
	size_t len = 0;
	uint8_t *buf = smalls[_i].text ? mp_text(smalls[_i].text, &len) : NULL;
	bool all;
	int rc;

	if (smalls[_i].method == 'i') {
		rc = vm_set_idle_decode(&idle, buf, len, &err);
		snprintf(got, sizeof(got), "%llu %llu", (unsigned long long)idle.pause_after_ms,
			 (unsigned long long)idle.park_after_ms);
	} else if (smalls[_i].method == 't') {
		rc = vm_set_ttl_decode(&ttl, buf, len, &err);
		snprintf(got, sizeof(got), "%llu", (unsigned long long)ttl);
	} else if (smalls[_i].method == 'k') {
		rc = vm_kill_decode(&all, buf, len, &err);
		snprintf(got, sizeof(got), "%d", all);
	} else {
		rc = template_remove_decode(name, buf, len, &err);
		snprintf(got, sizeof(got), "%s", name);
	}
	free(buf);
	ck_assert_int_eq(rc, smalls[_i].message ? -1 : 0);
	ck_assert_str_eq(err.message, smalls[_i].message ? smalls[_i].message : "");
	if (!smalls[_i].message)
		ck_assert_str_eq(got, smalls[_i].want);
}
END_TEST

static int decode_create(const void *buf, size_t len, struct hutch_error *err)
{
	struct vm_create m;
	int rc = vm_create_decode(&m, buf, len, err);

	vm_create_free(&m);
	return rc;
}

static int decode_fork(const void *buf, size_t len, struct hutch_error *err)
{
	struct vm_fork m;
	int rc = vm_fork_decode(&m, buf, len, err);

	vm_fork_free(&m);
	return rc;
}

static int decode_remove(const void *buf, size_t len, struct hutch_error *err)
{
	char name[HUTCH_MAX_TEMPLATE_NAME + 1];

	return template_remove_decode(name, buf, len, err);
}

START_TEST(prefixes_and_mutations)
{
	mp_mutate(FULL, decode_create);
	mp_mutate("{'name':'base'}", decode_remove);
	mp_mutate("{'count':64,'name':'w','ttl_ms':5,'metadata':{'a':nil,'b':'2'}}", decode_fork);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("msg_vm");
	TCase *tc = tcase_create("msg_vm");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, create_defaults);
	tcase_add_test(tc, create_round_trip);
	tcase_add_loop_test(tc, create_is_refused, 0, COUNT(refusals));
	tcase_add_test(tc, create_from_a_snapshot);
	tcase_add_loop_test(tc, fork_is_refused, 0, COUNT(forks));
	tcase_add_test(tc, fork_params);
	tcase_add_loop_test(tc, metadata_limits, 0, 3);
	tcase_add_loop_test(tc, small_params, 0, COUNT(smalls));
	tcase_add_test(tc, prefixes_and_mutations);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
