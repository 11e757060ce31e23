/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-vmm.so: environment, start, and the device's thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_fork.h"

#define STACK_BYTES (128 * 1024)
#define FDS_FOR_OTHERS \
	128 /* QEMU's own descriptors and the control socket's, kept free of connections */

void vmm_log(const char *fmt, ...)
{
	static const char name[] = "hutch-vmm: ";
	char line[320];
	size_t at = sizeof(name) - 1;
	ssize_t done;
	va_list ap;
	int n;

	memcpy(line, name, at);
	va_start(ap, fmt);
	n = vsnprintf(line + at, sizeof(line) - at - 1, fmt, ap);
	va_end(ap);
	if (n > 0)
		at += (size_t)n < sizeof(line) - at - 1 ? (size_t)n : sizeof(line) - at - 2;
	line[at++] = '\n';
	done = write(STDERR_FILENO, line, at);
	(void)done; /* there is nowhere else to say it */
}

static void device_log(void *arg, const char *line)
{
	(void)arg;
	vmm_log("vsock: %s", line);
}

/* A whole decimal number up to max. Absent: *out stays. */
static bool env_number(const char *name, uint64_t max, uint64_t *out)
{
	const char *s = getenv(name);
	char *end;

	if (!s)
		return true;
	errno = 0;
	*out = strtoull(s, &end, 10);
	if (*s >= '0' && *s <= '9' && !*end && !errno && *out <= max)
		return true;
	vmm_log("%s is not a number up to %llu: %s", name, (unsigned long long)max, s);
	return false;
}

/* An open descriptor, made close-on-exec, or -1 when the variable is absent. */
static bool env_fd(const char *name, int *fd)
{
	uint64_t value = UINT64_MAX;

	*fd = -1;
	if (!env_number(name, INT_MAX, &value))
		return false;
	if (value == UINT64_MAX)
		return true;
	*fd = (int)value;
	if (fcntl(*fd, F_SETFD, FD_CLOEXEC) == 0)
		return true;
	vmm_log("%s names descriptor %d: %s", name, *fd, strerrordesc_np(errno));
	return false;
}

/*
 * Our own copy of a descriptor that the VMM has too: it stays as inherited, since QEMU's -add-fd
 * takes only what is not close-on-exec.
 */
static bool env_fd_shared(const char *name, int *fd)
{
	uint64_t value = UINT64_MAX;

	*fd = -1;
	if (!env_number(name, INT_MAX, &value))
		return false;
	if (value == UINT64_MAX)
		return true;
	*fd = fcntl((int)value, F_DUPFD_CLOEXEC, 0);
	if (*fd >= 0)
		return true;
	vmm_log("%s names descriptor %d: %s", name, (int)value, strerrordesc_np(errno));
	return false;
}

int vmm_config_from_env(struct vmm_config *cfg)
{
	const char *debug = getenv("HUTCH_VSOCK_DEBUG");
	uint64_t layers = 0;

	*cfg = (struct vmm_config){
		.dial = getenv("HUTCH_VSOCK_DIAL"),
		.debug = debug && strcmp(debug, "1") == 0,
	};
	if (!getenv("HUTCH_VHOST_FD"))
		return 0;
	if (!env_fd("HUTCH_VHOST_FD", &cfg->vhost_fd) ||
	    !env_fd("HUTCH_VSOCK_FD", &cfg->vsock_fd) || !env_fd("HUTCH_CTL_FD", &cfg->ctl_fd) ||
	    !env_fd_shared("HUTCH_CONSOLE_FD", &cfg->console_fd) ||
	    !env_number("HUTCH_DEADLINE_MS", VMM_DEADLINE_MAX_MS, &cfg->deadline_ms) ||
	    !env_number("HUTCH_MEM_BYTES", INT64_MAX, &cfg->mem_bytes) ||
	    !env_fd("HUTCH_MEM_FD", &cfg->mem_fd) || !env_fd("HUTCH_LAYER_FD", &cfg->layer_fd) ||
	    !env_number("HUTCH_LAYERS", VMM_RAM_MAX_LAYERS, &layers))
		return -1;
	cfg->layers = (unsigned)layers;
	return 1;
}

void vmm_lock(struct vmm *vmm)
{
	pthread_mutex_lock(&vmm->gate);
	pthread_mutex_lock(&vmm->lock);
	pthread_mutex_unlock(&vmm->gate);
}

void vmm_unlock(struct vmm *vmm)
{
	pthread_mutex_unlock(&vmm->lock);
}

void vmm_wake(struct vmm *vmm)
{
	uint64_t one = 1;
	ssize_t n = write(vmm->wake.fd, &one, sizeof(one));

	(void)n; /* fails only when the counter is full, and then the loop was woken */
}

static void wake_fire(struct loop_source *src, uint32_t events)
{
	(void)src; /* edge-triggered and never read, as the kicks */
	(void)events;
}

static void *serve(void *arg)
{
	struct epoll_event ev[LOOP_BATCH];
	struct vmm *vmm = arg;
	int timeout = 0;
	bool quit;

	do {
		int n = loop_wait(&vmm->loop, ev, timeout);

		if (n < 0) {
			vmm_log("epoll_wait: %s", strerrordesc_np(errno));
			abort();
		}
		vmm_lock(vmm);
		loop_dispatch(ev, n);
		timeout = vmm_ctl_tick(&vmm->ctl, vsock_dev_service(vmm->dev));
		quit = vmm->quit;
		vmm_unlock(vmm);
	} while (!quit);
	return NULL;
}

