/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice between KVM and TCG: probes with a QEMU that boots, aborts, hangs or lies, and what is
 * remembered.
 */
#include "host/hutchd/accel.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "protocol/msg.h"
#include "tests/unit/vmm_player.h"
#include "tests/unit/vmm_rig.h"

static struct event_base *base;
static struct launcher *launcher;
static struct accel *accel;
static struct template tpl;
static char self[256], device[96];

static struct {
	bool done;
	int calls;
	enum vmm_accel verdict;
	char reason[512];
} answer;

/* ---- the guest ---- */

static int dial_host(void)
{
	int fd = unix_connect(AT_FDCWD, "vsock_521", SOCK_STREAM);

	if (fd < 0 || fd_set_nonblock(fd, false) < 0)
		_exit(97);
	return fd;
}

static void say_hello(enum msg_role role)
{
	struct msg_hello hello = {.proto = HUTCH_PROTO_VERSION, .role = role, .name = "test"};
	struct mp_buf out;
	int fd = dial_host();

	mp_buf_init(&out, 0);
	if (msg_hello_encode(&out, &hello) < 0)
		_exit(96);
	for (size_t i = 0; i < out.len; i++) /* byte by byte */
		if (send(fd, out.data + i, 1, MSG_NOSIGNAL) != 1)
			_exit(0);
	mp_buf_free(&out);
	if (role != ROLE_AGENT)
		while (read(fd, &hello, 1) > 0)
			;
}

/* "--kvm HOW ...": QEMU, started by the script below. */
static void play_guest(int argc, char **argv)
{
	FILE *starts;

	if (argc < 3 || strcmp(argv[1], "--kvm") != 0)
		return;
	starts = fopen("../starts", "ae");
	if (!starts || fputs("x", starts) < 0)
		_exit(95);
	fclose(starts);
	if (strcmp(argv[2], "abort") == 0) {
		fputs("error: failed to set MSR 0x10a\n", stderr);
		raise(SIGKILL);
	}
	if (strcmp(argv[2], "exit") == 0)
		_exit(1);
	if (strcmp(argv[2], "lies") == 0) {
		int fd = dial_host();

		if (send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL) < 0)
			_exit(94);
		while (read(fd, &fd, 1) > 0)
			;
		say_hello(ROLE_CLIENT);
	}
	if (strcmp(argv[2], "hang") != 0 && strcmp(argv[2], "lies") != 0)
		say_hello(ROLE_AGENT);
	vmm_play(2, (char *[]){argv[0], "--id", NULL});
}

/* ---- the rig ---- */

static void write_qemu(const char *how)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "#!/bin/sh\n"
		 "[ \"$1\" != --version ] || { echo 'QEMU emulator version 9.9.9'; exit; }\n"
		 "exec %s --kvm %s \"$@\"\n",
		 self, how);
	rig_write("qemu", text);
	ck_assert_int_eq(fchmodat(rig_dir_fd, "qemu", 0700, 0), 0);
}

static void open_accel(const char *how, enum vmm_accel mode)
{
	char qemu[96], library[96];
	struct launcher_config config = {.template_dir = rig_dir,
					 .qemu = qemu,
					 .vmm_library = library};
	struct hutch_error err;

	write_qemu(how);
	snprintf(qemu, sizeof(qemu), "%s/qemu", rig_dir);
	snprintf(library, sizeof(library), "%s/library.so", rig_dir);
	rig_write("library.so", "");
	launcher = launcher_create(&config, &err);
	ck_assert_msg(launcher != NULL, "%s", err.message);
	ck_assert_str_eq(launcher_vmm_version(launcher), "9.9.9");
	base = event_base_new();
	launcher_attach(launcher, base, NULL, NULL);
	accel = accel_create(base, launcher, rig_dir_fd, mode);
	ck_assert_ptr_nonnull(accel);
	accel_set_kvm_device(accel, device);
}

static void close_accel(void)
{
	accel_destroy(accel);
	launcher_destroy(launcher);
	event_base_free(base);
}

