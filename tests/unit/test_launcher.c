/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher process against a broker that asks for nonsense, floods it, or is gone; and the
 * sweep.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launcher_main.h"
#include "host/hutchd/process.h"
#include "host/hutchd/sweep.h"
#include "host/hutchd/tsc.h"
#include "tests/unit/vmm_player.h"
#include "tests/unit/vmm_rig.h"

static struct launcher_setup setup;
static int sock;
static pid_t launcher;
static char id[40]; /* of this test alone: others may run beside it */

static void name_id(void)
{
	snprintf(id, sizeof(id), "%08x-2222-4333-8444-555555555555", (unsigned)getpid());
}

static void make(void)
{
	struct launch_hello hello;
	int pair[2];

	rig_make();
	name_id();
	memset(&setup, 0, sizeof(setup));
	setup.test = true;
	snprintf(setup.template_dir, sizeof(setup.template_dir), "%s", rig_dir);
	ck_assert_int_gt(readlink("/proc/self/exe", setup.vmm, sizeof(setup.vmm) - 1), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	launcher = fork();
	if (launcher == 0) {
		close(pair[0]);
		launcher_main(pair[1], &setup);
	}
	close(pair[1]);
	sock = pair[0];
	ck_assert_int_eq(read(sock, &hello, sizeof(hello)), (ssize_t)sizeof(hello));
	ck_assert_uint_eq(hello.version, LAUNCH_VERSION);
	ck_assert_str_eq(hello.vmm_path, setup.vmm);
}

static void end_launcher(void)
{
	int status;

	fd_close(&sock);
	ck_assert_int_eq(waitpid(launcher, &status, 0), launcher);
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

static void remove_all(void)
{
	if (sock >= 0)
		end_launcher();
	rig_remove();
}

static struct launch_request good_spawn(void)
{
	struct launch_request r = {
		.version = LAUNCH_VERSION,
		.op = LAUNCH_SPAWN,
		.tag = 99,
		.spawn = {.template_name = "t",
			  .kernel = "k",
			  .initramfs = "i",
			  .accel = LAUNCH_TCG,
			  .memory_mib = 128,
			  .vcpus = 1,
			  .cid = 3},
	};

	memcpy(r.spawn.id, id, sizeof(id));
	return r;
}

static struct launch_reply get_reply(int *pidfd)
{
	struct launch_reply reply;
	size_t nfds = 1;

	*pidfd = -1;
	ck_assert_int_eq(fd_recv(sock, &reply, sizeof(reply), pidfd, &nfds),
			 (ssize_t)sizeof(reply));
	return reply;
}

/* Send it with descriptors as a SPAWN has, and read the answer. */
static struct launch_reply ask(const void *data, size_t len, size_t nfds, int *pidfd)
{
	int fds[FD_MAX_PASSED] = {0};
	struct launch_reply reply;

	for (size_t i = 0; i < nfds; i++)
		fds[i] = i == SPAWN_FD_RUNDIR ? dir_open(rig_dir_fd, ".")
					      : socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(fd_send(sock, data, len, fds, nfds), 0);
	for (size_t i = 0; i < nfds; i++)
		close(fds[i]);
	reply = get_reply(pidfd);
	ck_assert_uint_eq(reply.version, LAUNCH_VERSION);
	return reply;
}

static int count_launcher_fds(void)
{
	char path[64], target[2];
	int count = 0;

	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", launcher, fd);
		count += readlink(path, target, sizeof(target)) > 0;
	}
	return count;
}

static void spoil(struct launch_request *r, int how, size_t *len, size_t *nfds)
{
	switch (how) {
	case 0:
		*len = 1;
		break;
	case 1:
		*len = 3;
		break;
	case 2:
		*len -= 1;
		break;
	case 3:
		r->version = LAUNCH_VERSION + 1;
		break;
	case 4:
		r->op = 77;
		break;
	case 5:
		r->op = LAUNCH_HELLO;
		break;
	case 6:
		*nfds = 0;
		break;
	case 7:
		*nfds = LAUNCH_SPAWN_FDS - 1;
		break;
	case 8:
		memset(r->spawn.id, 'x', sizeof(r->spawn.id));
		break;
	case 9:
		r->spawn.id[0] = '\0';
		break;
	case 10:
		snprintf(r->spawn.id, sizeof(r->spawn.id), "a,b=c");
		break;
	case 11:
		memset(r->spawn.cmdline, 'x', sizeof(r->spawn.cmdline));
		break;
	case 12:
		snprintf(r->spawn.kernel, sizeof(r->spawn.kernel), "../k");
		break;
	case 13:
		snprintf(r->spawn.template_name, sizeof(r->spawn.template_name), "..");
		break;
	case 14:
		snprintf(r->spawn.initramfs, sizeof(r->spawn.initramfs), "/etc/shadow");
		break;
	case 15:
		r->op = LAUNCH_REAP;
		break; /* with descriptors */
	case 16:
		memset(&r->reap, 0, sizeof(r->reap));
		r->op = LAUNCH_REAP;
		*nfds = 0;
		memcpy(r->reap.id, id, sizeof(id));
		r->reap.pid = 1;
		break;
	case 17:
		memset(&r->reap, 0, sizeof(r->reap));
		r->op = LAUNCH_REAP;
		*nfds = 0;
		r->reap.pid = 12345; /* no id: everything would be marked so */
		break;
	case 18:
		snprintf(r->spawn.root, sizeof(r->spawn.root), "../root");
		break;
	case 19:
		memset(&r->reap, 0, sizeof(r->reap));
		r->op = LAUNCH_TIDY;
		*nfds = 0; /* without the file that says what */
		memcpy(r->reap.id, id, sizeof(id));
		break;
	default:
		ck_abort();
	}
}
#define SPOILED 20

START_TEST(requests_that_are_none)
{
	struct launch_request r = good_spawn();
	struct launch_reply reply;
	size_t len = sizeof(r), nfds = LAUNCH_SPAWN_FDS;
	int pidfd;

	spoil(&r, _i, &len, &nfds);
	reply = ask(&r, len, nfds, &pidfd);
	ck_assert_int_eq(reply.errnum, EPROTO);
	ck_assert_str_eq(reply.stage, "request");
	ck_assert_int_eq(pidfd, -1);
	ck_assert_int_eq(rig_count_marked(id), 0);
	/* It is as good as new. */
	r = good_spawn();
	reply = ask(&r, sizeof(r), LAUNCH_SPAWN_FDS, &pidfd);
	ck_assert_msg(reply.errnum == 0, "%s: %s", reply.stage, strerror(reply.errnum));
	ck_assert_uint_eq(reply.tag, 99);
	ck_assert_int_ge(pidfd, 0);
	process_signal(pidfd, SIGKILL);
	close(pidfd);
}
END_TEST

START_TEST(too_much_at_once)
{
	char huge[5000] = "";
	struct launch_reply reply;
	int pidfd;

	reply = ask(huge, sizeof(huge), 0, &pidfd);
	ck_assert_int_eq(reply.errnum, EPROTO);
	reply = ask(huge, sizeof(struct launch_request), FD_MAX_PASSED, &pidfd);
	ck_assert_int_eq(reply.errnum, EPROTO);
}
END_TEST

static struct launch_reply reap(int64_t pid, uint64_t start_time)
{
	struct launch_request r = {.version = LAUNCH_VERSION, .op = LAUNCH_REAP, .tag = 5};
	struct launch_reply reply;
	int pidfd;

	memcpy(r.reap.id, id, sizeof(id));
	r.reap.pid = pid;
	r.reap.start_time = start_time;
	reply = ask(&r, sizeof(r), 0, &pidfd);
	ck_assert_int_eq(pidfd, -1);
	ck_assert_uint_eq(reply.tag, 5);
	return reply;
}

START_TEST(spawned_and_reaped)
{
	struct launch_request r = good_spawn();
	struct launch_reply reply;
	struct process_stat st;
	int64_t pid;
	int pidfd;

	setenv("HUTCH_PLAY", "", 1);
	reply = ask(&r, sizeof(r), LAUNCH_SPAWN_FDS, &pidfd);
	ck_assert_int_eq(reply.errnum, 0);
	ck_assert_int_eq(process_read((pid_t)reply.pid, &st), 0);
	ck_assert_uint_eq(st.start_time, reply.start_time);
	ck_assert_int_eq(st.ppid, launcher);
	pid = reply.pid;
	/* Asked while it lives: it is ended. */
	reply = reap(pid, reply.start_time);
	ck_assert_int_eq(reply.errnum, 0);
	ck_assert(WIFSIGNALED(reply.wait_status) && WTERMSIG(reply.wait_status) == SIGKILL);
	ck_assert_uint_eq(reply.killed, 0);
	/* Asked again: nothing is known of it any more. */
	reply = reap(pid, 1);
	ck_assert_int_eq(reply.wait_status, LAUNCH_STATUS_UNKNOWN);
	close(pidfd);
}
END_TEST

/*
 * VMMs live on when the broker is gone, and the launcher ends without a zombie or a descriptor
 * held.
 */
START_TEST(the_broker_is_gone)
{
	struct launch_request r = good_spawn();
	struct launch_reply reply;
	struct pollfd p;
	int pidfd;

	reply = ask(&r, sizeof(r), LAUNCH_SPAWN_FDS, &pidfd);
	ck_assert_int_eq(reply.errnum, 0);
	end_launcher();
	p = (struct pollfd){.fd = pidfd, .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, 50), 0);
	ck_assert_int_eq(rig_count_marked(id), 1);
	ck_assert_int_eq(process_signal(pidfd, SIGKILL), 0);
	ck_assert_int_eq(poll(&p, 1, 10000), 1);
	close(pidfd);
}
END_TEST

