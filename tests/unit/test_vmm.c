/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMM processes through a real launcher: start, failures, ends, adoption. The VMMs are this program
 * itself (vmm_player).
 */
#include "host/hutchd/vmm.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_proto.h"
#include "host/hutchd/log.h"
#include "host/hutchd/process.h"
#include "tests/unit/vmm_player.h"
#include "tests/unit/vmm_rig.h"

#define TEMPLATE_JSON \
	"{\"version\":1,\"kernel\":\"k\",\"initramfs\":\"i\",\"memory_mib\":128,\"vcpus\":1}"

static struct event_base *base;
static struct launcher *launcher;
static struct template tpl;
static bool lost, lost_a_start;
static char self[256];

struct vm {
	char id[HUTCH_UUID_LEN + 1];
	int rundir;
	struct vmm *vmm;
	struct vmm_process process;
	bool spawned, up, over, failed;
	struct hutch_error err;
	char reason[512], version[64];
	bool kill_when_up;
};

static void on_spawned(void *arg, const struct vmm_process *process)
{
	struct vm *vm = arg;

	ck_assert(!vm->spawned && !vm->over);
	vm->spawned = true;
	vm->process = *process;
}

static void on_up(void *arg, const char *version, uint64_t spawn_us, uint64_t qmp_us)
{
	struct vm *vm = arg;

	ck_assert(!vm->up && !vm->over);
	vm->up = true;
	snprintf(vm->version, sizeof(vm->version), "%s", version);
	ck_assert_uint_lt(spawn_us, 20000000);
	ck_assert_uint_lt(qmp_us, 20000000);
	if (vm->kill_when_up)
		vmm_kill(vm->vmm);
}

static void on_failed(void *arg, const struct hutch_error *err)
{
	struct vm *vm = arg;

	ck_assert(!vm->up && !vm->over);
	vm->over = vm->failed = true;
	vm->err = *err;
	vmm_free(vm->vmm);
	vm->vmm = NULL;
}

static void on_exited(void *arg, const char *reason)
{
	struct vm *vm = arg;

	ck_assert(!vm->over);
	vm->over = true;
	snprintf(vm->reason, sizeof(vm->reason), "%s", reason);
	vmm_free(vm->vmm);
	vm->vmm = NULL;
}

static const struct vmm_callbacks callbacks = {on_spawned, on_up, on_failed, on_exited};

static void on_lost(void *arg, bool start_failed)
{
	(void)arg;
	lost = true;
	lost_a_start = start_failed;
}

static void make_template(void)
{
	struct hutch_error err;

	ck_assert_int_eq(mkdirat(rig_dir_fd, "t", 0700), 0);
	rig_write("t/template.json", TEMPLATE_JSON);
	rig_write("t/k", "kernel");
	rig_write("t/i", "initramfs");
	ck_assert_int_eq(template_load(&tpl, rig_dir_fd, rig_dir, "t", &err), 0);
}

static void start_launcher(const char *test_vmm, const char *qemu, const char *library)
{
	struct launcher_config config = {.template_dir = rig_dir,
					 .qemu = qemu,
					 .vmm_library = library,
					 .test_vmm = test_vmm};
	struct hutch_error err;

	launcher = launcher_create(&config, &err);
	ck_assert_msg(launcher != NULL, "%s", err.message);
	base = event_base_new();
	launcher_attach(launcher, base, on_lost, NULL);
}

static void stop_launcher(void)
{
	launcher_destroy(launcher);
	launcher = NULL;
	event_base_free(base);
}

static void make(void)
{
	rig_make();
	log_setup("test", LOG_LEVEL_ERROR, 0);
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	setenv("HUTCH_SELF", self, 1);
	make_template();
	lost = lost_a_start = false;
}

static void play(const char *part)
{
	setenv("HUTCH_PLAY", part, 1);
	if (!launcher)
		start_launcher(self, NULL, NULL);
}

static void remove_all(void)
{
	if (launcher)
		stop_launcher();
	rig_remove();
}

static struct vmm_config config_of(struct vm *vm)
{
	struct vmm_config c = {.rundir_fd = vm->rundir,
			       .tpl = &tpl,
			       .accel = ACCEL_TCG,
			       .memory_mib = 128,
			       .vcpus = 1,
			       .cid = 3,
			       .deadline_ms = 60000,
			       .qmp_timeout_ms = 10000};