static void make(void)
{
	struct hutch_error err;

	rig_make();
	log_setup("test", LOG_LEVEL_ERROR, 0);
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	ck_assert_int_eq(mkdirat(rig_dir_fd, "t", 0700), 0);
	rig_write("t/template.json", "{\"version\":1,\"kernel\":\"k\",\"initramfs\":\"i\","
				     "\"memory_mib\":128,\"vcpus\":1}");
	rig_write("t/k", "kernel");
	rig_write("t/i", "initramfs");
	ck_assert_int_eq(template_load(&tpl, rig_dir_fd, rig_dir, "t", &err), 0);
	snprintf(device, sizeof(device), "%s/kvm", rig_dir);
	rig_write("kvm", "");
	memset(&answer, 0, sizeof(answer));
}

static void on_done(void *arg, enum vmm_accel verdict, const char *reason)
{
	ck_assert_ptr_eq(arg, &answer);
	answer.done = true;
	answer.calls++;
	answer.verdict = verdict;
	snprintf(answer.reason, sizeof(answer.reason), "%s", reason);
}

static void resolve(void)
{
	answer.done = false;
	ck_assert_ptr_nonnull(accel_resolve(accel, &tpl, on_done, &answer));
	ck_assert(!answer.done);
	rig_run(base, &answer.done);
}

static size_t count_starts(void)
{
	size_t len = 0;

	free(file_read(rig_dir_fd, "starts", 100, &len));
	return len;
}

static void check_nothing_left(void)
{
	char id[40];

	snprintf(id, sizeof(id), "probe-%d", getpid());
	ck_assert_int_eq(rig_count_marked(id), 0);
	ck_assert_int_ne(faccessat(rig_dir_fd, "probe", F_OK, 0), 0);
}

/* ---- */

static const struct {
	const char *how;
	enum vmm_accel verdict;
	const char *reason;
	bool doubtful; /* the guest may be to blame */
} probes[] = {
	{"works", ACCEL_KVM, "a guest booted under KVM", false},
	{"abort", ACCEL_TCG, "killed by signal 9 (SIGKILL); vmm.log ends with:", false},
	{"hang", ACCEL_TCG, "a guest under KVM did not say hello within 8 s", true},
	{"lies", ACCEL_TCG, "a guest under KVM did not say hello within 8 s", true},
};
#define PROBES ((int)(sizeof(probes) / sizeof(probes[0])))

/* The probe is paid once: not by the second VM, not after a restart of the broker. */
START_TEST(a_probe_and_its_memory)
{
	struct accel_status status;
	uint64_t checked;
	struct stat st;

	open_accel(probes[_i].how, ACCEL_AUTO);
	ck_assert_int_eq(accel_status(accel).verdict, ACCEL_AUTO);
	resolve();
	ck_assert_int_eq(answer.verdict, probes[_i].verdict);
	ck_assert_msg(strstr(answer.reason, probes[_i].reason) != NULL, "%s", answer.reason);
	ck_assert_ptr_null(strchr(answer.reason, '\n'));
	check_nothing_left();
	if (probes[_i].doubtful) {
		ck_assert_int_eq(fstatat(rig_dir_fd, "accel.json", &st, 0), -1);
		accel_booted(accel, "another", true);
		ck_assert_int_eq(fstatat(rig_dir_fd, "accel.json", &st, 0), -1);
	}
	accel_booted(accel, "t", true);
	ck_assert_int_eq(fstatat(rig_dir_fd, "accel.json", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	status = accel_status(accel);
	ck_assert_int_eq(status.verdict, probes[_i].verdict);
	checked = status.checked_ms;
	resolve();
	ck_assert_uint_eq(count_starts(), 1);
	close_accel();

	open_accel("works", ACCEL_AUTO);
	status = accel_status(accel);
	ck_assert_int_eq(status.verdict, probes[_i].verdict);
	ck_assert_uint_eq(status.checked_ms, checked);
	resolve();
	ck_assert_int_eq(answer.verdict, probes[_i].verdict);
	ck_assert_uint_eq(count_starts(), 1);
	close_accel();
}
END_TEST

START_TEST(callers_wait_for_one_probe)
{
	struct accel_wait *canceled;
	int canceled_calls = answer.calls;

	open_accel("works", ACCEL_AUTO);
	for (int i = 0; i < 5; i++)
		accel_resolve(accel, &tpl, on_done, &answer);
	canceled = accel_resolve(accel, &tpl, on_done, NULL);
	accel_cancel(canceled);
	ck_assert_int_eq(answer.calls, canceled_calls);
	rig_run(base, &answer.done);
	ck_assert_int_eq(answer.calls, 5);
	ck_assert_uint_eq(count_starts(), 1);
	close_accel();
}
END_TEST

#define OF_ANOTHER_KERNEL                                                             \
	"{\"verdict\":\"kvm\",\"reason\":\"r\",\"kernel\":\"old\",\"boot_id\":\"x\"," \
	"\"vmm_version\":\"9.9.9\"}"

static const char *const stale[] = {"", "{", "{\"verdict\":\"kvm\"}", OF_ANOTHER_KERNEL};

START_TEST(what_was_remembered_of_another_host)
{
	rig_write("accel.json", stale[_i]);
	open_accel("abort", ACCEL_AUTO);
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_TCG);
	ck_assert_uint_eq(count_starts(), 1);
	close_accel();
}
END_TEST

START_TEST(no_device_no_probe)
{
	ck_assert_int_eq(unlinkat(rig_dir_fd, "kvm", 0), 0);
	open_accel("works", ACCEL_AUTO);
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_TCG);
	ck_assert_ptr_nonnull(strstr(answer.reason, "kvm: No such file or directory"));
	ck_assert_uint_eq(count_starts(), 0);
	/* It may be there another time. */
	rig_write("kvm", "");
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_KVM);
	close_accel();
}
END_TEST

