/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of boot; see boot.h. Every mount point is made if it is missing: the image may be empty. */
#include "guest/boot.h"

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/limits.h"
#include "guest/lines.h"
#include "guest/log.h"

static char *failures[AGENT_MAX_FAILURES];
static unsigned nfailures;
static bool root_in_memory; /* what the overlay over the root disk holds */

void boot_failed(const char *fmt, ...)
{
	int errnum = errno, n;
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (errnum && n >= 0 && n < (int)sizeof(text))
		snprintf(text + n, sizeof(text) - (size_t)n, ": %s", strerror(errnum));
	log_info("boot: %s", text);
	if (nfailures < AGENT_MAX_FAILURES && (failures[nfailures] = strdup(text)))
		nfailures++;
}

const char *boot_failure(unsigned i)
{
	return i < nfailures ? failures[i] : NULL;
}

struct mount_row {
	const char *type, *where, *options;
	unsigned long flags;
	mode_t mode; /* of the mount point, when it is made */
};

static const struct mount_row mounts[] = {
	{"proc", "/proc", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
	{"sysfs", "/sys", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0555},
	{"devpts", "/dev/pts", "gid=5,mode=620,ptmxmode=666", MS_NOSUID | MS_NOEXEC, 0755},
	{"tmpfs", "/dev/shm", "mode=1777", MS_NOSUID | MS_NODEV, 01777},
	{"tmpfs", "/run", "mode=755", MS_NOSUID | MS_NODEV, 0755},
	{"cgroup2", "/sys/fs/cgroup", NULL, MS_NOSUID | MS_NODEV | MS_NOEXEC, 0755},
};

static const struct mount_row tmp_row = {"tmpfs", "/tmp", "mode=1777", MS_NOSUID | MS_NODEV, 01777};

static void mount_one(const struct mount_row *m)
{
	if (mkdir(m->where, m->mode) < 0 && errno != EEXIST && errno != EROFS) {
		boot_failed("mkdir %s", m->where);
		return;
	}
	/* EBUSY: the kernel or an initramfs mounted it already */
	if (mount(m->type, m->where, m->type, m->flags, m->options) < 0 && errno != EBUSY)
		boot_failed("mount %s on %s", m->type, m->where);
}

/*
 * A large file in memory takes huge pages then, at half the cost of writing and reading it; a small one is as before
 * (the kernel's admin-guide/mm/transhuge.rst). A kernel without them says no, which is no failure.
 */
static void allow_huge_pages(const char *where, unsigned long flags)
{
	struct statfs fs;

	if (statfs(where, &fs) == 0 && (unsigned long)fs.f_type == TMPFS_MAGIC &&
	    !(fs.f_flags & ST_RDONLY))
		mount(NULL, where, NULL, MS_REMOUNT | flags, "huge=within_size");
}

/* /tmp is the image's own where that lies on a disk; in memory, or read-only, it is a tmpfs. */
static void mount_tmp(void)
{
	struct statfs root;

	if (root_in_memory || statfs("/", &root) < 0 || (root.f_flags & ST_RDONLY) ||
	    (unsigned long)root.f_type == TMPFS_MAGIC ||
	    (unsigned long)root.f_type == RAMFS_MAGIC) {
		mount_one(&tmp_row);
		return;
	}
	if (mkdir("/tmp", 01777) == 0)
		chmod("/tmp", 01777); /* whatever the umask */
	else if (errno != EEXIST)
		boot_failed("mkdir /tmp");
}

static void tune_memory_file_systems(void)
{
	allow_huge_pages("/", 0);
	allow_huge_pages("/tmp", MS_NOSUID | MS_NODEV);
}

/* Where the parts of the root are mounted in the initramfs. */
#define ROOT_DISK   "/.disk"
#define ROOT_OVER   "/.over"
#define ROOT_NEW    "/.new"
#define ROOT_INODES (1u << 20)

static int mount_disk(const char *disk)
{
	static const char *const types[] = {"erofs", "squashfs", "ext4"};
	int r = -1, fd;

	for (size_t i = 0; r < 0 && i < sizeof(types) / sizeof(*types); i++)
		r = mount(disk, ROOT_DISK, types[i], MS_RDONLY, NULL);
	/* rootfs/build puts all inodes first; each block of them would else be a read of its own. */
	if (r == 0 && (fd = open(disk, O_RDONLY | O_CLOEXEC)) >= 0) {
		readahead(fd, 0, ROOT_INODES);
		close(fd);
	}
	return r;
}

#define GROW_MS	   1000u
#define DISK_BLOCK 4096u /* of the file system that rootfs/blank.py makes */
/* linux/fs.h has no name for it: ext4's own (fs/ext4/ext4.h), online resizing. */
#define GROW_FS _IOW('f', 16, uint64_t)

/* The disk that is written to, and the root of the file system on it; -1: there is none. */
static int upper_device = -1, upper_root = -1;

static void keep_upper(const char *upper)
{
	upper_device = open(upper, O_RDONLY | O_CLOEXEC);
	upper_root = open(ROOT_OVER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (boot_grow_disk(0) < 0)
		boot_failed("disk %s: its file system does not fill it", upper);
}

int boot_grow_disk(uint64_t bytes)
{
	const struct timespec tick = {.tv_nsec = 1000000};
	uint64_t size = 0;

	/* The kernel takes a new size from the device in a work item of its own, and tells nobody but udev. */
	for (unsigned i = 0; i < GROW_MS; i++) {
		if (ioctl(upper_device, BLKGETSIZE64, &size) < 0)
			return -1;
		if (size >= bytes)
			break;
		nanosleep(&tick, NULL);
	}
	if (size < bytes) {
		errno = ETIMEDOUT;
		return -1;
	}
	size /= DISK_BLOCK;
	return ioctl(upper_root, GROW_FS, &size);
}

/*
 * Make the image on this disk, or the initramfs itself where there is none, the root, with what is written over it:
 * a tmpfs, or the file system on the disk upper. It is mounted over the initramfs, which no path leads to any more:
 * the agent goes on running from there, and what it had mounted so far (/dev) is moved along by binding it. Until
 * the last step the old root is as it was, and boot goes on there when one fails.
 */
static void switch_root(const char *disk, const char *upper)
{
	const char *step = NULL;

	mkdir(ROOT_DISK, 0755);
	mkdir(ROOT_OVER, 0755);
	mkdir(ROOT_NEW, 0755);
	if ((disk ? mount_disk(disk) : mount("/", ROOT_DISK, NULL, MS_BIND, NULL)) < 0)
		step = "mount";
	else if ((upper ? mount(upper, ROOT_OVER, "ext4", MS_NOATIME, NULL)
			: mount("tmpfs", ROOT_OVER, "tmpfs", 0, "mode=755,size=50%")) < 0 ||
		 mkdir(ROOT_OVER "/upper", 0755) < 0 || mkdir(ROOT_OVER "/work", 0755) < 0)
		step = "upper";
	else if (mount("overlay", ROOT_NEW, "overlay", 0,
		       "lowerdir=" ROOT_DISK ",upperdir=" ROOT_OVER "/upper,workdir=" ROOT_OVER
		       "/work") < 0)
		step = "overlay";
	else if ((mkdir(ROOT_NEW "/dev", 0755) < 0 && errno != EEXIST) ||
		 mount("/dev", ROOT_NEW "/dev", NULL, MS_BIND, NULL) < 0)
		step = "/dev";
	if (!step) {
		if (upper)
			keep_upper(upper);
		allow_huge_pages(ROOT_OVER, 0);
		if (chdir(ROOT_NEW) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 ||
		    chroot(".") < 0)
			step = "switch";
	}
	if (step)
		boot_failed("root disk %s: %s", disk ? disk : upper, step);
	root_in_memory = !step && !upper;
}

/* The signature of QEMU's emulation, where a hypervisor has its own (QEMU, target/i386/cpu.c; Linux, asm/hypervisor.h). */
static bool is_emulated(void)
{
	unsigned a, b, c, d;

	__cpuid(1, a, b, c, d);
	if (!(c & 1u << 31))
		return false;
	__cpuid(0x40000000, a, b, c, d);
	return b == 0x54474354 && c == 0x43544743 && d == 0x47435447; /* TCGTCGTCGTCG */
}

/*
 * A page fault maps its neighbours too, 64 KiB in all, to save faults. Where each page table entry is made by emulated
 * instructions, that costs more than it saves: a sixth of starting a small program. A quarter of it is best.
 * The kernel has no other place for this than debugfs (mm/memory.c); where that is not to be had, all is as it was.
 */
static void tune_faults(void)
{
	int fd;

	if (!is_emulated() || mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL) < 0)
		return;
	fd = open("/sys/kernel/debug/fault_around_bytes", O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "16384", 5) < 0)
			log_info("boot: fault_around_bytes: %m");
		close(fd);
	}
	umount("/sys/kernel/debug");
}

