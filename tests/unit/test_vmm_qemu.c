/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's command line and version. */
#include "host/hutchd/vmm_qemu.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/vmm_rig.h"

#define ALWAYS                                              \
	"console=ttyS0 quiet panic=-1 reboot=t nowatchdog " \
	"sysctl.vm.compaction_proactiveness=0 sysctl.vm.stat_interval=60"

static struct launch_spawn good(void)
{
	struct launch_spawn r = {.id = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0",
				 .template_name = "base",
				 .kernel = "vmlinux",
				 .initramfs = "initramfs.cpio",
				 .cmdline = "mitigations=off x=y",
				 .accel = LAUNCH_TCG,
				 .memory_mib = 256,
				 .vcpus = 2,
				 .cid = 77};

	return r;
}

/* The value behind an option, counting from its n-th use; NULL when it is not there. */
static const char *value_of(const struct qemu_args *a, const char *option, int n)
{
	for (size_t i = 0; i + 1 < a->argc; i++)
		if (strcmp(a->argv[i], option) == 0 && n-- == 0)
			return a->argv[i + 1];
	return NULL;
}

static bool has(const struct qemu_args *a, const char *arg)
{
	for (size_t i = 0; i < a->argc; i++)
		if (strcmp(a->argv[i], arg) == 0)
			return true;
	return false;
}

START_TEST(a_tcg_vm)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	ck_assert_int_eq(qemu_build_args(&a, "/usr/bin/qemu", &r, 2445398), 0);
	ck_assert_str_eq(a.argv[0], "/usr/bin/qemu");
	ck_assert_ptr_null(a.argv[a.argc]);
	ck_assert_str_eq(value_of(&a, "-name", 0), r.id);
	ck_assert_str_eq(value_of(&a, "-M", 0),
			 QEMU_MACHINE ",suppress-vmdesc=on,mem-merge=off,dump-guest-core=off,"
				      "memory-backend=ram");
	ck_assert_str_eq(value_of(&a, "-object", 0), "memory-backend-ram,id=ram,size=256M");
	ck_assert_str_eq(value_of(&a, "-m", 0), "256");
	ck_assert_str_eq(value_of(&a, "-smp", 0), "2");
	ck_assert_str_eq(value_of(&a, "-accel", 0), "tcg");
	ck_assert_str_eq(value_of(&a, "-cpu", 0), "qemu64,+arat,+rdrand");
	ck_assert_str_eq(value_of(&a, "-device", 0), "vhost-vsock-device,guest-cid=77,vhostfd=3");
	ck_assert_ptr_null(value_of(&a, "-device", 1));
	ck_assert_str_eq(value_of(&a, "-add-fd", 0), "fd=7,set=1");
	ck_assert_str_eq(value_of(&a, "-chardev", 1), "socket,id=qmp,fd=5,server=on,wait=off");
	ck_assert_str_eq(value_of(&a, "-sandbox", 0),
			 "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
	ck_assert_str_eq(value_of(&a, "-append", 0), ALWAYS " tsc_early_khz=2445398 tsc=reliable "
							    "mitigations=off x=y");
	ck_assert_str_eq(value_of(&a, "-kernel", 0), "/proc/self/fd/8");
	ck_assert_str_eq(value_of(&a, "-initrd", 0), "/proc/self/fd/9");
	ck_assert(has(&a, "-nodefaults") && has(&a, "-no-user-config") && has(&a, "-no-reboot"));
	ck_assert(!has(&a, "-netdev") && !has(&a, "-nic"));
}
END_TEST

/* It has to be able to make a process; its children have a filter of ours instead. */
START_TEST(a_zygote)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	r.flags |= LAUNCH_ZYGOTE | LAUNCH_RESTORE;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), 0);
	ck_assert_str_eq(value_of(&a, "-sandbox", 0), "on,obsolete=deny,resourcecontrol=deny");
}
END_TEST