/* A terminal's and a service manager's signals are not for it. */
START_TEST(signals_that_are_not_for_it)
{
	struct launch_reply reply;

	kill(launcher, SIGINT);
	kill(launcher, SIGTERM);
	kill(launcher, SIGHUP);
	kill(launcher, SIGQUIT);
	kill(launcher, SIGPIPE);
	reply = reap(12345, 1);
	ck_assert_int_eq(reply.errnum, 0);
}
END_TEST

START_TEST(no_descriptor_is_kept)
{
	struct launch_request r = good_spawn();
	struct launch_reply reply;
	int pidfd, before = count_launcher_fds();

	setenv("HUTCH_PLAY", "", 1);
	for (int i = 0; i < 10; i++) {
		reply = ask(&r, sizeof(r), LAUNCH_SPAWN_FDS, &pidfd);
		ck_assert_int_eq(reply.errnum, 0);
		reap(reply.pid, reply.start_time);
		close(pidfd);
		ck_assert_int_eq(unlinkat(rig_dir_fd, VMM_PID_FILE, 0), 0);
		reply = ask(&r, sizeof(r) - 1, LAUNCH_SPAWN_FDS, &pidfd);
		ck_assert_int_eq(reply.errnum, EPROTO);
	}
	reap(12345, 1); /* answered after the last request's descriptors were closed */
	ck_assert_int_eq(count_launcher_fds(), before);
}
END_TEST