	memcpy(c.id, vm->id, sizeof(c.id));
	return c;
}

static void name_vm(struct vm *vm, int n)
{
	memset(vm, 0, sizeof(*vm));
	snprintf(vm->id, sizeof(vm->id), "%08x-0000-4000-8000-%012d", (unsigned)getpid(), n);
	vm->rundir = dir_make(rig_dir_fd, vm->id);
	ck_assert_int_ge(vm->rundir, 0);
}

static void start(struct vm *vm, const struct vmm_config *config)
{
	struct hutch_error err;

	vm->vmm = vmm_start(base, launcher, config, &callbacks, vm, &err);
	ck_assert_msg(vm->vmm != NULL, "%s", err.message);
	ck_assert(!vm->spawned && !vm->over);
}

static void start_new(struct vm *vm)
{
	struct vmm_config config;

	name_vm(vm, 1);
	config = config_of(vm);
	start(vm, &config);
}

/* Nothing of it lives, and its directory can go. */
static void check_gone(struct vm *vm)
{
	ck_assert_ptr_null(vm->vmm);
	ck_assert_int_eq(rig_count_marked(vm->id), 0);
	close(vm->rundir);
	ck_assert_int_eq(tree_remove(rig_dir_fd, vm->id), 0);
}

static void kill_and_check(struct vm *vm)
{
	vmm_kill(vm->vmm);
	rig_run(base, &vm->over);
	ck_assert_str_eq(vm->reason, "killed by signal 9 (SIGKILL)");
	check_gone(vm);
}

static char *read_note(struct vm *vm, const char *name)
{
	size_t len;

	return file_read(vm->rundir, name, 4096, &len);
}

/* ---- starts ---- */

START_TEST(up_and_killed)
{
	struct vm vm;
	int fds;

	play("");
	fds = rig_count_fds();
	start_new(&vm);
	rig_run(base, &vm.up);
	ck_assert(vm.spawned);
	ck_assert_str_eq(vm.version, "1.2.3");
	ck_assert_int_eq(vmm_get_process(vm.vmm).pid, vm.process.pid);
	ck_assert(vmm_process_alive(&vm.process));
	kill_and_check(&vm);
	ck_assert(!vmm_process_alive(&vm.process));
	ck_assert_int_eq(rig_count_fds(), fds);
}
END_TEST

/*
 * A VMM's surroundings: descriptors 0-7 and nothing else, own session, no privileges to gain.
 */
START_TEST(what_a_vmm_finds)
{
	char want[512], *shape;
	struct stat st;
	struct vm vm;

	umask(0);
	play("shape");
	start_new(&vm);
	rig_run(base, &vm.up);
	snprintf(want, sizeof(want),
		 "fds=0,1,2,3,4,5,6,7, leader=1 core=0 nnp=1 sigpipe=1 chld_blocked=0 umask=77 "
		 "cwd=%s/%s deadline=60000 dial=vsock preload=0",
		 rig_dir, vm.id);
	shape = read_note(&vm, "shape");
	ck_assert_str_eq(shape, want);
	free(shape);
	for (int i = 0; i < 5; i++) {
		static const char *const names[] = {"vsock", "qmp", "ctl", "console.log",
						    "vmm.log"};

		ck_assert_int_eq(fstatat(vm.rundir, names[i], &st, 0), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0600);
	}
	kill_and_check(&vm);
}
END_TEST

static const struct {
	const char *part;
	uint64_t timeout_ms;
	const char *stage, *said, *log;
} failures[] = {
	{"exit", 10000, "qmp", "the VMM ended at once: exit status 3: cannot start, as asked",
	 "cannot start, as asked"},
	{"no_qmp", 200, "qmp", "the VMM did not answer QMP within 200 ms", NULL},
	{"silent", 200, "qmp", "the VMM did not answer QMP within 200 ms", NULL},
	{"error2", 10000, "qmp", "QMP command query-status failed: GenericError: refused", NULL},
	{"garbage", 10000, "qmp", "QMP: it sent something that is not QMP", NULL},
	{"close_and_exit", 10000, "qmp", "the VMM ended at once: exit status 5: closing",
	 "closing"},
	{"close_and_stay", 10000, "qmp", "the VMM closed its QMP socket", NULL},
	{"paused", 10000, "qmp", "the guest is not running, but paused", NULL},
};
#define FAILURES ((int)(sizeof(failures) / sizeof(failures[0])))

