/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving a stopped VM.
 *
 * Two things run at once. The in-VMM library writes the memory, into files whose descriptors it is
 * sent with the request, and answers when it is done. QEMU writes the state of its devices
 * into a memfd that is handed to it over QMP (add-fd, xen-save-devices-state); at most
 * VMM_MAX_DEVICE_STATE bytes of it are copied to the file here, so that no VMM ever holds that.
 */
#include "host/hutchd/vmm_saving.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/linebuf.h"

/* Sets of descriptors in QEMU, one after the other; 1 and 2 are on its command line. */
#define FIRST_FDSET  100
#define LAST_FDSET   1000000
#define QMP_MS	     10000u
#define MEMORY_S     600 /* for the library; a large memory on a slow disk */
#define CTL_MAX_LINE 512u
#define DEVICE_CHUNK 16384u

struct vmm_saving {
	struct event_base *base;
	struct qmp *qmp; /* NULL: freed */
	bool memory_busy, device_busy;
	bool ahead;
	int ctl; /* -1: not connected */
	struct vmm_state_file *file;
	int device_fd;
	struct event *ctl_event, *limit, *soon;
	struct linebuf in;
	uint64_t start_us;
	struct vmm_captured result;
	struct hutch_error err; /* the first one */
	vmm_captured_fn *done;
	void *arg;
};

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void check_done(struct vmm_saving *s)
{
	if (!s->memory_busy && !s->device_busy)
		event_active(s->soon, EV_TIMEOUT, 1);
}

static void tell(evutil_socket_t fd, short what, void *arg)
{
	struct vmm_saving *s = arg;
	vmm_captured_fn *done = s->done;
	void *done_arg = s->arg;
	struct vmm_captured result = s->result;
	struct hutch_error err = s->err;

	(void)fd;
	(void)what;
	vmm_saving_free(s);
	if (err.kind == HUTCH_OK)
		done(done_arg, NULL, &result);
	else
		done(done_arg, &err, NULL);
}

#define SAVING_FAILED(s, ...)                                    \
	do {                                                     \
		if ((s)->err.kind == HUTCH_OK)                   \
			hutch_error_set(&(s)->err, __VA_ARGS__); \
	} while (0)

/* ---- memory ---- */

static void end_memory(struct vmm_saving *s)
{
	if (s->ctl_event)
		event_free(s->ctl_event);
	s->ctl_event = NULL;
	fd_close(&s->ctl);
	event_del(s->limit);
	s->memory_busy = false;
	s->result.memory_us = now_us() - s->start_us;
	check_done(s);
}

/* "ok bytes=1 extents=2 us=3", or "err ..." with perhaps an errno=N in it. */
static void take_answer(struct vmm_saving *s, const char *line)
{
	uint64_t us;
	const char *number = strstr(line, "errno=");
	int errnum = number ? atoi(number + strlen("errno=")) : 0;

	if (sscanf(line, "ok bytes=%" SCNu64 " extents=%" SCNu64 " us=%" SCNu64, &s->result.bytes,
		   &s->result.extents, &us) == 3)
		return;
	if (errnum > 0 && errnum < 4096)
		SAVING_FAILED(s, HUTCH_E_IO, errnum, "the memory could not be saved: %s",
			      strerror(errnum));
	else
		SAVING_FAILED(s, HUTCH_E_STATE, 0, "the memory could not be saved: %.200s",
			      strncmp(line, "err ", 4) == 0 ? line + 4 : line);
}

static void on_ctl(evutil_socket_t fd, short what, void *arg)
{
	struct vmm_saving *s = arg;
	ssize_t n = linebuf_fill(&s->in, (int)fd);
	char *line;
	size_t len;

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && !linebuf_next(&s->in, &line, &len))
		return;
	if (n > 0)
		take_answer(s, line);
	else
		SAVING_FAILED(s, HUTCH_E_IO, n < 0 ? errno : 0,
			      "the memory could not be saved: the control socket was closed");
	end_memory(s);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct vmm_saving *s = arg;

	(void)fd;
	(void)what;
	SAVING_FAILED(s, HUTCH_E_TIMEOUT, 0, "the memory was not saved within %d s", MEMORY_S);
	end_memory(s);
}