START_TEST(a_vm_with_a_root_disk)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	snprintf(r.root, sizeof(r.root), "root.erofs");
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), 0);
	ck_assert_str_eq(value_of(&a, "-device", 0), "vhost-vsock-device,guest-cid=77,vhostfd=3");
	ck_assert_str_eq(value_of(&a, "-device", 1), "virtio-blk-device,drive=root");
	ck_assert_str_eq(value_of(&a, "-add-fd", 0), "fd=10,set=2");
	ck_assert_str_eq(value_of(&a, "-blockdev", 0),
			 "driver=raw,node-name=root,read-only=on,file.driver=file,"
			 "file.locking=off,file.filename=/dev/fdset/2");
	ck_assert_str_eq(value_of(&a, "-append", 0), ALWAYS " hutch_root=/dev/vda "
							    "mitigations=off x=y");
}
END_TEST

START_TEST(a_vm_with_a_writable_disk)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	r.disk_layers = 1;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), 0);
	ck_assert_str_eq(value_of(&a, "-device", 1),
			 "virtio-blk-device,drive=disk-0,werror=report,rerror=report");
	ck_assert_ptr_null(value_of(&a, "-device", 2));
	ck_assert_str_eq(value_of(&a, "-add-fd", 0), "fd=13,set=3");
	ck_assert_str_eq(value_of(&a, "-blockdev", 0),
			 "driver=raw,node-name=disk-base,read-only=on,file.driver=file,"
			 "file.locking=off,file.filename=/dev/fdset/3");
	ck_assert_str_eq(value_of(&a, "-add-fd", 1), "fd=14,set=2000000");
	ck_assert_str_eq(value_of(&a, "-blockdev", 1),
			 "driver=qcow2,node-name=disk-0,backing=disk-base,cache.no-flush=on,"
			 "discard=unmap,file.driver=file,file.locking=off,"
			 "file.filename=/dev/fdset/2000000");
	ck_assert_str_eq(value_of(&a, "-append", 0), ALWAYS " hutch_disk=/dev/vda "
							    "mitigations=off x=y");
}
END_TEST

/* Each names the one below it, whatever its own header says; all but the last are read only. */
START_TEST(overlays_lie_where_they_are_said_to)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	snprintf(r.root, sizeof(r.root), "root.erofs");
	r.flags = LAUNCH_RESTORE;
	r.layers = LAUNCH_MAX_LAYERS;
	r.disk_layers = 3;
	r.disk_top = 7;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), 0);
	ck_assert_str_eq(value_of(&a, "-device", 1), "virtio-blk-device,drive=root");
	ck_assert_str_eq(value_of(&a, "-device", 2),
			 "virtio-blk-device,drive=disk-7,werror=report,rerror=report");
	ck_assert_str_eq(value_of(&a, "-blockdev", 2),
			 "driver=qcow2,node-name=disk-below-1,read-only=on,backing=disk-base,"
			 "file.driver=file,file.locking=off,file.filename=/dev/fdset/4");
	ck_assert_str_eq(value_of(&a, "-blockdev", 3),
			 "driver=qcow2,node-name=disk-below-2,read-only=on,backing=disk-below-1,"
			 "file.driver=file,file.locking=off,file.filename=/dev/fdset/5");
	ck_assert_str_eq(value_of(&a, "-blockdev", 4),
			 "driver=qcow2,node-name=disk-7,backing=disk-below-2,cache.no-flush=on,"
			 "discard=unmap,file.driver=file,file.locking=off,"
			 "file.filename=/dev/fdset/2000007");
	ck_assert_str_eq(value_of(&a, "-add-fd", 4), "fd=16,set=2000007");
}
END_TEST

START_TEST(a_kvm_vm)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	r.accel = LAUNCH_KVM;
	r.cmdline[0] = '\0';
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 2445398), 0);
	ck_assert_str_eq(value_of(&a, "-accel", 0), "kvm");
	ck_assert_str_eq(value_of(&a, "-cpu", 0), "host");
	ck_assert_str_eq(value_of(&a, "-append", 0), ALWAYS);
}
END_TEST