/*
 * C047: an error with the log's tail before the deadline, nothing left, and the next start is not
 * hindered.
 */
START_TEST(a_start_that_fails)
{
	struct vmm_config config;
	struct vm vm;
	int fds;

	play(failures[_i].part);
	fds = rig_count_fds();
	for (int round = 0; round < 2; round++) {
		name_vm(&vm, 1);
		config = config_of(&vm);
		config.qmp_timeout_ms = failures[_i].timeout_ms;
		start(&vm, &config);
		rig_run(base, &vm.over);
		ck_assert(vm.failed);
		ck_assert_int_eq(vm.err.kind, HUTCH_E_START_FAILED);
		ck_assert_str_eq(vm.err.stage, failures[_i].stage);
		ck_assert_msg(strstr(vm.err.message, failures[_i].said) != NULL, "%s",
			      vm.err.message);
		if (failures[_i].log)
			ck_assert_ptr_nonnull(strstr(vm.err.message, "vmm.log ends with:\n"));
		check_gone(&vm);
	}
	ck_assert_int_eq(rig_count_fds(), fds);
}
END_TEST

static void write_script(const char *name, const char *text)
{
	rig_write(name, text);
	ck_assert_int_eq(fchmodat(rig_dir_fd, name, 0700, 0), 0);
}

static void play_wrapped(const char *script, const char *part)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/wrapper", rig_dir);
	write_script("wrapper", script);
	setenv("HUTCH_PLAY", part, 1);
	start_launcher(path, NULL, NULL);
}

/* HUTCH_SELF is this program. */
static const char *const wrappers[] = {
	"#!/bin/sh\nsh -c '\"$HUTCH_SELF\" \"$@\"; :' sh \"$@\"\n",
	"#!/bin/sh\nsetsid sh -c '\"$HUTCH_SELF\" \"$@\"; :' sh \"$@\" & wait\n",
	"#!/bin/sh\nsetsid sh -c 'setsid \"$HUTCH_SELF\" \"$@\" & wait' sh \"$@\" & wait\n",
};
#define WRAPPERS ((int)(sizeof(wrappers) / sizeof(wrappers[0])))

/*
 * C047 d: the kill hits what is behind the wrapper too, also when that went into a session of its
 * own.
 */
START_TEST(a_wrapped_vmm)
{
	struct vm vm;

	play_wrapped(wrappers[_i], "");
	start_new(&vm);
	rig_run(base, &vm.up);
	ck_assert_int_ge(rig_count_marked(vm.id), 2);
	kill_and_check(&vm);
}
END_TEST

/* A child of what is behind the wrapper that has lost the environment: its session tells. */
START_TEST(a_child_without_the_marker)
{
	char *text;
	struct process_stat st;
	struct vm vm;
	pid_t pid;

	play_wrapped(wrappers[_i], "bare");
	start_new(&vm);
	rig_run(base, &vm.up);
	text = read_note(&vm, "bare");
	ck_assert_ptr_nonnull(text);
	pid = (pid_t)atol(text);
	free(text);
	ck_assert_int_eq(process_read(pid, &st), 0);
	kill_and_check(&vm);
	ck_assert(process_read(pid, &st) < 0 || st.state == 'Z');
}
END_TEST

/* The process that is known ends at once, and leaves the real one behind. */
START_TEST(a_wrapper_that_does_not_wait)
{
	struct vm vm;

	play_wrapped("#!/bin/sh\nsetsid \"$HUTCH_SELF\" \"$@\" &\nexit 0\n", "no_qmp");
	start_new(&vm);
	rig_run(base, &vm.over);
	ck_assert(vm.failed);
	ck_assert_ptr_nonnull(strstr(vm.err.message, "the VMM ended at once: exit status 0"));
	check_gone(&vm);
}
END_TEST

START_TEST(what_a_vmm_leaves_behind)
{
	struct vm vm;

	play("litter");
	start_new(&vm);
	rig_run(base, &vm.up);
	rig_await_marked(vm.id, 7);
	kill_and_check(&vm);
}
END_TEST

/* ---- ends ---- */

static const struct {
	const char *part, *reason;
} ends[] = {
	{"poweroff", "the guest powered off"},
	{"reboot", "the guest rebooted"},
	{"panic", "guest panic"},
	{"exit_later", "exit status 7: last line"},
	{"crash", "killed by signal 11 (SIGSEGV)"},
	{"flood", "killed by signal 9 (SIGKILL)"},
};
#define ENDS ((int)(sizeof(ends) / sizeof(ends[0])))