static int start_memory(struct vmm_saving *s, int rundir_fd, const char *line, const int *fds,
			size_t nfds)
{
	static const struct timeval limit = {.tv_sec = MEMORY_S};

	s->memory_busy = true;
	s->in.max = CTL_MAX_LINE;
	s->ctl = unix_connect(rundir_fd, "ctl", SOCK_STREAM);
	if (s->ctl < 0 || fd_send(s->ctl, line, strlen(line), fds, nfds) < 0)
		return -1;
	s->ctl_event = event_new(s->base, s->ctl, EV_READ | EV_PERSIST, on_ctl, s);
	if (!s->ctl_event || event_add(s->ctl_event, NULL) < 0) {
		errno = ENOMEM;
		return -1;
	}
	event_add(s->limit, &limit);
	return 0;
}

/* ---- devices ---- */

static void end_device(struct vmm_saving *s)
{
	s->device_busy = false;
	s->result.device_us = now_us() - s->start_us;
	check_done(s);
}

/* From memory into the file. */
static void store_state(struct vmm_saving *s)
{
	struct stat st;
	char *data;

	if (fstat(s->file->fd, &st) < 0 || st.st_size <= 0 ||
	    st.st_size > (off_t)VMM_MAX_DEVICE_STATE) {
		SAVING_FAILED(s, HUTCH_E_TOO_LARGE, 0,
			      "a state of the devices of %lld bytes, where 1 to %u are possible",
			      (long long)st.st_size, VMM_MAX_DEVICE_STATE);
		return;
	}
	data = malloc((size_t)st.st_size);
	/* pread: what it was cut to meanwhile, if it was. */
	if (!data || pread(s->file->fd, data, (size_t)st.st_size, 0) != (ssize_t)st.st_size ||
	    write_all(s->device_fd, data, (size_t)st.st_size) < 0)
		SAVING_FAILED(s, HUTCH_E_IO, errno, "the state of the devices: %s",
			      strerror(errno));
	free(data);
}

static void on_device_saved(void *arg, const json_t *value, const char *error)
{
	struct vmm_saving *s = arg;

	if (value)
		store_state(s);
	else
		SAVING_FAILED(s, HUTCH_E_INTERNAL, 0, "the state of the devices: %s", error);
	fd_close(&s->file->fd);
	end_device(s);
}

static int device_command(struct vmm_saving *s, const char *name, json_t *args, int fd,
			  qmp_done_fn *done)
{
	if (!args) {
		errno = ENOMEM;
		return -1;
	}
	return qmp_command_fd(s->qmp, name, args, fd, QMP_MS, done, s);
}

static void device_failed(struct vmm_saving *s, const char *why)
{
	SAVING_FAILED(s, HUTCH_E_INTERNAL, 0, "the state of the devices: %s", why);
	fd_close(&s->file->fd);
	end_device(s);
}

static void save_state(struct vmm_saving *s)
{
	char path[32];

	s->file->used = s->file->fdset;
	snprintf(path, sizeof(path), "/dev/fdset/%d", s->file->fdset);
	if (device_command(s, "xen-save-devices-state",
			   json_pack("{s:s,s:b}", "filename", path, "live", 0), -1,
			   on_device_saved) < 0)
		device_failed(s, strerror(errno));
}

static void on_fd_added(void *arg, const json_t *value, const char *error)
{
	struct vmm_saving *s = arg;

	if (!value)
		device_failed(s, error);
	else if (s->ahead)
		end_device(s);
	else
		save_state(s);
}

