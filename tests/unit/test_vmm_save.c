/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping, saving and restoring VMMs, through a real launcher; the VMMs are this program itself
 * (vmm_player).
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vmm.h"
#include "tests/unit/vmm_player.h"
#include "tests/unit/vmm_rig.h"

static struct event_base *base;
static struct launcher *launcher;
static struct template tpl = {.name = "t", .kernel = "k", .initramfs = "i"};

static struct vmm *vmm;
static int rundir;
static bool up, over;
static char reason[256];

struct outcome {
	bool told;
	struct hutch_error err;
	struct vmm_captured captured;
	bool free_it; /* from within the callback */
};

static void on_spawned(void *arg, const struct vmm_process *process)
{
	(void)arg;
	ck_assert_int_gt(process->pid, 0);
}

static void on_up(void *arg, const char *version, uint64_t spawn_us, uint64_t qmp_us)
{
	(void)arg;
	ck_assert_str_eq(version, "1.2.3");
	ck_assert_uint_lt(spawn_us + qmp_us, 20000000);
	up = true;
}

static void on_failed(void *arg, const struct hutch_error *err)
{
	(void)arg;
	snprintf(reason, sizeof(reason), "%.200s", err->message);
	over = true;
}

static void on_exited(void *arg, const char *text)
{
	(void)arg;
	snprintf(reason, sizeof(reason), "%.200s", text);
	over = true;
}

static const struct vmm_callbacks callbacks = {on_spawned, on_up, on_failed, on_exited};

static void on_done(void *arg, const struct hutch_error *err)
{
	struct outcome *o = arg;

	ck_assert(!o->told && !over);
	o->told = true;
	if (err)
		o->err = *err;
	if (!o->free_it)
		return;
	vmm_free(vmm);
	vmm = NULL;
}

static void on_captured(void *arg, const struct hutch_error *err,
			const struct vmm_captured *captured)
{
	struct outcome *o = arg;

	ck_assert((err == NULL) == (captured != NULL));
	if (captured)
		o->captured = *captured;
	on_done(o, err);
}

static void make(void)
{
	static char self[256];
	struct launcher_config config = {.template_dir = rig_dir, .test_vmm = self};
	struct hutch_error err;

	rig_make();
	log_setup("test", LOG_LEVEL_ERROR, 0);
	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	launcher = launcher_create(&config, &err);
	ck_assert_msg(launcher != NULL, "%s", err.message);
	base = event_base_new();
	launcher_attach(launcher, base, NULL, NULL);
	rundir = dir_make(rig_dir_fd, "vm");
	up = over = false;
}

static void remove_all(void)
{
	if (vmm) {
		vmm_kill(vmm);
		rig_run(base, &over);
		vmm_free(vmm);
	}
	vmm = NULL;
	launcher_destroy(launcher);
	event_base_free(base);
	close(rundir);
	rig_remove();
}

static bool start(const char *part, const struct vmm_restore *restore, struct hutch_error *err)
{
	struct vmm_config c = {.rundir_fd = rundir,
			       .tpl = &tpl,
			       .accel = ACCEL_TCG,
			       .memory_mib = 128,
			       .vcpus = 1,
			       .cid = 3,
			       .qmp_timeout_ms = 10000,
			       .restore = restore};

	/* The launcher's environment is its own: the part is told through the VM's directory. */
	snprintf(c.id, sizeof(c.id), "%08x-0000-4000-8000-000000000001", (unsigned)getpid());
	ck_assert_int_eq(file_write_atomic(rundir, "play", part, strlen(part), false), 0);
	vmm = vmm_start(base, launcher, &c, &callbacks, NULL, err);
	return vmm != NULL;
}

static void start_up(const char *part)
{
	struct hutch_error err;

	ck_assert_msg(start(part, NULL, &err), "%s", err.message);
	rig_run(base, &up);
}