START_TEST(why_a_vmm_ended)
{
	struct vm vm;

	setenv("ASAN_OPTIONS", "handle_segv=0", 1); /* the player's, so that SIGSEGV is one */
	play(ends[_i].part);
	start_new(&vm);
	rig_run(base, &vm.over);
	ck_assert(vm.up);
	ck_assert_str_eq(vm.reason, ends[_i].reason);
	check_gone(&vm);
}
END_TEST

START_TEST(killed_before_it_was_spawned)
{
	struct vm vm;

	play("");
	start_new(&vm);
	vmm_kill(vm.vmm);
	rig_run(base, &vm.over);
	ck_assert(!vm.failed);
	ck_assert_str_eq(vm.reason, "killed by signal 9 (SIGKILL)");
	check_gone(&vm);
}
END_TEST

START_TEST(killed_when_up)
{
	struct vm vm;

	play("");
	name_vm(&vm, 1);
	vm.kill_when_up = true;
	{
		struct vmm_config config = config_of(&vm);

		start(&vm, &config);
	}
	rig_run(base, &vm.over);
	ck_assert_str_eq(vm.reason, "killed by signal 9 (SIGKILL)");
	check_gone(&vm);
}
END_TEST

/* Forgotten while it is on its way: nobody knows its pid, so it must not live. */
START_TEST(freed_before_it_was_spawned)
{
	struct vm vm, next;

	play("");
	start_new(&vm);
	vmm_free(vm.vmm);
	vm.vmm = NULL;
	name_vm(&next, 2);
	{
		struct vmm_config config = config_of(&next);

		start(&next, &config);
	}
	rig_run(base, &next.up);
	rig_await_marked(vm.id, 0);
	ck_assert(!vm.spawned && !vm.over);
	kill_and_check(&next);
	check_gone(&vm);
}
END_TEST

START_TEST(many_at_once)
{
	enum { COUNT = 40 };
	static struct vm vms[COUNT];
	int fds;

	play("");
	fds = rig_count_fds();
	for (int i = 0; i < COUNT; i++) {
		struct vmm_config config;

		name_vm(&vms[i], i);
		config = config_of(&vms[i]);
		start(&vms[i], &config);
	}
	for (int i = 0; i < COUNT; i++)
		rig_run(base, &vms[i].up);
	for (int i = 0; i < COUNT; i++)
		vmm_kill(vms[i].vmm);
	for (int i = 0; i < COUNT; i++) {
		rig_run(base, &vms[i].over);
		check_gone(&vms[i]);
	}
	ck_assert_int_eq(rig_count_fds(), fds);
}
END_TEST

/* ---- the lease ---- */

static void await_renewed(struct vm *vm, const char *want)
{
	for (int i = 0; i < 500; i++) {
		struct timeval tick = {.tv_usec = 10000};
		char *text = read_note(vm, "renewed");
		bool same = text && strcmp(text, want) == 0;

		free(text);
		if (same)
			return;
		event_base_loopexit(base, &tick);
		event_base_dispatch(base);
	}
	ck_abort_msg("the deadline was not renewed");
}

static const char *const ctl_parts[] = {"", "ctl_closes", "ctl_err"};

START_TEST(deadlines_are_renewed)
{
	struct vm vm;

	play(ctl_parts[_i]);
	start_new(&vm);
	rig_run(base, &vm.up);
	vmm_renew(vm.vmm, 5000);
	await_renewed(&vm, "renew 5000\n");
	vmm_renew(vm.vmm, 6000);
	await_renewed(&vm, "renew 6000\n");
	kill_and_check(&vm);
}
END_TEST

START_TEST(only_the_latest_deadline_counts)
{
	struct vm vm;

	play("");
	start_new(&vm);
	rig_run(base, &vm.up);
	for (uint64_t ms = 1; ms <= 1000; ms++)
		vmm_renew(vm.vmm, ms);
	await_renewed(&vm, "renew 1000\n");
	kill_and_check(&vm);
}
END_TEST

/* ---- brokers that die ---- */

/*
 * Start VM 1 in a broker of its own and let that die; tied as given. Returns its process, from its
 * run directory.
 */
