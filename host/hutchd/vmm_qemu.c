/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's command line: a microvm with a serial console and one vhost-vsock device, and nothing
 * else.
 *
 * -M             acpi=on,rtc=on: a TCG guest hangs without them; pit=off,pic=off: no periodic tick
 *                in QEMU's main loop
 * -cpu           under TCG +arat: a one-shot LAPIC timer, so that an idle guest sleeps; +rdrand: it
 *                seeds the guest's RNG, whose first getrandom() else waits 1.1 s for jitter
 * tsc_early_khz  cures the boot hang on a busy host (tsc.h)
 * tsc=reliable   or the kernel's watchdog compares the TSC with lost ticks of a busy host, drops it, and the VM lives
 *                on 4 ms jiffies, without high-resolution timers, for good
 * nowatchdog, sysctl.vm.*  an idle guest else wakes twice a second for memory to compact, once a second for statistics and
 *                every 4 s to see whether it is alive: four fifths of what an idle VM costs
 * suppress-vmdesc  a saved device state is followed by nothing else; mem-merge=off: no KSM
 * -no-reboot     a reset (kernel parameters panic=-1 reboot=t) ends the VMM
 * -sandbox       no process can be started from within QEMU, unless it is a zygote, whose children have a filter of ours
 *                (seccomp.c)
 *
 * vhost-vsock-device comes first of all devices, then the root disk and the writable one, those that
 * there are: virtio-mmio slots are given out in order, and a snapshot fits only a command line with
 * the same order. hutch_root and hutch_disk tell the agent what the guest calls them.
 */
#include "host/hutchd/vmm_qemu.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"

#define KERNEL_PARAMETERS                                   \
	"console=ttyS0 quiet panic=-1 reboot=t nowatchdog " \
	"sysctl.vm.compaction_proactiveness=0 sysctl.vm.stat_interval=60"
/* Unknown to the kernel, which hands it on in init's environment. */
#define ROOT_PARAMETER " hutch_root=/dev/"
#define DISK_PARAMETER " hutch_disk=/dev/"
#define ONLY	       "vda"
#define FIRST_OF_TWO   "vda"
#define SECOND_OF_TWO  "vdb"
#define VERSION_MS     5000

static void add(struct qemu_args *a, const char *text)
{
	size_t size = strlen(text) + 1;

	if (a->argc == QEMU_MAX_ARGS || size > sizeof(a->text) - a->used) {
		a->argc = QEMU_MAX_ARGS; /* sticky: qemu_build_args fails */
		return;
	}
	a->argv[a->argc++] = memcpy(a->text + a->used, text, size);
	a->used += size;
}

