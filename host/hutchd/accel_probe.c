/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boot one VM under KVM and see whether its agent says hello.
 *
 * The VM is tied to the launcher and has a short dead-man's timer, so that a broker that dies
 * meanwhile leaves nothing alive. A verdict is held back until the VM is gone.
 */
#include "host/hutchd/accel_probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/hutchd/dial_socket.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vmm.h"
#include "protocol/frame.h"
#include "protocol/msg.h"

#define PROBE_DIR      "probe"
#define PROBE_MS       8000
#define PROBE_END_MS   3000 /* for a killed VMM to be gone */
#define PROBE_LEASE_MS 15000u

struct accel_probe {
	struct event_base *base;
	int state_dir_fd, rundir_fd, listen_fd, conn_fd;
	struct event *accept, *readable, *timer;
	struct vmm *vmm;
	char object[48];
	bool decided;
	enum accel_probed result;
	char reason[512];
	unsigned char in[HUTCH_FRAME_HEADER + HUTCH_MAX_HELLO];
	size_t len;
	accel_probe_fn *done;
	void *arg;
};

static void set_timer(struct accel_probe *p, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};

	event_add(p->timer, &tv);
}

static void drop_event(struct event **e)
{
	if (*e)
		event_free(*e);
	*e = NULL;
}

/* The first verdict counts; then the VM has to go. */
static void decide(struct accel_probe *p, enum accel_probed result, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void decide(struct accel_probe *p, enum accel_probed result, const char *fmt, ...)
{
	va_list ap;

	if (p->decided)
		return;
	p->decided = true;
	p->result = result;
	va_start(ap, fmt);
	vsnprintf(p->reason, sizeof(p->reason), fmt, ap);
	va_end(ap);
	drop_event(&p->accept);
	drop_event(&p->readable);
	set_timer(p, PROBE_END_MS);
}

static void conclude(struct accel_probe *p)
{
	accel_probe_fn *done = p->done;
	enum accel_probed result = p->result;
	char reason[sizeof(p->reason)];
	void *arg = p->arg;

	memcpy(reason, p->reason, sizeof(reason));
	accel_probe_free(p);
	done(arg, result, reason);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct accel_probe *p = arg;

	(void)fd;
	(void)what;
	if (p->decided) {
		log_warn(p->object, "its VMM cannot be killed, and is left alone");
		conclude(p);
		return;
	}
	decide(p, PROBE_GUEST_FAILS, "a guest under KVM did not say hello within %d s",
	       PROBE_MS / 1000);
	vmm_kill(p->vmm);
}

static void drop_connection(struct accel_probe *p)
{
	drop_event(&p->readable);
	fd_close(&p->conn_fd);
	p->len = 0;
}

/* 1: a hello of an agent; 0: more bytes are needed; -1: something else. */
static int check_hello(const struct accel_probe *p)
{
	struct hutch_error err;
	struct msg_hello hello;
	struct frame f;

	if (p->len < HUTCH_FRAME_HEADER)
		return 0;
	if (frame_decode(p->in, &f, &err) < 0 || f.type != FRAME_HELLO)
		return -1;
	if (p->len < HUTCH_FRAME_HEADER + f.length)
		return 0;
	if (msg_hello_decode(&hello, p->in + HUTCH_FRAME_HEADER, f.length, &err) < 0 ||
	    hello.role != ROLE_AGENT)
		return -1;
	return 1;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct accel_probe *p = arg;
	ssize_t n = read((int)fd, p->in + p->len, sizeof(p->in) - p->len);
	int r;

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop_connection(p);
		return;
	}
	p->len += (size_t)n;
	r = check_hello(p);
	if (r < 0)
		drop_connection(p);
	if (r > 0) {
		decide(p, PROBE_WORKS, "a guest booted under KVM");
		vmm_kill(p->vmm);
	}
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
	struct accel_probe *p = arg;
	int conn = accept4((int)fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)what;
	if (conn < 0)
		return;
	drop_connection(p); /* the guest dials one at a time: the last one counts */
	p->conn_fd = conn;
	p->readable = event_new(p->base, conn, EV_READ | EV_PERSIST, on_readable, p);
	if (!p->readable || event_add(p->readable, NULL) < 0)
		drop_connection(p);
}