/* ---- the sweep, in this process ---- */

static pid_t start_marked(const char *marker, bool orphan)
{
	pid_t pid = fork();

	if (pid == 0) {
		setsid();
		if (orphan && fork() != 0)
			_exit(0);
		execle("/bin/sleep", "sleep", "100", (char *)NULL,
		       (char *const[]){(char *)(uintptr_t)marker, NULL});
		_exit(127);
	}
	if (orphan)
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	return pid;
}

START_TEST(only_the_vms_own_are_swept)
{
	char marker[80], other[80];
	pid_t mine, stranger;
	int status;

	snprintf(marker, sizeof(marker), "HUTCH_VM=%s", id);
	snprintf(other, sizeof(other), "HUTCH_VM=%sx", id); /* longer, with ours as its beginning */
	mine = start_marked(marker, false);
	stranger = start_marked(other, false);
	rig_await_marked(id, 1);
	ck_assert_int_eq(sweep_vm(id, 1 << 30, false, NULL, NULL), 1);
	ck_assert_int_eq(rig_count_marked(id), 0);
	ck_assert_int_eq(waitpid(stranger, &status, WNOHANG), 0);
	kill(stranger, SIGKILL);
	waitpid(stranger, &status, 0);
	waitpid(mine, &status, 0);
	ck_assert_int_eq(sweep_vm(id, 1 << 30, false, NULL, NULL), 0);
}
END_TEST

START_TEST(orphans_are_swept_as_children)
{
	char marker[80];

	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	snprintf(marker, sizeof(marker), "HUTCH_VM=%s", id);
	for (int i = 0; i < 70; i++) /* more than one round */
		start_marked(marker, true);
	rig_await_marked(id, 70);
	ck_assert_int_eq(sweep_vm(id, 1 << 30, true, NULL, NULL), 70);
	ck_assert_int_eq(rig_count_marked(id), 0);
}
END_TEST

START_TEST(the_tsc_is_measured_once)
{
	uint32_t khz = tsc_khz();

#if defined(__x86_64__)
	ck_assert_uint_gt(khz, 100000);
	ck_assert_uint_lt(khz, 10000000);
#endif
	ck_assert_uint_eq(tsc_khz(), khz);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("launcher");
	TCase *tc = tcase_create("launcher"), *sweep = tcase_create("sweep");
	SRunner *sr;
	int failed;

	vmm_play(argc, argv);
	tcase_add_checked_fixture(tc, make, remove_all);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, requests_that_are_none, 0, SPOILED);
	tcase_add_test(tc, too_much_at_once);
	tcase_add_test(tc, spawned_and_reaped);
	tcase_add_test(tc, the_broker_is_gone);
	tcase_add_test(tc, signals_that_are_not_for_it);
	tcase_add_test(tc, no_descriptor_is_kept);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(sweep, name_id, NULL);
	tcase_set_timeout(sweep, 60);
	tcase_add_test(sweep, only_the_vms_own_are_swept);
	tcase_add_test(sweep, orphans_are_swept_as_children);
	tcase_add_test(sweep, the_tsc_is_measured_once);
	suite_add_tcase(s, sweep);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