START_TEST(configured)
{
	enum vmm_accel mode = _i == 0 ? ACCEL_KVM : ACCEL_TCG;

	open_accel("abort", mode);
	resolve();
	ck_assert_int_eq(answer.verdict, mode);
	ck_assert_str_eq(answer.reason, "configured");
	ck_assert_uint_eq(count_starts(), 0);
	close_accel();
}
END_TEST

/* A start that says nothing about KVM is not remembered. */
START_TEST(a_template_without_a_kernel)
{
	open_accel("works", ACCEL_AUTO);
	ck_assert_int_eq(unlinkat(rig_dir_fd, "t/k", 0), 0);
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_TCG);
	check_nothing_left();
	rig_write("t/k", "kernel");
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_KVM);
	close_accel();
}
END_TEST

/* A guest that comes up nowhere says nothing about KVM; another one is tried then. */
START_TEST(a_template_that_boots_nowhere)
{
	open_accel("exit", ACCEL_AUTO);
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_TCG);
	resolve(); /* it is not tried again before it was booted */
	ck_assert_uint_eq(count_starts(), 1);
	accel_booted(accel, "t", false);
	ck_assert_int_eq(accel_status(accel).verdict, ACCEL_AUTO);
	ck_assert_ptr_nonnull(strstr(accel_status(accel).reason, "template t boots under neither"));
	ck_assert_int_ne(faccessat(rig_dir_fd, "accel.json", F_OK, 0), 0);
	write_qemu("works");
	resolve();
	ck_assert_int_eq(answer.verdict, ACCEL_KVM);
	accel_booted(accel, "t", false);
	ck_assert_int_eq(accel_status(accel).verdict, ACCEL_KVM);
	close_accel();
}
END_TEST

static void never(void *arg, enum vmm_accel verdict, const char *reason)
{
	(void)arg;
	(void)verdict;
	(void)reason;
	ck_abort_msg("a caller of a destroyed accel was answered");
}

START_TEST(destroyed_while_it_probes)
{
	struct timeval soon = {.tv_usec = 300000};

	open_accel("hang", ACCEL_AUTO);
	accel_resolve(accel, &tpl, never, NULL);
	event_base_loopexit(base, &soon);
	event_base_dispatch(base);
	ck_assert_uint_eq(count_starts(), 1);
	close_accel();
	check_nothing_left();
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("accel");
	TCase *tc = tcase_create("accel");
	SRunner *sr;
	int failed;

	play_guest(argc, argv);
	tcase_add_checked_fixture(tc, make, rig_remove);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_probe_and_its_memory, 0, PROBES);
	tcase_add_test(tc, callers_wait_for_one_probe);
	tcase_add_loop_test(tc, what_was_remembered_of_another_host, 0, 4);
	tcase_add_test(tc, no_device_no_probe);
	tcase_add_loop_test(tc, configured, 0, 2);
	tcase_add_test(tc, a_template_without_a_kernel);
	tcase_add_test(tc, a_template_that_boots_nowhere);
	tcase_add_test(tc, destroyed_while_it_probes);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