START_TEST(a_restored_vm)
{
	struct launch_spawn r = good();
	struct qemu_args a;

	r.flags = LAUNCH_RESTORE;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 2445398), 0);
	ck_assert_str_eq(
		value_of(&a, "-object", 0),
		"memory-backend-file,id=ram,size=256M,share=off,mem-path=/proc/self/fd/11");
	ck_assert_str_eq(value_of(&a, "-incoming", 0), "fd:12");
	ck_assert_str_eq(value_of(&a, "-global", 1), "migration.send-configuration=off");
	ck_assert(!has(&a, "-kernel") && !has(&a, "-initrd") && !has(&a, "-append"));
	ck_assert(!has(&a, "-S"));
	r.flags |= LAUNCH_STOPPED;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 2445398), 0);
	ck_assert(has(&a, "-S"));
}
END_TEST

START_TEST(numbers_out_of_range)
{
	struct qemu_args a;
	struct launch_spawn r = good();

	r.memory_mib = VMM_MIN_MEMORY_MIB - 1;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
	r.memory_mib = VMM_MAX_MEMORY_MIB + 1;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
	r = good();
	r.vcpus = 0;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
	r.vcpus = VMM_MAX_VCPUS + 1;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
	r = good();
	r.cid = 2;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
	r.cid = UINT32_MAX;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
	r = good();
	r.accel = 0;
	ck_assert_int_eq(qemu_build_args(&a, "qemu", &r, 0), -1);
}
END_TEST

START_TEST(the_longest_request_fits)
{
	struct launch_spawn r = good();
	struct qemu_args a;
	char path[256];

	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	memset(r.cmdline, 'c', sizeof(r.cmdline) - 1);
	memset(r.id, 'i', sizeof(r.id) - 1);
	memset(r.root, 'r', sizeof(r.root) - 1);
	r.disk_layers = LAUNCH_MAX_DISK_LAYERS;
	r.disk_top = UINT32_MAX - QEMU_DISK_TOP_FDSET;
	r.memory_mib = VMM_MAX_MEMORY_MIB;
	r.cid = UINT32_MAX - 1;
	ck_assert_int_eq(qemu_build_args(&a, path, &r, UINT32_MAX), 0);
	ck_assert_uint_eq(strlen(value_of(&a, "-append", 0)),
			  strlen(ALWAYS " tsc_early_khz=4294967295 tsc=reliable "
					"hutch_root=/dev/vda hutch_disk=/dev/vdb ") +
				  sizeof(r.cmdline) - 1);
}
END_TEST

static void check_version(const char *script, const char *want)
{
	char path[128], version[64];

	snprintf(path, sizeof(path), "%s/qemu", rig_dir);
	rig_write("qemu", script);
	ck_assert_int_eq(chmod(path, 0700), 0);
	qemu_ask_version(path, NULL, NULL, version, sizeof(version));
	ck_assert_str_eq(version, want);
}

START_TEST(versions)
{
	char version[64];

	check_version("#!/bin/sh\necho 'QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)'\n",
		      "7.2.22");
	check_version("#!/bin/sh\necho 'QEMU emulator version 11.1.3'; sleep 1 &\n", "11.1.3");
	check_version("#!/bin/sh\necho version x\n", "");
	check_version("#!/bin/sh\nexit 1\n", "");
	check_version("#!/bin/sh\nyes\n", "");
	qemu_ask_version("/nonexistent", NULL, NULL, version, sizeof(version));
	ck_assert_str_eq(version, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("vmm_qemu");
	TCase *tc = tcase_create("vmm_qemu");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, rig_make, rig_remove);
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, a_tcg_vm);
	tcase_add_test(tc, a_zygote);
	tcase_add_test(tc, a_vm_with_a_root_disk);
	tcase_add_test(tc, a_vm_with_a_writable_disk);
	tcase_add_test(tc, overlays_lie_where_they_are_said_to);
	tcase_add_test(tc, a_kvm_vm);
	tcase_add_test(tc, a_restored_vm);
	tcase_add_test(tc, numbers_out_of_range);
	tcase_add_test(tc, the_longest_request_fits);
	tcase_add_test(tc, versions);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
