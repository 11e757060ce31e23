/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-vmm.so: the vsock device inside a stock QEMU.
 *
 * QEMU is started with `-device vhost-vsock-device,vhostfd=N` where N is a dummy descriptor, and
 * with this library preloaded. The library answers the vhost ioctls on N as /dev/vhost-vsock would
 * (vmm_vhost.c), serves the rings and the sockets in a thread of its own (vmm_main.c), answers the
 * broker on a control socket (vmm_ctl.c), ends the process when its time is up (vmm_deadline.c),
 * saves and restores the memory (vmm_capture.c, vmm_ram.c) and keeps the logs small (vmm_logs.c). Without
 * HUTCH_VHOST_FD in the environment it does nothing.
 */
#ifndef HUTCH_VSOCK_VMM_H
#define HUTCH_VSOCK_VMM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/vsock/device.h"
#include "host/vsock/loop.h"
#include "host/vsock/vmm_capture.h"
#include "host/vsock/vmm_ctl.h"
#include "host/vsock/vmm_deadline.h"
#include "host/vsock/vmm_logs.h"
#include "host/vsock/vmm_ram.h"

struct vmm_config {
	int vhost_fd; /* HUTCH_VHOST_FD; the vhost ioctls on it are ours */
	int vsock_fd; /* HUTCH_VSOCK_FD: hybrid-vsock listening socket; -1: none */
	int ctl_fd;   /* HUTCH_CTL_FD: control listening socket; -1: none */
	int console_fd; /* HUTCH_CONSOLE_FD: the guest's console, a file that is kept small; -1: none */
	const char *dial;   /* HUTCH_VSOCK_DIAL: prefix for the guest's dials; NULL: refused */
	uint64_t mem_bytes; /* HUTCH_MEM_BYTES: size of RAM; 0: not told, no capture then */
	int mem_fd;	    /* HUTCH_MEM_FD: restored: the base, read-only; -1: none */
	int layer_fd;	    /* HUTCH_LAYER_FD: the first of 2 * layers: data, extents, data, ... */
	unsigned layers;    /* HUTCH_LAYERS */
	uint64_t deadline_ms; /* HUTCH_DEADLINE_MS; 0: none */
	bool debug;	      /* HUTCH_VSOCK_DEBUG=1: log connection states */
};

struct vmm {
	struct vmm_config cfg;
	struct loop loop;
	struct loop_source wake; /* eventfd: something changed behind the loop's back */
	struct vsock_dev *dev;
	struct vmm_ctl ctl;
	struct vmm_deadline deadline;
	struct vmm_logs logs;
	struct vmm_ram ram;
	struct vmm_capture capture;
	bool owned; /* VHOST_SET_OWNER was called */
	bool quit;
	pthread_t thread;
	/*
	 * lock guards everything above. It is taken by way of gate, which makes it fair: the
	 * thread, which lets go of it only for an instant when it is busy, can't keep an ioctl out.
	 */
	pthread_mutex_t gate;
	pthread_mutex_t lock;
};

/*
 * Reads the environment. 1: *cfg is set; 0: not meant for this process; -1: a value is wrong, and
 * was logged.
 */
int vmm_config_from_env(struct vmm_config *cfg);

/* Makes the device and its thread. NULL with the reason logged. */
struct vmm *vmm_start(const struct vmm_config *cfg);

/* Ends the thread and frees all; the process goes on without the device. For tests. */
void vmm_stop(struct vmm *vmm);

/* The timers and the control socket, on a loop that has none of them. */
bool vmm_open_endpoints(struct vmm *vmm);

void vmm_lock(struct vmm *vmm);
void vmm_unlock(struct vmm *vmm);

/* Makes the loop run once; the lock may be held. */
void vmm_wake(struct vmm *vmm);

/* A thread of the library: all signals blocked. 0 or an errno. */
int vmm_thread(pthread_t *thread, size_t stack, const char *name, void *(*run)(void *), void *arg);

/* One line to stderr, with the library's name. */
__attribute__((format(printf, 1, 2))) void vmm_log(const char *fmt, ...);

/* Answers a vhost request (lock not held): 0 or -errno, -ENOTTY for one that is not known. */
int vmm_vhost(struct vmm *vmm, unsigned long request, void *arg);

/* The process's one device, whose descriptor ioctl() looks for; NULL: none. */
void vmm_vhost_attach(struct vmm *vmm);

#endif