static struct vmm_process leave_vm(struct vm *vm, const char *part, bool tied)
{
	struct vmm_process process = {0, 0};
	pid_t broker = fork();
	int status;

	if (broker == 0) {
		struct vmm_config config;

		play(part);
		name_vm(vm, 1);
		config = config_of(vm);
		config.tied = tied;
		config.qmp_timeout_ms = 60000;
		start(vm, &config);
		if (strcmp(part, "paused") == 0)
			rig_run(base, &vm->spawned);
		else
			rig_run(base, &vm->up);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(broker, &status, 0), broker);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	memset(vm, 0, sizeof(*vm));
	snprintf(vm->id, sizeof(vm->id), "%08x-0000-4000-8000-%012d", (unsigned)broker, 1);
	vm->rundir = dir_open(rig_dir_fd, vm->id);
	ck_assert_int_ge(vm->rundir, 0);
	ck_assert_int_eq(vmm_claim(vm->rundir, 0, &process), 1);
	return process;
}

static void adopt(struct vm *vm, const struct vmm_process *process)
{
	struct vmm_config config = config_of(vm);
	struct hutch_error err;

	config.tpl = NULL;
	vm->vmm = vmm_adopt(base, launcher, &config, process, &callbacks, vm, &err);
	ck_assert_msg(vm->vmm != NULL, "%s", err.message);
}

/* C014: the next broker takes it over, talks to it, and ends all of it. */
START_TEST(adopted)
{
	struct vmm_process process;
	struct vm vm;

	process = leave_vm(&vm, "litter", false);
	rig_await_marked(vm.id, 7);
	play("");
	adopt(&vm, &process);
	rig_run(base, &vm.up);
	ck_assert_str_eq(vm.version, "1.2.3");
	vmm_renew(vm.vmm, 7000);
	await_renewed(&vm, "renew 7000\n");
	vmm_kill(vm.vmm);
	rig_run(base, &vm.over);
	ck_assert_str_eq(vm.reason, "killed");
	check_gone(&vm);
}
END_TEST

START_TEST(adopted_and_gone_by_itself)
{
	struct vmm_process process;
	struct vm vm;

	process = leave_vm(&vm, "", false);
	play("");
	adopt(&vm, &process);
	rig_run(base, &vm.up);
	kill(process.pid, SIGTERM);
	rig_run(base, &vm.over);
	ck_assert_str_eq(vm.reason, "the VMM process ended");
	check_gone(&vm);
}
END_TEST

START_TEST(adopted_while_stopped)
{
	struct vmm_process process;
	struct vm vm;
	char *note;

	process = leave_vm(&vm, "paused", false);
	play("");
	adopt(&vm, &process);
	rig_run(base, &vm.up);
	note = read_note(&vm, "continued");
	ck_assert_ptr_nonnull(note);
	free(note);
	vmm_kill(vm.vmm);
	rig_run(base, &vm.over);
	check_gone(&vm);
}
END_TEST

START_TEST(a_stranger_is_not_adopted)
{
	struct vmm_process process;
	struct process_stat st;
	struct vmm_config config;
	struct hutch_error err;
	struct vm vm;
	pid_t stranger = fork();

	if (stranger == 0)
		for (;;)
			pause();
	play("");
	name_vm(&vm, 1);
	config = config_of(&vm);
	ck_assert_int_eq(process_read(stranger, &st), 0);
	process = (struct vmm_process){stranger, st.start_time + 1};
	ck_assert(!vmm_process_alive(&process));
	ck_assert_ptr_null(vmm_adopt(base, launcher, &config, &process, &callbacks, &vm, &err));
	ck_assert_int_eq(err.kind, HUTCH_E_NOT_FOUND);
	process.start_time = st.start_time;
	ck_assert(vmm_process_alive(&process));
	kill(stranger, SIGKILL);
	/* A zombie is dead, though it still has its pid. */
	while (process_read(stranger, &st) == 0 && st.state != 'Z')
		sched_yield();
	ck_assert(!vmm_process_alive(&process));
	ck_assert_int_eq(waitpid(stranger, NULL, 0), stranger);
	check_gone(&vm);
}
END_TEST

