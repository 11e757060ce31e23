/* SPDX-License-Identifier: Apache-2.0 */
/* What a VMM may not ask of the kernel. */
#include "host/hutchd/seccomp.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/vsock/vmm_fork.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* EPERM */
static const int refused[] = {
	/* other namespaces and roots */
	SCMP_SYS(unshare),
	SCMP_SYS(setns),
	SCMP_SYS(chroot),
	SCMP_SYS(pivot_root),
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(move_mount),
	SCMP_SYS(open_tree),
	SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig),
	SCMP_SYS(fsmount),
	SCMP_SYS(fspick),
	SCMP_SYS(mount_setattr),
	SCMP_SYS(open_by_handle_at),
	SCMP_SYS(name_to_handle_at),
	SCMP_SYS(fanotify_init),
	/* other processes */
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(kcmp),
	SCMP_SYS(pidfd_getfd),
	/* parts of the kernel that a VMM has no use for, and that had holes */
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	SCMP_SYS(keyctl),
	SCMP_SYS(msgget),
	SCMP_SYS(semget),
	SCMP_SYS(shmget),
	SCMP_SYS(mq_open),
	SCMP_SYS(lookup_dcookie),
	SCMP_SYS(modify_ldt),
	/* the machine */
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(reboot),
	SCMP_SYS(swapon),
	SCMP_SYS(swapoff),
	SCMP_SYS(acct),
	SCMP_SYS(quotactl),
	SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime),
	SCMP_SYS(adjtimex),
	SCMP_SYS(clock_adjtime),
	SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
	SCMP_SYS(syslog),
	SCMP_SYS(vhangup),
	SCMP_SYS(sethostname),
	SCMP_SYS(setdomainname),
};

/* ENOSYS, so that the program takes the older way: threads with clone, events with epoll. */
static const int unknown[] = {SCMP_SYS(clone3), SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter),
			      SCMP_SYS(io_uring_register)};

/* clone(2) may make threads and processes, but no namespaces. The flags are its first argument on all but s390. */
static const unsigned namespaces[] = {CLONE_NEWNS,  CLONE_NEWUSER, CLONE_NEWPID,   CLONE_NEWNET,
				      CLONE_NEWIPC, CLONE_NEWUTS,  CLONE_NEWCGROUP};

/* A zygote makes processes of one kind alone, by all of VMM_FORK_FLAGS and none of these. */
static const unsigned unforked[] = {CLONE_NEWNET, CLONE_NEWCGROUP, CLONE_VM,	   CLONE_FS,
				    CLONE_FILES,  CLONE_SIGHAND,   CLONE_THREAD,   CLONE_VFORK,
				    CLONE_PTRACE, CLONE_SYSVSEM,   CLONE_UNTRACED, CLONE_IO};

/*
 * What QEMU's own filter refuses by spawn=deny and elevateprivileges=deny, and what a zygote has to
 * be able to do itself.
 */
static const int parting[] = {
	SCMP_SYS(execve),    SCMP_SYS(execveat),  SCMP_SYS(fork),     SCMP_SYS(vfork),
	SCMP_SYS(setuid),    SCMP_SYS(setgid),	  SCMP_SYS(setreuid), SCMP_SYS(setregid),
	SCMP_SYS(setresuid), SCMP_SYS(setresgid), SCMP_SYS(setfsuid), SCMP_SYS(setfsgid),
	SCMP_SYS(setgroups), SCMP_SYS(setpgid),	  SCMP_SYS(setsid),   SCMP_SYS(capset),
};

/*
 * As the in-VMM library calls it, to track which pages the guest writes (vmm_scan_track). What
 * makes userfaultfd(2) of use to an attack, faults of the kernel that wait for an answer, it refuses.
 */
#define TRACKING (O_CLOEXEC | O_NONBLOCK | 1u /* UFFD_USER_MODE_ONLY */)

/* clone(2) with all of these flags, and without a further one (0: whatever the others are), is refused. */
static int refuse_clone(scmp_filter_ctx ctx, unsigned with, unsigned without)
{
	return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
				SCMP_A0(SCMP_CMP_MASKED_EQ, with | without, with));
}

static int add_namespaces(scmp_filter_ctx ctx)
{
	int rc = 0;

	for (size_t i = 0; i < COUNT(namespaces); i++)
		rc |= refuse_clone(ctx, namespaces[i], 0);
	return rc;
}

/* All of its flags or none of them, and with all of them no other. */
static int add_forks(scmp_filter_ctx ctx)
{
	int rc = 0;

	for (unsigned i = 1u << 31; i; i >>= 1)
		for (unsigned k = 1u << 31; k; k >>= 1)
			if (i != k && VMM_FORK_FLAGS & i && VMM_FORK_FLAGS & k)
				rc |= refuse_clone(ctx, i, k);
	for (size_t i = 0; i < COUNT(unforked); i++)
		rc |= refuse_clone(ctx, VMM_FORK_FLAGS | unforked[i], 0);
	return rc | refuse_clone(ctx, CLONE_NEWNET, 0) | refuse_clone(ctx, CLONE_NEWCGROUP, 0);
}

/* No process, and no other credentials; a thread is let through. */
static int add_parting(scmp_filter_ctx ctx)
{
	int rc = refuse_clone(ctx, 0, CLONE_THREAD);

	for (size_t i = 0; i < COUNT(parting); i++)
		rc |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), parting[i], 0);
	return rc;
}

static int add_refusals(scmp_filter_ctx ctx, enum seccomp_kind kind)
{
	int rc = kind == SECCOMP_ZYGOTE ? add_forks(ctx) : add_namespaces(ctx);

	if (kind == SECCOMP_FORKED)
		rc |= add_parting(ctx);

	for (size_t i = 0; i < COUNT(refused); i++)
		rc |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
	for (size_t i = 0; i < COUNT(unknown); i++)
		rc |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), unknown[i], 0);
	rc |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(userfaultfd), 1,
			       SCMP_A0(SCMP_CMP_NE, TRACKING, 0));
	rc |= seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
			       SCMP_A0(SCMP_CMP_NE, AF_UNIX, 0));
	return rc;
}

/* libseccomp writes a program to a descriptor only. */
static struct sock_fprog export_program(scmp_filter_ctx ctx)
{
	struct sock_fprog p = {.filter = NULL};
	int fd = memfd_create("filter", MFD_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return p;
	if (seccomp_export_bpf(ctx, fd) == 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
		p.filter = malloc((size_t)st.st_size);
		n = p.filter ? pread(fd, p.filter, (size_t)st.st_size, 0) : -1;
		if (n != st.st_size) {
			free(p.filter);
			p.filter = NULL;
		}
		p.len = (unsigned short)((size_t)st.st_size / sizeof(*p.filter));
	}
	fd_close(&fd);
	return p;
}

struct sock_fprog seccomp_vmm_filter(enum seccomp_kind kind)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	struct sock_fprog p = {.filter = NULL};

	if (!ctx)
		return p;
	if (seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2) == 0 && add_refusals(ctx, kind) == 0)
		p = export_program(ctx);
	else
		errno = EINVAL;
	seccomp_release(ctx);
	return p;
}

int seccomp_install(const struct sock_fprog *program)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0);
}