static int file(const char *name, int flags)
{
	int fd = openat(rundir, name, flags | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void expect_file(const char *name, const char *want)
{
	size_t len;
	char *text = file_read(rundir, name, 4096, &len);

	ck_assert_msg(text && strcmp(text, want) == 0, "%s: %s", name, text ? text : "none");
	free(text);
}

/* ---- stop and cont ---- */

START_TEST(stopped_and_continued)
{
	struct outcome o[3] = {{.told = false}};

	start_up("");
	ck_assert(!vmm_is_stopped(vmm));
	vmm_stop(vmm, on_done, &o[0]);
	ck_assert(!o[0].told);
	rig_run(base, &o[0].told);
	ck_assert_int_eq(o[0].err.kind, HUTCH_OK);
	ck_assert(vmm_is_stopped(vmm));
	/* Two that wait are carried out in their order. */
	vmm_cont(vmm, on_done, &o[1]);
	vmm_stop(vmm, on_done, &o[2]);
	rig_run(base, &o[2].told);
	ck_assert(o[1].told);
	ck_assert(vmm_is_stopped(vmm));
}
END_TEST

START_TEST(stopped_too_early)
{
	struct outcome o = {.told = false};
	struct hutch_error err;

	ck_assert(start("", NULL, &err));
	vmm_stop(vmm, on_done, &o);
	rig_run(base, &o.told);
	ck_assert_int_eq(o.err.kind, HUTCH_E_STATE);
	rig_run(base, &up);
}
END_TEST

START_TEST(it_dies_while_it_is_stopped)
{
	struct outcome o[2] = {{.told = false}};

	start_up("stop_dies");
	vmm_stop(vmm, on_done, &o[0]);
	vmm_cont(vmm, on_done, &o[1]);
	rig_run(base, &over);
	ck_assert(o[0].told && o[1].told);
	ck_assert_int_ne(o[0].err.kind, HUTCH_OK);
	ck_assert_int_ne(o[1].err.kind, HUTCH_OK);
	ck_assert_str_eq(reason, "killed by signal 9 (SIGKILL)");
}
END_TEST

START_TEST(freed_in_a_callback)
{
	struct outcome o[2] = {{.free_it = true}, {.told = false}};
	struct vmm_process p;

	start_up("");
	p = vmm_get_process(vmm);
	vmm_stop(vmm, on_done, &o[0]);
	vmm_cont(vmm, on_done, &o[1]);
	rig_run(base, &o[0].told);
	ck_assert(!o[1].told);
	ck_assert(vmm_process_alive(&p));
	kill(p.pid, SIGKILL);
}
END_TEST

/* ---- captures ---- */

static void capture(struct outcome *o, bool whole)
{
	struct vmm_capture_to to = {.data_fd = file("data", O_RDWR),
				    .extents_fd = whole ? -1 : file("extents", O_RDWR),
				    .device_fd = file("device", O_WRONLY),
				    .whole = whole};

	vmm_capture(vmm, &to, on_captured, o);
	fd_close(&to.data_fd);
	fd_close(&to.extents_fd);
	fd_close(&to.device_fd);
}

START_TEST(captured)
{
	struct outcome o[4] = {{.told = false}};
	int fds, data;

	start_up("");
	fds = rig_count_fds();
	for (int i = 0; i < 2; i++) {
		capture(&o[i], i == 0);
		ck_assert(!o[i].told);
		rig_run(base, &o[i].told);
		ck_assert_msg(o[i].err.kind == HUTCH_OK, "%s", o[i].err.message);
		ck_assert(o[i].captured.bytes == 123456789012 && o[i].captured.extents == 7);
		expect_file("device", "devices");
		expect_file("data", i == 0 ? "capture whole\n" : "capture delta\n");
		unlinkat(rundir, "device", 0);
	}
	expect_file("extents", "e");
	data = file("ahead", O_RDWR);
	vmm_capture_ahead(vmm, data, on_captured, &o[2]);
	fd_close(&data);
	rig_run(base, &o[2].told);
	ck_assert_msg(o[2].err.kind == HUTCH_OK, "%s", o[2].err.message);
	expect_file("ahead", "capture ahead\n");
	/* What it left to the next one is used and gone. */
	capture(&o[3], true);
	rig_run(base, &o[3].told);
	ck_assert_msg(o[3].err.kind == HUTCH_OK, "%s", o[3].err.message);
	expect_file("device", "devices");
	ck_assert_int_eq(rig_count_fds(), fds);
}
END_TEST

static const struct {
	const char *part;
	enum hutch_error_kind kind;
	int errnum;
	const char *said;
	bool dies;
} failures[] = {
	{"memory_full", HUTCH_E_IO, ENOSPC, "No space left on device", false},
	{"memory_refused", HUTCH_E_STATE, 0, "the VM is running", false},
	{"memory_closes", HUTCH_E_IO, 0, "the control socket was closed", false},
	{"save_fails", HUTCH_E_INTERNAL, 0, "GenericError: refused", false},
	{"save_nothing", HUTCH_E_TOO_LARGE, 0, "of 0 bytes", false},
	{"save_huge", HUTCH_E_TOO_LARGE, 0, "of 2097152 bytes", false},
	{"save_dies", HUTCH_OK, 0, "", true},
};
#define FAILURES ((int)(sizeof(failures) / sizeof(failures[0])))

START_TEST(a_capture_that_fails)
{
	struct outcome o = {.told = false}, after = {.told = false};
	int fds;

	start_up(failures[_i].part);
	fds = rig_count_fds();
	capture(&o, false);
	rig_run(base, &o.told);
	ck_assert_int_ne(o.err.kind, HUTCH_OK);
	if (failures[_i].dies) {
		rig_run(base, &over);
		return;
	}
	ck_assert_int_eq(o.err.kind, failures[_i].kind);
	ck_assert_int_eq(o.err.errnum, failures[_i].errnum);
	ck_assert_msg(strstr(o.err.message, failures[_i].said) != NULL, "%s", o.err.message);
	ck_assert_int_eq(rig_count_fds(), fds);
	/* The VM is unharmed. */
	vmm_cont(vmm, on_done, &after);
	rig_run(base, &after.told);
	ck_assert_int_eq(after.err.kind, HUTCH_OK);
}
END_TEST

START_TEST(freed_during_a_capture)
{
	struct outcome o = {.told = false};
	struct vmm_process p;
	int fds;

	fds = rig_count_fds();
	start_up("");
	p = vmm_get_process(vmm);
	capture(&o, true);
	vmm_free(vmm);
	vmm = NULL;
	ck_assert(!o.told);
	ck_assert_int_eq(rig_count_fds(), fds);
	kill(p.pid, SIGKILL);
}
END_TEST

/* ---- restores ---- */

static void make_image(struct vmm_restore *r, struct vmm_layer *layer)
{
	rig_write("vm/base", "base");
	rig_write("vm/state", "state of the devices");
	rig_write("vm/data", "layer data");
	rig_write("vm/extents", "extents");
	*layer = (struct vmm_layer){file("data", O_RDONLY), file("extents", O_RDONLY)};
	*r = (struct vmm_restore){.base_fd = file("base", O_RDONLY),
				  .device_fd = file("state", O_RDONLY),
				  .nlayers = 1,
				  .layers = layer};
}

static void close_image(struct vmm_restore *r, struct vmm_layer *layer)
{
	fd_close(&r->base_fd);
	fd_close(&r->device_fd);
	fd_close(&layer->data_fd);
	fd_close(&layer->extents_fd);
}

/* Its load is not done when QMP answers first; an event tells. */
START_TEST(restored)
{
	struct vmm_layer layer;
	struct vmm_restore r;
	struct hutch_error err;

	make_image(&r, &layer);
	ck_assert_msg(start("restored", &r, &err), "%s", err.message);
	close_image(&r, &layer);
	rig_run(base, &up);
	expect_file("device", "state of the devices");
	expect_file("layer", "layer data");
	expect_file("fcntl", "good");
	expect_file("layers", "1");
}
END_TEST

/* The event can be here before the answer that knows nothing of it. */
START_TEST(restored_before_it_says_so)
{
	struct vmm_layer layer;
	struct vmm_restore r;
	struct hutch_error err;

	make_image(&r, &layer);
	ck_assert_msg(start("overtaken", &r, &err), "%s", err.message);
	close_image(&r, &layer);
	rig_run(base, &up);
	ck_assert(!vmm_is_stopped(vmm));
}
END_TEST

START_TEST(restored_and_stopped)
{
	struct vmm_layer layer;
	struct vmm_restore r;
	struct hutch_error err;

	make_image(&r, &layer);
	r.stopped = true;
	r.nlayers = 0;
	ck_assert_msg(start("paused", &r, &err), "%s", err.message);
	close_image(&r, &layer);
	rig_run(base, &up);
	ck_assert(vmm_is_stopped(vmm));
}
END_TEST

static void spoil(struct vmm_restore *r, struct vmm_layer *layer, int how, int *held)
{
	switch (how) {
	case 0:
		fd_close(&r->base_fd);
		r->base_fd = file("base", O_RDWR);
		break;
	case 1:
		fd_close(&layer->data_fd);
		layer->data_fd = file("data", O_RDWR);
		break;
	case 2:
		fd_close(&layer->extents_fd);
		layer->extents_fd = file("extents", O_WRONLY);
		break;
	case 3:
		r->nlayers = VMM_MAX_LAYERS + 1;
		break;
	case 4:
		rig_write("vm/state", "");
		break;
	case 5:
		fd_close(&r->device_fd);
		r->device_fd = file("state", O_RDWR);
		ck_assert_int_eq(ftruncate(r->device_fd, VMM_MAX_DEVICE_STATE + 1), 0);
		break;
	case 6:
		*held = file("data", O_WRONLY);
		break;
	case 7:
		*held = file("base", O_RDWR);
		break;
	default:
		ck_abort();
	}
}
#define SPOILED 8

START_TEST(images_that_are_none)
{
	struct vmm_layer layer;
	struct vmm_restore r;
	struct hutch_error err;
	int fds = rig_count_fds(), held = -1;

	make_image(&r, &layer);
	spoil(&r, &layer, _i, &held);
	ck_assert(!start("", &r, &err));
	ck_assert_int_eq(err.kind, held < 0 ? HUTCH_E_INVALID : HUTCH_E_STATE);
	fd_close(&held);
	close_image(&r, &layer);
	ck_assert_int_eq(rig_count_fds(), fds);
}
END_TEST

/* A state of some hundred KiB, more than a pipe holds by default, and all the layers there can be. */
START_TEST(the_largest_image)
{
	struct vmm_layer one, layers[VMM_MAX_LAYERS];
	struct vmm_restore r;
	struct hutch_error err;
	int device;

	make_image(&r, &one);
	device = file("state", O_RDWR);
	ck_assert_int_eq(ftruncate(device, 300 << 10), 0);
	fd_close(&device);
	for (size_t i = 0; i < VMM_MAX_LAYERS; i++)
		layers[i] = one;
	r.nlayers = VMM_MAX_LAYERS;
	r.layers = layers;
	ck_assert_msg(start("", &r, &err), "%s", err.message);
	close_image(&r, &one);
	rig_run(base, &up);
}
END_TEST

/* Other pipes of this user hold all that they may, so that a new one holds little. It is no more than a try where that has no bound. */
START_TEST(restored_without_room_in_pipes)
{
	enum { PIPES = 80, LARGE = 1 << 20 };
	int pipes[PIPES][2], device;
	struct vmm_layer one;
	struct vmm_restore r;
	struct hutch_error err;

	make_image(&r, &one);
	device = file("state", O_RDWR);
	ck_assert_int_eq(ftruncate(device, 60 << 10), 0);
	fd_close(&device);
	for (int i = 0; i < PIPES; i++) {
		ck_assert_int_eq(pipe2(pipes[i], O_CLOEXEC), 0);
		fcntl(pipes[i][0], F_SETPIPE_SZ, LARGE);
	}
	ck_assert_msg(start("", &r, &err), "%s", err.message);
	close_image(&r, &one);
	rig_run(base, &up);
	for (int i = 0; i < PIPES; i++) {
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}
END_TEST

/* ---- traits ---- */

START_TEST(what_a_snapshot_fits)
{
	struct vmm_traits a, b;

	vmm_traits_get(&a, launcher, &tpl, ACCEL_TCG, 256, 1);
	vmm_traits_get(&b, launcher, &tpl, ACCEL_TCG, 256, 1);
	ck_assert_str_eq(a.accel, "tcg");
	ck_assert_uint_gt(a.tsc_khz, 100000);
	ck_assert_ptr_null(vmm_traits_differ(&a, &b));
	b.tsc_khz = a.tsc_khz + a.tsc_khz / 5000; /* 200 ppm */
	ck_assert_ptr_null(vmm_traits_differ(&a, &b));
	b.tsc_khz = a.tsc_khz + a.tsc_khz / 3000;
	ck_assert_str_eq(vmm_traits_differ(&a, &b), "tsc_khz");
	vmm_traits_get(&b, launcher, &tpl, ACCEL_TCG, 512, 1);
	ck_assert_str_eq(vmm_traits_differ(&a, &b), "memory_mib");
	vmm_traits_get(&b, launcher, &tpl, ACCEL_TCG, 256, 2);
	ck_assert_str_eq(vmm_traits_differ(&a, &b), "vcpus");
	vmm_traits_get(&b, launcher, &tpl, ACCEL_KVM, 256, 1);
	ck_assert_str_eq(vmm_traits_differ(&a, &b), "cpu");
	snprintf(tpl.root, sizeof(tpl.root), "root");
	vmm_traits_get(&b, launcher, &tpl, ACCEL_TCG, 256, 1);
	ck_assert_str_eq(vmm_traits_differ(&a, &b), "machine");
	tpl.root[0] = '\0';
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vmm_save");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, make, remove_all);
	tcase_add_test(t, stopped_and_continued);
	tcase_add_test(t, stopped_too_early);
	tcase_add_test(t, it_dies_while_it_is_stopped);
	tcase_add_test(t, freed_in_a_callback);
	tcase_add_test(t, captured);
	tcase_add_loop_test(t, a_capture_that_fails, 0, FAILURES);
	tcase_add_test(t, freed_during_a_capture);
	tcase_add_test(t, restored);
	tcase_add_test(t, restored_before_it_says_so);
	tcase_add_test(t, restored_and_stopped);
	tcase_add_loop_test(t, images_that_are_none, 0, SPOILED);
	tcase_add_test(t, the_largest_image);
	tcase_add_test(t, restored_without_room_in_pipes);
	tcase_add_test(t, what_a_snapshot_fits);
	suite_add_tcase(s, t);
	return s;
}

int main(int argc, char **argv)
{
	SRunner *sr;
	int failed;

	vmm_play(argc, argv);
	sr = srunner_create(suite());
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