/* The main process is gone, what it left is not. */
START_TEST(leftovers_of_one_that_is_gone)
{
	struct vmm_process process;
	struct vmm_config config;
	struct hutch_error err;
	struct vm vm;
	struct timeval tick = {.tv_usec = 1};

	process = leave_vm(&vm, "litter", false);
	rig_await_marked(vm.id, 7);
	kill(process.pid, SIGKILL);
	while (vmm_process_alive(&process))
		sched_yield();
	play("");
	config = config_of(&vm);
	ck_assert_ptr_null(vmm_adopt(base, launcher, &config, &process, &callbacks, &vm, &err));
	ck_assert_int_eq(err.kind, HUTCH_E_NOT_FOUND);
	event_base_loopexit(base, &tick);
	event_base_dispatch(base);
	rig_await_marked(vm.id, 0);
	check_gone(&vm);
}
END_TEST

START_TEST(a_tied_vmm_dies_with_its_broker)
{
	struct vm vm;

	leave_vm(&vm, "", true);
	rig_await_marked(vm.id, 0);
	check_gone(&vm);
}
END_TEST

/* C014: whoever clears the directory first keeps a late child from running. */
START_TEST(a_claimed_directory_is_not_used)
{
	struct vmm_process process;
	struct vm vm;

	play("");
	name_vm(&vm, 1);
	ck_assert_int_eq(vmm_claim(vm.rundir, 0, &process), 0);
	ck_assert_int_eq(vmm_claim(vm.rundir, 0, &process), 0);
	{
		struct vmm_config config = config_of(&vm);

		start(&vm, &config);
	}
	rig_run(base, &vm.over);
	ck_assert(vm.failed && !vm.spawned);
	ck_assert_str_eq(vm.err.stage, "claim");
	ck_assert_int_eq(vm.err.errnum, EEXIST);
	check_gone(&vm);
}
END_TEST

/* As often as one likes, under a number of its own each time; a number that was claimed is used up. */
START_TEST(a_directory_is_used_again)
{
	struct vmm_process process;
	struct vmm_config config;
	struct vm vm;

	play("");
	name_vm(&vm, 1);
	for (uint32_t i = 0; i < 3; i++) {
		vm.kill_when_up = true;
		vm.spawned = vm.up = vm.over = false;
		config = config_of(&vm);
		config.start = i;
		start(&vm, &config);
		rig_run(base, &vm.over);
		ck_assert(vm.up && !vm.failed);
		ck_assert_int_eq(vmm_claim(vm.rundir, i, &process), 1);
		ck_assert_int_eq(process.pid, vm.process.pid);
		vmm_unclaim(vm.rundir, i);
	}
	ck_assert_int_eq(vmm_claim(vm.rundir, 3, &process), 0);
	vm.spawned = vm.up = vm.over = false;
	config.start = 3;
	start(&vm, &config);
	rig_run(base, &vm.over);
	ck_assert(vm.failed);
	ck_assert_str_eq(vm.err.stage, "claim");
	check_gone(&vm);
}
END_TEST

/* At whatever point of its start: it ends, and the directory can go then at the latest. */
START_TEST(a_directory_that_was_removed_is_not_used)
{
	struct timespec delay = {.tv_nsec = _i * 500000};
	struct vmm_config config;
	struct vm vm;

	play("");
	name_vm(&vm, 1);
	vm.kill_when_up = true;
	config = config_of(&vm);
	start(&vm, &config);
	nanosleep(&delay, NULL);
	tree_remove(rig_dir_fd, vm.id);
	rig_run(base, &vm.over);
	check_gone(&vm);
}
END_TEST

/* ---- whoever dies, whenever ---- */

enum { ODD_VMS = 4 };

static pid_t first_child(pid_t parent)
{
	char path[64], *text;
	size_t len;
	pid_t pid = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
	text = file_read(AT_FDCWD, path, 4096, &len);
	if (text)
		pid = (pid_t)atol(text);
	free(text);
	return pid;
}

/* A broker that starts VMs and never stops of its own. */
static void be_odd_broker(void)
{
	static struct vm vms[ODD_VMS];

	play("litter");
	for (int i = 0; i < ODD_VMS; i++) {
		struct vmm_config config;

		snprintf(vms[i].id, sizeof(vms[i].id), "odd-%d-%d", (int)getppid(), i);
		vms[i].rundir = dir_make(rig_dir_fd, vms[i].id);
		config = config_of(&vms[i]);
		start(&vms[i], &config);
	}
	event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY);
	_exit(0);
}

