/* SPDX-License-Identifier: Apache-2.0 */
/* The VM's states: every move, allowed and forbidden; the record that outlives the broker. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm_record.h"
#include "host/hutchd/vm_state.h"

START_TEST(moves)
{
	static const char *const allowed[VM_STATES] = {
		[VM_STARTING] = "booting running paused parked stopping dead",
		[VM_BOOTING] = "starting running stopping dead",
		[VM_RUNNING] = "paused parked stopping dead",
		[VM_PAUSED] = "running parked stopping dead",
		[VM_PARKED] = "running stopping dead",
		[VM_STOPPING] = "dead",
		[VM_DEAD] = "",
	};

	log_setup("test", LOG_LEVEL_ERROR + 1, 0);
	for (int from = 0; from < VM_STATES; from++)
		for (int to = 0; to < VM_STATES; to++) {
			enum vm_state s = (enum vm_state)from;
			bool want = strstr(allowed[from], vm_state_name((enum vm_state)to)) != NULL;

			ck_assert_int_eq(vm_state_set(&s, (enum vm_state)to, "vm"), want);
			ck_assert_int_eq(s, want ? to : from);
		}
}
END_TEST

static int make_dir(char *path)
{
	strcpy(path, "/tmp/hutch-record-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(path));
	return dir_open(AT_FDCWD, path);
}

static void remove_dir(int fd, const char *path)
{
	unlinkat(fd, VM_RECORD_FILE, 0);
	close(fd);
	rmdir(path);
}

START_TEST(record_round_trip)
{
	const char *pairs[] = {"purpose", "tests", "utf8", "\xc3\xa4\xe2\x82\xac", NULL};
	struct vm_record r = {.owner_uid = 4242,
			      .step = STEP_RUNNING,
			      .args_hash = 0xfedcba9876543210u,
			      .memory_mib = 256,
			      .vcpus = 2,
			      .cid = 0x7fffffff,
			      .ttl_ms = 5,
			      .deadline_ms = UINT64_MAX / 4,
			      .accel = ACCEL_TCG,
			      .process = {.pid = 77, .start_time = 123456789},
			      .generation = 1,
			      .start = 3,
			      .idle = {1000, UINT64_MAX / 4},
			      .asleep_ms = 1700000000000,
			      .asleep_by_idle = true};
	struct vm_record back;
	struct hutch_error err;
	char path[64];
	int fd = make_dir(path);

	hutch_error_clear(&err);
	strcpy(r.id, "11111111-2222-3333-4444-555555555555");
	strcpy(r.name, "a.name_with-all");
	strcpy(r.machine_id, "0123456789abcdef0123456789abcdef");
	strcpy(r.accel_reason, "it says \"no\"\n\\ here");
	r.metadata = vm_metadata_copy((char *const *)(const void *)pairs);
	ck_assert_int_eq(vm_record_save(&r, fd), 0);
	ck_assert_int_eq(vm_record_load(&back, fd, &err), 0);
	ck_assert_str_eq(back.id, r.id);
	ck_assert_str_eq(back.name, r.name);
	ck_assert_str_eq(back.accel_reason, r.accel_reason);
	ck_assert_uint_eq(back.args_hash, r.args_hash);
	ck_assert_uint_eq(back.deadline_ms, r.deadline_ms);
	ck_assert_int_eq(back.process.pid, 77);
	ck_assert_uint_eq(back.process.start_time, 123456789);
	ck_assert_int_eq(back.step, STEP_RUNNING);
	ck_assert_int_eq(back.accel, ACCEL_TCG);
	ck_assert_str_eq(back.machine_id, r.machine_id);
	ck_assert_uint_eq(back.start, 3);
	ck_assert_uint_eq(back.idle.pause_after_ms, 1000);
	ck_assert_uint_eq(back.idle.park_after_ms, r.idle.park_after_ms);
	ck_assert_uint_eq(back.asleep_ms, r.asleep_ms);
	ck_assert(back.asleep_by_idle);
	for (int i = 0; pairs[i]; i++)
		ck_assert_str_eq(back.metadata[i], pairs[i]);
	ck_assert_ptr_null(back.metadata[4]);
	vm_record_free(&back);
	vm_record_free(&r);
	remove_dir(fd, path);
}
END_TEST

/* Cut at every byte, it is refused by name; nothing is read from it. */
START_TEST(record_cut_anywhere)
{
	struct vm_record r = {.step = STEP_BOOTING}, back;
	struct hutch_error err;
	char path[64], *text;
	int fd = make_dir(path);
	size_t len = 0;

	ck_assert_int_eq(vm_record_save(&r, fd), 0);
	text = file_read(fd, VM_RECORD_FILE, 1u << 16, &len);
	ck_assert_ptr_nonnull(text);
	for (size_t n = 0; n < len; n++) {
		hutch_error_clear(&err);
		ck_assert_int_eq(file_write_atomic(fd, VM_RECORD_FILE, text, n, false), 0);
		ck_assert_int_eq(vm_record_load(&back, fd, &err), -1);
		ck_assert_int_ne(err.kind, HUTCH_OK);
		ck_assert_ptr_null(back.metadata);
	}
	free(text);
	remove_dir(fd, path);
}
END_TEST