/* QEMU wants it write-only, and a file, since it cuts it to nothing first. */
static int give_file(struct vmm_saving *s)
{
	static int last = FIRST_FDSET;
	char path[40];
	int fd, r;

	last = last == LAST_FDSET ? FIRST_FDSET : last + 1;
	s->file->fdset = last;
	s->file->fd = memfd_create("hutch-device-state", MFD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->file->fd);
	fd = s->file->fd < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = device_command(s, "add-fd", json_pack("{s:i}", "fdset-id", last), fd, on_fd_added);
	fd_close(&fd);
	return r;
}

static void start_device(struct vmm_saving *s)
{
	s->device_busy = true;
	if (s->file->fd < 0) {
		if (give_file(s) < 0)
			device_failed(s, strerror(errno));
	} else if (s->ahead) {
		end_device(s);
	} else {
		save_state(s);
	}
}

/* ---- both ---- */

static void free_event(struct event *e)
{
	if (e)
		event_free(e);
}

void vmm_saving_free(struct vmm_saving *s)
{
	if (!s)
		return;
	free_event(s->ctl_event);
	free_event(s->limit);
	free_event(s->soon);
	fd_close(&s->ctl);
	fd_close(&s->device_fd);
	linebuf_free(&s->in);
	free(s);
}

void vmm_saving_abort(struct vmm_saving *s)
{
	s->qmp = NULL;
	SAVING_FAILED(s, HUTCH_E_VM_DIED, 0, "the VMM ended while it was saved");
	if (s->device_busy)
		end_device(s);
	if (s->memory_busy)
		end_memory(s);
}

void vmm_saving_tidy(struct qmp *q, int fdset)
{
	json_t *args = json_pack("{s:i}", "fdset-id", fdset);

	if (args)
		qmp_command(q, "remove-fd", args, QMP_MS, NULL, NULL);
}

/* Of vmm_ctl.h in host/vsock. */
static void request_line(char *line, size_t size, const struct vmm_capture_to *to)
{
	if (!to)
		snprintf(line, size, "capture ahead\n");
	else if (to->whole)
		snprintf(line, size, "capture whole\n");
	else if (to->flatten)
		snprintf(line, size, "capture delta %u\n", to->below);
	else
		snprintf(line, size, "capture delta\n");
}

/* to NULL: ahead, into data_fd. */
static void start(struct vmm_saving *s, int rundir_fd, const struct vmm_capture_to *to, int data_fd)
{
	char line[32];
	int fds[] = {data_fd, to ? to->extents_fd : -1};

	if (!s->qmp) {
		SAVING_FAILED(s, HUTCH_E_STATE, 0, "the VMM is not up");
		check_done(s);
		return;
	}
	request_line(line, sizeof(line), to);
	if (start_memory(s, rundir_fd, line, fds, to && !to->whole ? 2 : 1) < 0) {
		SAVING_FAILED(s, HUTCH_E_IO, errno, "the VMM's control socket: %s",
			      strerror(errno));
		end_memory(s);
		return;
	}
	s->device_fd = to ? fcntl(to->device_fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (to && s->device_fd < 0)
		SAVING_FAILED(s, HUTCH_E_IO, errno, "device state: %s", strerror(errno));
	else
		start_device(s);
}

static struct vmm_saving *new_saving(struct event_base *base, struct qmp *q, vmm_captured_fn *done,
				     void *arg)
{
	struct vmm_saving *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->base = base;
	s->qmp = q;
	s->ctl = s->device_fd = -1;
	s->done = done;
	s->arg = arg;
	s->start_us = now_us();
	s->limit = event_new(base, -1, 0, on_limit, s);
	s->soon = event_new(base, -1, 0, tell, s);
	if (!s->limit || !s->soon) {
		vmm_saving_free(s);
		return NULL;
	}
	return s;
}

struct vmm_saving *vmm_saving_start(struct event_base *base, int rundir_fd, struct qmp *q,
				    const struct vmm_capture_to *to, int data_fd,
				    struct vmm_state_file *file, vmm_captured_fn *done, void *arg)
{
	struct vmm_saving *s = new_saving(base, q, done, arg);

	if (!s)
		return NULL;
	s->file = file;
	s->ahead = !to;
	start(s, rundir_fd, to, data_fd);
	return s;
}