/* What a new broker does with a run directory that it finds. */
static void clear_odd_vm(struct vm *vm)
{
	struct vmm_process process;
	struct vmm_config config = config_of(vm);
	struct hutch_error err;

	if (vmm_claim(vm->rundir, 0, &process) == 1) {
		vm->vmm = vmm_adopt(base, launcher, &config, &process, &callbacks, vm, &err);
		if (vm->vmm) {
			vmm_kill(vm->vmm);
			rig_run(base, &vm->over);
		}
	}
	close(vm->rundir);
	ck_assert_int_eq(tree_remove(rig_dir_fd, vm->id), 0);
}

/*
 * C014, C047: broker, launcher or both are killed at any moment of four starts; a new broker leaves
 * nothing alive.
 */
START_TEST(whoever_dies_at_any_time)
{
	struct timespec delay = {.tv_nsec = (_i * 7919 % 60) * 1000000};
	pid_t broker = fork(), forked;

	if (broker == 0)
		be_odd_broker();
	nanosleep(&delay, NULL);
	forked = first_child(broker);
	if (_i % 3 != 0 && forked > 0)
		kill(forked, SIGKILL);
	if (_i % 3 == 1)
		nanosleep(&delay, NULL);
	kill(broker, SIGKILL);
	ck_assert_int_eq(waitpid(broker, NULL, 0), broker);
	play("");
	for (int i = 0; i < ODD_VMS; i++) {
		struct vm vm;

		memset(&vm, 0, sizeof(vm));
		snprintf(vm.id, sizeof(vm.id), "odd-%d-%d", (int)getpid(), i);
		vm.rundir = dir_open(rig_dir_fd, vm.id);
		if (vm.rundir >= 0)
			clear_odd_vm(&vm);
		rig_await_marked(vm.id, 0);
	}
}
END_TEST

/* ---- launchers that die, and starts that cannot be ---- */

static pid_t launcher_pid(void)
{
	char path[64], *text;
	size_t len;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	text = file_read(AT_FDCWD, path, 4096, &len);
	ck_assert_ptr_nonnull(text);
	pid = (pid_t)atol(text);
	free(text);
	return pid;
}

START_TEST(a_launcher_that_dies)
{
	struct hutch_error err;
	struct vmm_config config;
	struct vm vm, other;

	play("");
	start_new(&vm);
	rig_run(base, &vm.up);
	kill(launcher_pid(), SIGKILL);
	rig_run(base, &lost);
	ck_assert(!lost_a_start);
	ck_assert(!vm.over);
	name_vm(&other, 2);
	config = config_of(&other);
	ck_assert_ptr_null(vmm_start(base, launcher, &config, &callbacks, &other, &err));
	ck_assert_int_eq(err.kind, HUTCH_E_START_FAILED);
	check_gone(&other);
	vmm_kill(vm.vmm);
	rig_run(base, &vm.over);
	ck_assert_str_eq(vm.reason, "killed");
	check_gone(&vm);
}
END_TEST

START_TEST(a_launcher_that_dies_with_requests)
{
	struct vm vm;

	play("");
	kill(launcher_pid(), SIGSTOP);
	start_new(&vm);
	kill(launcher_pid(), SIGKILL);
	rig_run(base, &vm.over);
	ck_assert(vm.failed);
	ck_assert_str_eq(vm.err.stage, "launcher");
	ck_assert(lost && lost_a_start);
	check_gone(&vm);
}
END_TEST

START_TEST(sockets_that_are_in_the_way)
{
	struct hutch_error err;
	struct vmm_config config;
	struct vm vm;

	play("");
	name_vm(&vm, 1);
	config = config_of(&vm);
	ck_assert_int_eq(mkdirat(vm.rundir, "ctl", 0700), 0);
	ck_assert_ptr_null(vmm_start(base, launcher, &config, &callbacks, &vm, &err));
	ck_assert_int_eq(err.errnum, EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(err.message, "ctl"));
	ck_assert_int_ne(faccessat(vm.rundir, "vsock", F_OK, 0), 0);
	ck_assert_int_ne(faccessat(vm.rundir, "qmp", F_OK, 0), 0);
	check_gone(&vm);
}
END_TEST

/* One start with QEMU's driver that fails before QEMU. */
static void fail_qemu(const char *qemu, const char *library, const char *stage, const char *said)
{
	struct vm vm;

	start_launcher(NULL, qemu, library);
	start_new(&vm);
	rig_run(base, &vm.over);
	ck_assert(vm.failed);
	ck_assert_str_eq(vm.err.stage, stage);
	ck_assert_msg(strstr(vm.err.message, said) != NULL, "%s", vm.err.message);
	check_gone(&vm);
	stop_launcher();
}