/* What QEMU says when an ioctl(2) of KVM's fails (accel/kvm/kvm-all.c, target/i386/kvm/kvm.c), at the end of its log. */
static bool blames_kvm(const char *text)
{
	static const char *const words[] = {
		"ioctl(KVM_",	      "KVM kernel module", "failed to initialize kvm",
		"failed to set MSR",  "failed to get MSR", "kvm run failed",
		"KVM internal error", "KVM: entry failed", "kvm_",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(text, words[i]))
			return true;
	return false;
}

static void on_spawned(void *arg, const struct vmm_process *process)
{
	struct accel_probe *p = arg;

	log_debug(p->object, "its VMM is %ld", (long)process->pid);
}

static void on_up(void *arg, const char *version, uint64_t spawn_us, uint64_t qmp_us)
{
	(void)arg;
	(void)version;
	(void)spawn_us;
	(void)qmp_us;
}

static void on_failed(void *arg, const struct hutch_error *err)
{
	struct accel_probe *p = arg;

	enum accel_probed result = PROBE_GUEST_FAILS;

	/* Without a process of QEMU's there was no KVM in it. */
	if (strcmp(err->stage, "qmp") != 0)
		result = PROBE_NOT_TRIED;
	else if (blames_kvm(err->message))
		result = PROBE_KVM_FAILS;
	decide(p, result, "no guest starts under KVM: %.400s", err->message);
	conclude(p);
}

static void on_exited(void *arg, const char *reason)
{
	struct accel_probe *p = arg;

	decide(p, blames_kvm(reason) ? PROBE_KVM_FAILS : PROBE_GUEST_FAILS,
	       "a guest under KVM ended before it said hello: %.400s", reason);
	conclude(p);
}

static const struct vmm_callbacks vmm_callbacks = {
	.spawned = on_spawned,
	.up = on_up,
	.failed = on_failed,
	.exited = on_exited,
};

static int open_parts(struct accel_probe *p, struct hutch_error *err)
{
	if (tree_remove(p->state_dir_fd, PROBE_DIR) < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, PROBE_DIR ": %s", strerror(errno));
	p->rundir_fd = dir_make(p->state_dir_fd, PROBE_DIR);
	if (p->rundir_fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, PROBE_DIR ": %s", strerror(errno));
	p->listen_fd = dial_listen(p->rundir_fd);
	if (p->listen_fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, PROBE_DIR "/" DIAL_SOCKET ": %s",
				       strerror(errno));
	p->accept = event_new(p->base, p->listen_fd, EV_READ | EV_PERSIST, on_accept, p);
	p->timer = event_new(p->base, -1, 0, on_timer, p);
	if (!p->accept || !p->timer || event_add(p->accept, NULL) < 0)
		return hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

struct accel_probe *accel_probe_start(struct event_base *base, struct launcher *launcher,
				      int state_dir_fd, const struct template *tpl,
				      accel_probe_fn *done, void *arg, struct hutch_error *err)
{
	struct accel_probe *p = calloc(1, sizeof(*p));
	struct vmm_config config = {.tpl = tpl,
				    .accel = ACCEL_KVM,
				    .memory_mib = tpl->memory_mib,
				    .vcpus = tpl->vcpus,
				    .cid = 3,
				    .deadline_ms = PROBE_LEASE_MS,
				    .qmp_timeout_ms = PROBE_MS,
				    .tied = true};

	if (!p) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory");
		return NULL;
	}
	p->base = base;
	p->state_dir_fd = state_dir_fd;
	p->rundir_fd = p->listen_fd = p->conn_fd = -1;
	p->done = done;
	p->arg = arg;
	snprintf(config.id, sizeof(config.id), "probe-%ld", (long)getpid());
	snprintf(p->object, sizeof(p->object), "%s", config.id);
	if (open_parts(p, err) < 0) {
		accel_probe_free(p);
		return NULL;
	}
	config.rundir_fd = p->rundir_fd;
	p->vmm = vmm_start(base, launcher, &config, &vmm_callbacks, p, err);
	if (!p->vmm) {
		accel_probe_free(p);
		return NULL;
	}
	set_timer(p, PROBE_MS);
	return p;
}

void accel_probe_free(struct accel_probe *p)
{
	if (!p)
		return;
	if (p->vmm) {
		if (!p->decided)
			vmm_kill(p->vmm);
		vmm_free(p->vmm);
	}
	drop_connection(p);
	drop_event(&p->accept);
	drop_event(&p->timer);
	fd_close(&p->listen_fd);
	fd_close(&p->rundir_fd);
	if (tree_remove(p->state_dir_fd, PROBE_DIR) < 0)
		log_errno(LOG_LEVEL_WARN, p->object, "its directory cannot be removed");
	free(p);
}