/* Each member that came later is as if it were nothing; one that is there has to be right. */
START_TEST(record_of_an_older_broker)
{
	static const char *const later[] = {"\"machine_id\"",	       "\"start\"",
					    "\"idle_pause_after_ms\"", "\"idle_park_after_ms\"",
					    "\"asleep_ms\"",	       "\"asleep_by_idle\""};
	struct vm_record r = {.step = STEP_PARKED, .start = 3, .asleep_by_idle = true}, back;
	struct hutch_error err;
	char path[64], *text;
	int fd = make_dir(path);
	size_t len = 0;

	ck_assert_int_eq(vm_record_save(&r, fd), 0);
	text = file_read(fd, VM_RECORD_FILE, 1u << 16, &len);
	for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
		char *at = strstr(text, later[i]);

		ck_assert_msg(at != NULL, "%s", later[i]);
		at[1] = 'X'; /* another name */
	}
	hutch_error_clear(&err);
	ck_assert_int_eq(file_write_atomic(fd, VM_RECORD_FILE, text, len, false), 0);
	ck_assert_int_eq(vm_record_load(&back, fd, &err), 0);
	ck_assert(back.step == STEP_PARKED && back.start == 0 && !back.asleep_by_idle);
	free(text);
	remove_dir(fd, path);
}
END_TEST

START_TEST(record_wrong_members)
{
	static const char *const bad[][2] = {
		{"\"step\": \"booting\"", "\"step\": \"walking\""},
		{"\"pid\": 0", "\"pid\": -1"},
		{"\"cid\": 0", "\"cid\": 4294967296"},
		{"\"version\": 1", "\"version\": 2"},
		{"\"accel\": \"auto\"", "\"accel\": 3"},
		{"\"metadata\": {}", "\"metadata\": {\"a\": 1}"},
		{"\"name\": \"\"", "\"nam\": \"\""},
		{"\"start\": 0", "\"start\": -1"},
		{"\"machine_id\": \"\"", "\"machine_id\": \"012345678901234567890123456789012\""},
	};
	struct vm_record r = {.step = STEP_BOOTING}, back;
	struct hutch_error err;
	char path[64], *text;
	int fd = make_dir(path);
	size_t len = 0;

	ck_assert_int_eq(vm_record_save(&r, fd), 0);
	text = file_read(fd, VM_RECORD_FILE, 1u << 16, &len);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char changed[4096], *at = strstr(text, bad[i][0]);

		ck_assert_msg(at != NULL, "%s", bad[i][0]);
		snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, bad[i][1],
			 at + strlen(bad[i][0]));
		ck_assert_int_eq(file_write_atomic(fd, VM_RECORD_FILE, changed, strlen(changed),
						   false),
				 0);
		hutch_error_clear(&err);
		ck_assert_int_eq(vm_record_load(&back, fd, &err), -1);
		ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	}
	free(text);
	remove_dir(fd, path);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vm_state");
	TCase *t = tcase_create("states and record");
	SRunner *r;
	int failed;

	tcase_add_test(t, moves);
	tcase_add_test(t, record_round_trip);
	tcase_add_test(t, record_cut_anywhere);
	tcase_add_test(t, record_of_an_older_broker);
	tcase_add_test(t, record_wrong_members);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