static void make_node(const char *path, mode_t mode, unsigned major, unsigned minor)
{
	if (mknod(path, S_IFCHR | mode, makedev(major, minor)) == 0)
		chmod(path, mode); /* whatever the umask */
	else if (errno != EEXIST)
		boot_failed("mknod %s", path);
}

/* Nodes that load their module when they are opened: "fuse fuse c10:229", as depmod(8) writes it. */
static void make_module_node(char *line)
{
	char path[64], *name, *type, *slash;
	uint64_t major, minor;
	const char *p;

	if (!(name = strchr(line, ' ')) || !(type = strchr(++name, ' ')))
		return;
	*type++ = '\0';
	p = type;
	if (*type != 'c' || !next_number(&p, &major) || !next_number(&p, &minor))
		return;
	snprintf(path, sizeof(path), "/dev/%s", name);
	slash = strrchr(path, '/');
	*slash = '\0';
	mkdir(path, 0755); /* net, mapper */
	*slash = '/';
	make_node(path, strcmp(name, "fuse") && strcmp(name, "net/tun") ? 0600 : 0666,
		  (unsigned)major, (unsigned)minor);
}

static void make_module_nodes(void)
{
	struct utsname kernel;
	struct lines l;
	char path[128];

	uname(&kernel);
	snprintf(path, sizeof(path), MODULES_DIR "/%s/modules.devname", kernel.release);
	if (!lines_open(&l, AT_FDCWD, path))
		return;
	while (lines_next(&l))
		make_module_node(l.line);
	lines_close(&l);
}