static void addf(struct qemu_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void addf(struct qemu_args *a, const char *fmt, ...)
{
	char text[QEMU_MAX_TEXT];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		a->argc = QEMU_MAX_ARGS;
	else
		add(a, text);
}

/*
 * restored: a private mapping of the base, whose open the in-VMM library answers (vmm_open.c)
 */
static void add_memory(struct qemu_args *a, const struct launch_spawn *req)
{
	add(a, "-object");
	if (req->flags & LAUNCH_RESTORE)
		addf(a, "memory-backend-file,id=ram,size=%uM,share=off,mem-path=/proc/self/fd/%d",
		     req->memory_mib, VMM_FD_BASE);
	else
		addf(a, "memory-backend-ram,id=ram,size=%uM", req->memory_mib);
}

static void add_machine(struct qemu_args *a, const struct launch_spawn *req)
{
	add(a, "-M");
	add(a, QEMU_MACHINE
	    ",suppress-vmdesc=on,mem-merge=off,dump-guest-core=off,memory-backend=ram");
	add_memory(a, req);
	add(a, "-m");
	addf(a, "%u", req->memory_mib);
	add(a, "-smp");
	addf(a, "%u", req->vcpus);
	add(a, "-accel");
	add(a, req->accel == LAUNCH_KVM ? "kvm" : "tcg");
	add(a, "-cpu");
	add(a, req->accel == LAUNCH_KVM ? QEMU_CPU_KVM : QEMU_CPU_TCG);
}

/*
 * The descriptor is open for reading only, which is what keeps the image as it is. No lock on it:
 * all VMs of a template share the file.
 */
static void add_root_disk(struct qemu_args *a)
{
	add(a, "-add-fd");
	addf(a, "fd=%d,set=2", VMM_FD_ROOT);
	add(a, "-blockdev");
	add(a, "driver=raw,node-name=root,read-only=on,file.driver=file,file.locking=off,"
	       "file.filename=/dev/fdset/2");
	add(a, "-device");
	add(a, "virtio-blk-device,drive=root");
}

/* A node of the writable disk that nobody writes to: 0 is the base. */
static void below_name(unsigned i, char out[24])
{
	if (i == 0)
		snprintf(out, 24, "disk-base");
	else
		snprintf(out, 24, "disk-below-%u", i);
}

static void add_fd_set(struct qemu_args *a, unsigned fd, unsigned set)
{
	add(a, "-add-fd");
	addf(a, "fd=%u,set=%u", fd, set);
	add(a, "-blockdev");
}

/*
 * What lies under an overlay is said here, whatever its own header says. Only the last one is open
 * for writing. A write that fails, since the host's disk is full, is the guest's error and does not
 * stop it. Nothing is synced on behalf of the guest: a disk ends with its VM, and what is kept of
 * it is synced then.
 */
static void add_writable_disk(struct qemu_args *a, const struct launch_spawn *req)
{
	unsigned last = req->disk_layers, set = QEMU_DISK_FDSET;
	char name[24], below[24];

	add_fd_set(a, VMM_FD_DISK, set);
	addf(a,
	     "driver=raw,node-name=disk-base,read-only=on,file.driver=file,file.locking=off,"
	     "file.filename=/dev/fdset/%u",
	     set);
	for (unsigned i = 1; i < last; i++) {
		below_name(i, name);
		below_name(i - 1, below);
		add_fd_set(a, VMM_FD_DISK + i, ++set);
		addf(a,
		     "driver=qcow2,node-name=%s,read-only=on,backing=%s,file.driver=file,"
		     "file.locking=off,file.filename=/dev/fdset/%u",
		     name, below, set);
	}
	below_name(last - 1, below);
	set = QEMU_DISK_TOP_FDSET + req->disk_top;
	add_fd_set(a, VMM_FD_DISK + last, set);
	addf(a,
	     "driver=qcow2,node-name=disk-%u,backing=%s,cache.no-flush=on,discard=unmap,"
	     "file.driver=file,file.locking=off,file.filename=/dev/fdset/%u",
	     req->disk_top, below, set);
	add(a, "-device");
	addf(a, "virtio-blk-device,drive=disk-%u,werror=report,rerror=report", req->disk_top);
}

static void add_devices(struct qemu_args *a, const struct launch_spawn *req)
{
	/*
	 * Without it a virtio-mmio device is a legacy one, and VIRTIO_F_VERSION_1 is never offered.
	 */
	add(a, "-global");
	add(a, "virtio-mmio.force-legacy=false");
	add(a, "-device");
	addf(a, "vhost-vsock-device,guest-cid=%u,vhostfd=%d", req->cid, VMM_FD_VHOST);
	if (req->root[0])
		add_root_disk(a);
	if (req->disk_layers)
		add_writable_disk(a, req);
	/* An fdset gives QEMU the descriptor itself: no path, and appending stays appending. */
	add(a, "-add-fd");
	addf(a, "fd=%d,set=1", VMM_FD_CONSOLE);
	add(a, "-chardev");
	add(a, "file,id=console,path=/dev/fdset/1,append=on");
	add(a, "-serial");
	add(a, "chardev:console");
	add(a, "-chardev");
	addf(a, "socket,id=qmp,fd=%d,server=on,wait=off", VMM_FD_QMP);
	add(a, "-mon");
	add(a, "chardev=qmp,mode=control");
}

static void add_kernel(struct qemu_args *a, const struct launch_spawn *req, uint32_t tsc_khz)
{
	char tsc[64] = "", root[32] = "", disk[32] = "";

	if (req->accel == LAUNCH_TCG && tsc_khz != 0)
		snprintf(tsc, sizeof(tsc), " tsc_early_khz=%u tsc=reliable", tsc_khz);
	add(a, "-kernel");
	addf(a, "/proc/self/fd/%d", VMM_FD_KERNEL);
	add(a, "-initrd");
	addf(a, "/proc/self/fd/%d", VMM_FD_INITRAMFS);
	add(a, "-append");
	if (req->root[0])
		snprintf(root, sizeof(root), ROOT_PARAMETER "%s",
			 req->disk_layers ? FIRST_OF_TWO : ONLY);
	if (req->disk_layers)
		snprintf(disk, sizeof(disk), DISK_PARAMETER "%s",
			 req->root[0] ? SECOND_OF_TWO : ONLY);
	addf(a, KERNEL_PARAMETERS "%s%s%s%s%s", tsc, root, disk, req->cmdline[0] ? " " : "",
	     req->cmdline);
}

/*
 * xen-save-devices-state writes no configuration section (send-configuration); x-events: the
 * end of the load is told.
 */
static void add_incoming(struct qemu_args *a, const struct launch_spawn *req)
{
	add(a, "-global");
	add(a, "migration.send-configuration=off");
	add(a, "-global");
	add(a, "migration.x-events=on");
	add(a, "-incoming");
	addf(a, "fd:%d", VMM_FD_DEVICE);
	if (req->flags & LAUNCH_STOPPED)
		add(a, "-S");
}

int qemu_build_args(struct qemu_args *out, const char *qemu, const struct launch_spawn *req,
		    uint32_t tsc_khz)
{
	memset(out, 0, sizeof(*out));
	if (req->memory_mib < VMM_MIN_MEMORY_MIB || req->memory_mib > VMM_MAX_MEMORY_MIB ||
	    req->vcpus < 1 || req->vcpus > VMM_MAX_VCPUS || req->cid < VMM_MIN_CID ||
	    req->cid == UINT32_MAX || (req->accel != LAUNCH_KVM && req->accel != LAUNCH_TCG)) {
		errno = EINVAL;
		return -1;
	}
	add(out, qemu);
	add(out, "-name");
	add(out, req->id);
	add(out, "-nodefaults");
	add(out, "-no-user-config");
	add(out, "-no-reboot");
	add(out, "-display");
	add(out, "none");
	add(out, "-sandbox");
	addf(out, "on,obsolete=deny%s,resourcecontrol=deny",
	     req->flags & LAUNCH_ZYGOTE ? "" : ",elevateprivileges=deny,spawn=deny");
	add_machine(out, req);
	add_devices(out, req);
	if (req->flags & LAUNCH_RESTORE)
		add_incoming(out, req);
	else
		add_kernel(out, req, tsc_khz);
	if (out->argc == QEMU_MAX_ARGS) {
		errno = E2BIG;
		return -1;
	}
	return 0;
}

/*
 * What the program at the other end writes, until a line is whole, EOF, the buffer is full, or time
 * is up.
 */
static size_t read_line_for(int fd, char *buf, size_t size, int ms)
{
	struct timespec start, now;
	size_t len = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (len < size && !memchr(buf, '\n', len)) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t n;
		int left;

		clock_gettime(CLOCK_MONOTONIC, &now);
		left = ms - (int)((now.tv_sec - start.tv_sec) * 1000 +
				  (now.tv_nsec - start.tv_nsec) / 1000000);
		if (left <= 0 || poll(&p, 1, left) == 0)
			break;
		n = read(fd, buf + len, size - len);
		if (n == 0 || (n < 0 && errno != EINTR))
			break;
		len += n > 0 ? (size_t)n : 0;
	}
	return len;
}

