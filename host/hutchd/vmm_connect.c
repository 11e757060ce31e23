/* SPDX-License-Identifier: Apache-2.0 */
/* From a process to a VMM that is up: QMP's greeting, its capabilities, the guest's status. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vmm_priv.h"

#define QMP_COMMAND_MS	  10000u
#define EXIT_AFTER_EOF_MS 500u /* a VMM that closes QMP is about to end; how it ends says more */

/* It will not come up. Only the first reason counts, and none after vmm_kill. */
static void fail(struct vmm *v, const char *stage, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void fail(struct vmm *v, const char *stage, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	if (v->failure.kind == HUTCH_OK && !v->kill_asked) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		hutch_error_set(&v->failure, HUTCH_E_START_FAILED, 0, "%s", text);
		snprintf(v->failure.stage, sizeof(v->failure.stage), "%s", stage);
	}
	vmm_kill_process(v);
}

static void set_limit(struct vmm *v, uint64_t ms)
{
	struct timeval tv = {.tv_sec = (time_t)(ms / 1000),
			     .tv_usec = (suseconds_t)(ms % 1000) * 1000};

	event_add(v->limit_event, &tv);
}

void vmm_on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct vmm *v = arg;

	(void)fd;
	(void)what;
	if (v->qmp_closed)
		fail(v, "qmp", "the VMM closed its QMP socket");
	else
		fail(v, "qmp", "the VMM did not answer QMP within %" PRIu64 " ms",
		     v->config.qmp_timeout_ms);
}

static void command(struct vmm *v, const char *name, qmp_done_fn *done)
{
	if (qmp_command(v->qmp, name, NULL, QMP_COMMAND_MS, done, v) < 0)
		fail(v, "qmp", "QMP command %s: %s", name, strerror(errno));
}

static void command_failed(struct vmm *v, const char *name, const char *error)
{
	if (!v->qmp_closed)
		fail(v, "qmp", "QMP command %s failed: %s", name, error);
}

static void come_up(struct vmm *v)
{
	event_del(v->limit_event);
	vmm_set_state(v, VMM_UP);
	v->was_up = true;
	v->cb->up(v->arg, v->version, v->spawn_us, vmm_now_us() - v->start_us - v->spawn_us);
}

static void on_continued(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;

	if (!value)
		command_failed(v, "cont", error);
	else
		come_up(v);
}

/* ---- a fork that goes on from another image than its zygote did ---- */

#define LOAD_FDSET 99 /* below those of captures (vmm_saving.c) */

static void on_loaded(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;

	if (!value) {
		command_failed(v, "xen-load-devices-state", error);
		return;
	}
	vmm_saving_tidy(v->qmp, LOAD_FDSET);
	command(v, "cont", on_continued);
}

static void on_file_added(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;
	char path[32];

	fd_close(&v->load_fd);
	snprintf(path, sizeof(path), "/dev/fdset/%d", LOAD_FDSET);
	if (!value)
		command_failed(v, "add-fd", error);
	else if (qmp_command(v->qmp, "xen-load-devices-state", json_pack("{s:s}", "filename", path),
			     QMP_COMMAND_MS, on_loaded, v) < 0)
		fail(v, "qmp", "QMP command xen-load-devices-state: %s", strerror(errno));
}

static void load_devices(struct vmm *v)
{
	if (qmp_command_fd(v->qmp, "add-fd", json_pack("{s:i}", "fdset-id", LOAD_FDSET), v->load_fd,
			   QMP_COMMAND_MS, on_file_added, v) < 0)
		fail(v, "qmp", "QMP command add-fd: %s", strerror(errno));
}

