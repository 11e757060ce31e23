/* SPDX-License-Identifier: Apache-2.0 */
/* System call filters (seccomp(2)), made by libseccomp. */
#ifndef HUTCH_HOST_SECCOMP_H
#define HUTCH_HOST_SECCOMP_H

#include <linux/filter.h>

/* Which VMM: one of its own, a zygote (host/vsock/vmm_fork.h), or what that was forked into. */
enum seccomp_kind { SECCOMP_VMM, SECCOMP_ZYGOTE, SECCOMP_FORKED, SECCOMP_KINDS };

/*
 * What no VMM ever needs is refused, on top of QEMU's own -sandbox: other namespaces, mounts, other processes, io_uring, bpf,
 * keys, modules, the clock, sockets that are not Unix ones. Compiled once, to be installed in each child. filter is NULL
 * on failure, with errno.
 */
struct sock_fprog seccomp_vmm_filter(enum seccomp_kind kind);
/* For this thread and what it starts; needs no_new_privs. -1 with errno. */
int seccomp_install(const struct sock_fprog *program);

#endif