START_TEST(starts_that_cannot_be)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/no-exec", rig_dir);
	rig_write("no-exec", "x");
	fail_qemu(path, "/nonexistent.so", "library", "/nonexistent.so: No such file");
	fail_qemu(path, self, "exec", "no-exec: Permission denied");
	fail_qemu("/nonexistent", self, "exec", "No such file or directory (is QEMU installed?)");
	ck_assert_int_eq(setenv("PATH", rig_dir, 1), 0);
	fail_qemu(NULL, self, "exec", "qemu-system-x86_64: No such file");
	ck_assert_int_eq(unlinkat(rig_dir_fd, "t/i", 0), 0);
	fail_qemu(path, self, "initramfs", "t/i: No such file");
	ck_assert_int_eq(unlinkat(rig_dir_fd, "t/k", 0), 0);
	fail_qemu(path, self, "kernel", "t/k: No such file");
	ck_assert_int_eq(tree_remove(rig_dir_fd, "t"), 0);
	fail_qemu(path, self, "template", "t: No such file");
	ck_assert_int_eq(mkdirat(rig_dir_fd, "t", 0700), 0);
}
END_TEST

START_TEST(libraries_that_ld_so_could_not_name)
{
	struct launcher_config config = {.template_dir = rig_dir,
					 .qemu = "/bin/true",
					 .vmm_library = "/a b.so"};
	struct hutch_error err;

	ck_assert_ptr_null(launcher_create(&config, &err));
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	config.vmm_library = "/a:b.so";
	ck_assert_ptr_null(launcher_create(&config, &err));
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, make, remove_all);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return tc;
}

int main(int argc, char **argv)
{
	Suite *s = suite_create("vmm");
	TCase *starts, *endings, *lease, *brokers, *launchers;
	SRunner *sr;
	int failed;

	vmm_play(argc, argv);
	starts = add_case(s, "starts");
	tcase_add_test(starts, up_and_killed);
	tcase_add_test(starts, what_a_vmm_finds);
	tcase_add_loop_test(starts, a_start_that_fails, 0, FAILURES);
	tcase_add_loop_test(starts, a_wrapped_vmm, 0, WRAPPERS);
	tcase_add_loop_test(starts, a_child_without_the_marker, 0, WRAPPERS);
	tcase_add_test(starts, a_wrapper_that_does_not_wait);
	tcase_add_test(starts, what_a_vmm_leaves_behind);
	endings = add_case(s, "ends");
	tcase_add_loop_test(endings, why_a_vmm_ended, 0, ENDS);
	tcase_add_test(endings, killed_before_it_was_spawned);
	tcase_add_test(endings, killed_when_up);
	tcase_add_test(endings, freed_before_it_was_spawned);
	tcase_add_test(endings, many_at_once);
	lease = add_case(s, "lease");
	tcase_add_loop_test(lease, deadlines_are_renewed, 0, 3);
	tcase_add_test(lease, only_the_latest_deadline_counts);
	brokers = add_case(s, "brokers");
	tcase_add_test(brokers, adopted);
	tcase_add_test(brokers, adopted_and_gone_by_itself);
	tcase_add_test(brokers, adopted_while_stopped);
	tcase_add_test(brokers, a_stranger_is_not_adopted);
	tcase_add_test(brokers, leftovers_of_one_that_is_gone);
	tcase_add_test(brokers, a_tied_vmm_dies_with_its_broker);
	tcase_add_test(brokers, a_claimed_directory_is_not_used);
	tcase_add_test(brokers, a_directory_is_used_again);
	tcase_add_loop_test(brokers, a_directory_that_was_removed_is_not_used, 0, 10);
	tcase_add_loop_test(brokers, whoever_dies_at_any_time, 0, 30);
	launchers = add_case(s, "launchers");
	tcase_add_test(launchers, a_launcher_that_dies);
	tcase_add_test(launchers, a_launcher_that_dies_with_requests);
	tcase_add_test(launchers, sockets_that_are_in_the_way);
	tcase_add_test(launchers, starts_that_cannot_be);
	tcase_add_test(launchers, libraries_that_ld_so_could_not_name);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