static void on_status(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;
	const char *status = json_string_value(json_object_get(value, "status"));

	if (!value) {
		command_failed(v, "query-status", error);
	} else if (json_is_true(json_object_get(value, "running"))) {
		come_up(v);
	} else if (v->restored && status && strcmp(status, "inmigrate") == 0) {
		/* The event follows, unless it overtook this answer, which QEMU may be slow to send. */
		if (v->loaded)
			command(v, "query-status", on_status);
		else
			v->loading = true;
	} else if (v->config.leave_stopped && status && strcmp(status, "paused") == 0) {
		v->stopped = true;
		come_up(v);
	} else if (v->forked && status && strcmp(status, "paused") == 0) {
		if (v->load_fd >= 0)
			load_devices(v);
		else
			command(v, "cont", on_continued);
	} else if (v->adopted && status && strcmp(status, "paused") == 0) {
		/* An earlier broker stopped it for a moment and did not live to resume it. */
		log_info(v->config.id, "was stopped, is resumed");
		command(v, "cont", on_continued);
	} else {
		fail(v, "qmp", "the guest is not running, but %.40s", status ? status : "nothing");
	}
}

static void on_capabilities(void *arg, const json_t *value, const char *error)
{
	struct vmm *v = arg;

	if (!value)
		command_failed(v, "qmp_capabilities", error);
	else
		command(v, "query-status", on_status);
}

static void on_greeting(void *arg, const char *version)
{
	struct vmm *v = arg;

	if (v->version[0])
		return; /* once is enough */
	snprintf(v->version, sizeof(v->version), "%s", version);
	command(v, "qmp_capabilities", on_capabilities);
}

/* A load that fails ends QEMU, which says why in its log. */
static void on_load_event(struct vmm *v, const char *status)
{
	if (!status || strcmp(status, "completed") != 0)
		return;
	v->loaded = true;
	if (!v->loading)
		return;
	v->loading = false;
	command(v, "query-status", on_status);
}

static void on_qmp_event(void *arg, const char *name, const json_t *data)
{
	struct vmm *v = arg;
	const char *reason = json_string_value(json_object_get(data, "reason"));

	log_debug(v->config.id, "QMP event %s%s%s", name, reason ? " " : "", reason ? reason : "");
	if (strcmp(name, "SHUTDOWN") == 0 && reason)
		snprintf(v->shutdown, sizeof(v->shutdown), "%s", reason);
	else if (strcmp(name, "GUEST_PANICKED") == 0)
		snprintf(v->shutdown, sizeof(v->shutdown), "guest-panic");
	else if (strcmp(name, "MIGRATION") == 0)
		on_load_event(v, json_string_value(json_object_get(data, "status")));
	else if (strcmp(name, "STOP") == 0)
		v->stopped = true;
	else if (strcmp(name, "RESUME") == 0)
		v->stopped = false;
}

static void on_qmp_lost(void *arg, const char *why, bool broken)
{
	struct vmm *v = arg;

	if (v->state == VMM_REAPING)
		return;
	if (broken) {
		/*
		 * Whatever speaks there is no QEMU in good health; nothing that it says can be
		 * relied on.
		 */
		log_warn(v->config.id, "QMP: %s; the VMM is killed", why);
		fail(v, "qmp", "QMP: %s", why);
	} else if (v->state == VMM_CONNECTING) {
		v->qmp_closed = true;
		set_limit(v, EXIT_AFTER_EOF_MS);
	} else {
		log_debug(v->config.id, "QMP: %s", why);
	}
}

static const struct qmp_callbacks qmp_callbacks = {
	.greeting = on_greeting,
	.event = on_qmp_event,
	.lost = on_qmp_lost,
};

void vmm_connect_qmp(struct vmm *v)
{
	vmm_set_state(v, VMM_CONNECTING);
	v->qmp = qmp_connect(v->base, v->config.rundir_fd, "qmp", &qmp_callbacks, v);
	if (v->qmp) {
		set_limit(v, v->config.qmp_timeout_ms);
	} else if (errno == ECONNREFUSED) {
		/* Nobody listens any more: it has ended, which is told in a moment. */
		v->qmp_closed = true;
		set_limit(v, EXIT_AFTER_EOF_MS);
	} else {
		fail(v, "qmp", "connect to the VMM's QMP socket: %s", strerror(errno));
	}
}