static _Noreturn void run_version(const char *qemu, const struct jail *jail, const char *preload,
				  int out)
{
	const struct jail_entry entry = {.rundir = -1};
	int null = open("/dev/null", O_RDWR);
	const char *stage;
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	dup2(null, STDIN_FILENO);
	dup2(null, STDERR_FILENO);
	dup2(out, STDOUT_FILENO);
	if (jail && jail_enter(jail, &entry, &stage) < 0)
		_exit(127);
	close_range(3, ~0u, 0);
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	execl(qemu, qemu, "--version", (char *)NULL);
	_exit(127);
}

void qemu_ask_version(const char *qemu, const struct jail *jail, const char *preload, char *version,
		      size_t size)
{
	static const char before[] = "version ";
	char text[256];
	const char *at;
	size_t len;
	int out[2];
	pid_t pid;

	version[0] = '\0';
	if (pipe2(out, O_CLOEXEC) < 0)
		return;
	pid = jail_fork(jail, -1, false);
	if (pid == 0)
		run_version(qemu, jail, preload, out[1]);
	fd_close(&out[1]);
	len = pid > 0 ? read_line_for(out[0], text, sizeof(text) - 1, VERSION_MS) : 0;
	fd_close(&out[0]);
	if (pid > 0) {
		kill(pid, SIGKILL); /* it said all, or is too slow */
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	text[len] = '\0';
	at = strstr(text, before);
	if (at) {
		at += sizeof(before) - 1;
		snprintf(version, size, "%.*s", (int)strspn(at, "0123456789."), at);
	}
}