/* It takes no signal: QEMU's handlers belong to QEMU's threads. */
int vmm_thread(pthread_t *thread, size_t stack, const char *name, void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(thread, &attr, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r == 0)
		pthread_setname_np(*thread, name);
	return r;
}

/*
 * As many connections as descriptors allow, so that neither the guest nor the host's peers can use
 * them up.
 */
static unsigned max_conns(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0 || rl.rlim_cur >= VSOCK_MAX_CONNS + FDS_FOR_OTHERS)
		return VSOCK_MAX_CONNS;
	return rl.rlim_cur > 2 * FDS_FOR_OTHERS ? (unsigned)rl.rlim_cur - FDS_FOR_OTHERS
						: FDS_FOR_OTHERS;
}

bool vmm_open_endpoints(struct vmm *vmm)
{
	const int logs[VMM_LOGS] = {vmm->cfg.console_fd, STDERR_FILENO};

	return vmm_deadline_open(&vmm->deadline, &vmm->loop) == 0 &&
	       vmm_deadline_set(&vmm->deadline, vmm->cfg.deadline_ms) == 0 &&
	       vmm_logs_open(&vmm->logs, &vmm->loop, logs) == 0 &&
	       vmm_ctl_open(&vmm->ctl, vmm, vmm->cfg.ctl_fd) == 0;
}

static bool open_parts(struct vmm *vmm)
{
	const struct vsock_config dev = {
		.loop = &vmm->loop,
		.listen_fd = vmm->cfg.vsock_fd,
		.dial_prefix = vmm->cfg.dial,
		.max_conns = max_conns(),
		.log = device_log,
		.debug = vmm->cfg.debug,
	};

	if (loop_init(&vmm->loop) < 0)
		return false;
	vmm->wake = (struct loop_source){.fire = wake_fire,
					 .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	if (vmm->wake.fd < 0 || loop_add(&vmm->loop, &vmm->wake, EPOLLIN | EPOLLET) < 0)
		return false;
	vmm->dev = vsock_dev_create(&dev);
	if (vmm_ram_init(&vmm->ram, vmm->cfg.mem_bytes, vmm->cfg.mem_fd, vmm->cfg.layer_fd,
			 vmm->cfg.layers) < 0)
		return false;
	return vmm->dev && vmm_open_endpoints(vmm);
}

static void close_parts(struct vmm *vmm)
{
	vmm_capture_end(&vmm->capture);
	vmm_ram_close(&vmm->ram);
	vmm_ctl_close(&vmm->ctl);
	vmm_logs_close(&vmm->logs);
	vmm_deadline_close(&vmm->deadline);
	vsock_dev_destroy(vmm->dev);
	if (vmm->wake.fd >= 0)
		close(vmm->wake.fd);
	loop_close(&vmm->loop);
	pthread_mutex_destroy(&vmm->gate);
	pthread_mutex_destroy(&vmm->lock);
	free(vmm);
}

struct vmm *vmm_start(const struct vmm_config *cfg)
{
	struct vmm *vmm = calloc(1, sizeof(*vmm));
	int r;

	if (!vmm) {
		vmm_log("out of memory");
		return NULL;
	}
	vmm->cfg = *cfg;
	vmm->ram.base_fd = vmm->capture.track_fd = -1;
	vmm->loop.epfd = vmm->wake.fd = vmm->deadline.timer.fd = vmm->logs.timer.fd = -1;
	pthread_mutex_init(&vmm->gate, NULL);
	pthread_mutex_init(&vmm->lock, NULL);
	if (!open_parts(vmm)) {
		vmm_log("cannot set up the device: %s", strerrordesc_np(errno));
		close_parts(vmm);
		return NULL;
	}
	r = vmm_thread(&vmm->thread, STACK_BYTES, "hutch-vsock", serve, vmm);
	if (r != 0) {
		vmm_log("cannot start the thread: %s", strerrordesc_np(r));
		close_parts(vmm);
		return NULL;
	}
	return vmm;
}

void vmm_stop(struct vmm *vmm)
{
	vmm_lock(vmm);
	vmm->quit = true;
	vmm_unlock(vmm);
	vmm_wake(vmm);
	pthread_join(vmm->thread, NULL);
	close_parts(vmm);
}

/*
 * Runs before QEMU's main(). A VM that was meant to have a device and a deadline does not start
 * without them.
 */
__attribute__((constructor)) static void load(int argc, char **argv, char **envp)
{
	struct vmm_config cfg;
	struct vmm *vmm;
	int r = vmm_config_from_env(&cfg);

	(void)argc;
	if (r == 0)
		return;
	if (getenv("HUTCH_ZYGOTE") && vmm_fork_prepare(argv, envp) < 0)
		_exit(EXIT_FAILURE);
	unsetenv("LD_PRELOAD"); /* QEMU's children are not VMMs */
	vmm = r > 0 ? vmm_start(&cfg) : NULL;
	if (!vmm)
		_exit(EXIT_FAILURE);
	vmm_ram_attach(&vmm->ram);
	vmm_vhost_attach(vmm);
}