static void make_links(void)
{
	static const char *const links[][2] = {
		{"/proc/self/fd", "/dev/fd"},
		{"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"},
		{"/proc/self/fd/2", "/dev/stderr"},
	};

	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
		if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
			boot_failed("symlink %s", links[i][1]);
}

/* Linux gives lo its addresses when it is brought up. */
static void loopback_up(void)
{
	struct ifreq ifr = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &ifr) < 0) {
		boot_failed("network interface lo");
	} else {
		ifr.ifr_flags |= IFF_UP;
		if (ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
			boot_failed("network interface lo cannot be brought up");
	}
	if (fd >= 0)
		close(fd);
}

/* A device for 0, 1 and 2, and the console for log lines. Before this, no descriptor may be open at all. */
static void open_stdio(void)
{
	int fd, console;

	do { /* hold 0 to 2, so that nothing else lands there */
		fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	} while (fd >= 0 && fd < 3);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
	console = open("/dev/console", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	log_setup(console >= 0 ? console : 2, false);
}

void boot_early(void)
{
	int no_dev;

	if (mkdir("/dev", 0755) < 0 && errno != EEXIST)
		errno = 0; /* the mount tells */
	no_dev = mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755") < 0 &&
		 errno != EBUSY;
	if (no_dev)
		mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=0755");
	mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3));
	mknod("/dev/console", S_IFCHR | 0600, makedev(5, 1));
	open_stdio();
	if (!no_dev)
		return;
	errno = 0;
	boot_failed("no devtmpfs, /dev holds the least only");
	make_node("/dev/zero", 0666, 1, 5);
	make_node("/dev/full", 0666, 1, 7);
	make_node("/dev/random", 0666, 1, 8);
	make_node("/dev/urandom", 0666, 1, 9);
	make_node("/dev/tty", 0666, 5, 0);
	make_node("/dev/ptmx", 0666, 5, 2);
}

void boot(void)
{
	/* The kernel hands its unknown parameters on. */
	const char *disk = getenv("hutch_root"), *upper = getenv("hutch_disk");

	if (disk || upper) {
		boot_modules(true);
		switch_root(disk, upper);
	}
	for (size_t i = 0; i < sizeof(mounts) / sizeof(*mounts); i++)
		mount_one(&mounts[i]);
	mount_tmp();
	tune_memory_file_systems();
	tune_faults();
	make_links();
	make_module_nodes();
	loopback_up();
	if (sethostname("hutch", 5) < 0)
		boot_failed("sethostname");
	boot_modules(false);
}
