/* SPDX-License-Identifier: Apache-2.0 */
/* Which accelerator to use: as configured, as remembered, or as a probe finds out. */
#include "host/hutchd/accel.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/accel_probe.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"

#define ACCEL_JSON     "accel.json"
#define ACCEL_JSON_MAX 16384u
#define KVM_DEVICE     "/dev/kvm"

struct accel_wait {
	TAILQ_ENTRY(accel_wait) link; /* accel::waits */
	struct accel *accel;
	accel_done_fn *done;
	void *arg;
};

struct accel {
	struct event_base *base;
	struct launcher *launcher;
	int state_dir_fd;
	const char *device;
	enum vmm_accel mode, verdict;
	bool lasting; /* the verdict need not be looked into again, by this broker */
	/*
	 * The template with which KVM failed, as long as it is not known whether it boots at all; empty: no doubt.
	 */
	char doubted[HUTCH_MAX_TEMPLATE_NAME + 1];
	char reason[512];
	uint64_t checked_ms;
	struct accel_probe *probe;
	char probed[HUTCH_MAX_TEMPLATE_NAME + 1]; /* the template that it boots */
	struct event *deliver;
	TAILQ_HEAD(, accel_wait) waits;
};

static uint64_t unix_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void set_verdict(struct accel *a, enum vmm_accel verdict, bool lasting, const char *reason)
{
	bool news = verdict != a->verdict || lasting != a->lasting;

	a->verdict = verdict;
	a->lasting = lasting;
	a->checked_ms = unix_ms();
	snprintf(a->reason, sizeof(a->reason), "%s", reason);
	/* It quotes logs of several lines, and is shown as one. */
	for (char *c = a->reason; *c; c++)
		if (*c == '\n')
			*c = ' ';
	if (news)
		log_info("accelerator", "%s: %s", vmm_accel_name(verdict), a->reason);
}

/* ---- the remembered verdict ---- */

/* What a verdict holds for: this boot of this host with this VMM. */
struct host_key {
	char kernel[sizeof(((struct utsname *)0)->release)];
	char boot_id[64];
	const char *vmm;
};

static void read_host_key(struct host_key *key, const struct launcher *launcher)
{
	struct utsname u;
	size_t len;
	char *id = file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &len);

	memset(key, 0, sizeof(*key));
	if (uname(&u) == 0)
		memcpy(key->kernel, u.release, sizeof(key->kernel));
	if (id)
		snprintf(key->boot_id, sizeof(key->boot_id), "%.*s", (int)strcspn(id, "\n"), id);
	free(id);
	key->vmm = launcher_vmm_version(launcher);
}

static void save_verdict(const struct accel *a)
{
	struct host_key key;
	json_t *root;
	char *text;

	read_host_key(&key, a->launcher);
	root = json_pack("{s:s,s:s,s:I,s:s,s:s,s:s}", "verdict", vmm_accel_name(a->verdict),
			 "reason", a->reason, "checked_ms", (json_int_t)a->checked_ms, "kernel",
			 key.kernel, "boot_id", key.boot_id, "vmm_version", key.vmm);
	text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
	json_decref(root);
	if (!text)
		log_warn("accelerator", "the verdict cannot be written down");
	else if (file_write_atomic(a->state_dir_fd, ACCEL_JSON, text, strlen(text), false) < 0)
		log_errno(LOG_LEVEL_WARN, "accelerator",
			  "the verdict cannot be written to " ACCEL_JSON);
	free(text);
}

static bool key_matches(const json_t *root, const struct host_key *key)
{
	const char *kernel = json_string_value(json_object_get(root, "kernel"));
	const char *boot_id = json_string_value(json_object_get(root, "boot_id"));
	const char *vmm = json_string_value(json_object_get(root, "vmm_version"));

	return kernel && boot_id && vmm && strcmp(kernel, key->kernel) == 0 &&
	       strcmp(boot_id, key->boot_id) == 0 && strcmp(vmm, key->vmm) == 0;
}

static void load_verdict(struct accel *a)
{
	const char *verdict, *reason;
	struct host_key key;
	json_t *root;
	size_t len;
	char *text = file_read(a->state_dir_fd, ACCEL_JSON, ACCEL_JSON_MAX, &len);

	if (!text)
		return;
	root = json_loadb(text, len, 0, NULL);
	free(text);
	read_host_key(&key, a->launcher);
	verdict = json_string_value(json_object_get(root, "verdict"));
	reason = json_string_value(json_object_get(root, "reason"));
	if (verdict && reason && key_matches(root, &key) &&
	    (strcmp(verdict, "kvm") == 0 || strcmp(verdict, "tcg") == 0)) {
		set_verdict(a, strcmp(verdict, "kvm") == 0 ? ACCEL_KVM : ACCEL_TCG, true, reason);
		a->checked_ms = (uint64_t)json_integer_value(json_object_get(root, "checked_ms"));
	}
	json_decref(root);
}

/* ---- finding out ---- */

static void on_probed(void *arg, enum accel_probed result, const char *reason)
{
	struct accel *a = arg;

	a->probe = NULL;
	set_verdict(a, result == PROBE_WORKS ? ACCEL_KVM : ACCEL_TCG, result != PROBE_NOT_TRIED,
		    reason);
	if (result == PROBE_GUEST_FAILS)
		memcpy(a->doubted, a->probed, sizeof(a->doubted));
	else if (result != PROBE_NOT_TRIED)
		save_verdict(a);
	event_active(a->deliver, EV_TIMEOUT, 1);
}

void accel_booted(struct accel *a, const char *template_name, bool well)
{
	char reason[sizeof(a->reason)];

	if (!a->doubted[0] || strcmp(a->doubted, template_name) != 0)
		return;
	a->doubted[0] = '\0';
	if (well) {
		save_verdict(a);
		return;
	}
	snprintf(reason, sizeof(reason), "template %s boots under neither KVM nor TCG",
		 template_name);
	set_verdict(a, ACCEL_AUTO, false, reason);
}

/* Sets a verdict, or starts a probe that will. */
static void find_out(struct accel *a, const struct template *tpl)
{
	struct hutch_error err;
	char reason[sizeof(a->reason)];
	int fd = open(a->device, O_RDWR | O_CLOEXEC);

	if (fd < 0) {
		/*
		 * Not for long: it costs nothing to look again, and a group or module may be added.
		 */
		snprintf(reason, sizeof(reason), "%s: %s", a->device, strerror(errno));
		set_verdict(a, ACCEL_TCG, false, reason);
		return;
	}
	fd_close(&fd);
	log_info("accelerator", "booting a guest of template %s under KVM to see if it works",
		 tpl->name);
	snprintf(a->probed, sizeof(a->probed), "%s", tpl->name);
	a->probe = accel_probe_start(a->base, a->launcher, a->state_dir_fd, tpl, on_probed, a,
				     &err);
	if (!a->probe) {
		snprintf(reason, sizeof(reason), "KVM could not be tried: %.400s", err.message);
		set_verdict(a, ACCEL_TCG, false, reason);
	}
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
	struct accel *a = arg;
	struct accel_wait *w;

	(void)fd;
	(void)what;
	while (!a->probe && (w = TAILQ_FIRST(&a->waits)) != NULL) {
		accel_done_fn *done = w->done;
		void *done_arg = w->arg;

		accel_cancel(w);
		done(done_arg, a->verdict, a->reason);
	}
}

struct accel *accel_create(struct event_base *base, struct launcher *launcher, int state_dir_fd,
			   enum vmm_accel mode)
{
	struct accel *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	TAILQ_INIT(&a->waits);
	a->base = base;
	a->launcher = launcher;
	a->state_dir_fd = state_dir_fd;
	a->device = KVM_DEVICE;
	a->mode = mode;
	a->deliver = event_new(base, -1, 0, on_deliver, a);
	if (!a->deliver) {
		free(a);
		return NULL;
	}
	if (mode != ACCEL_AUTO)
		set_verdict(a, mode, true, "configured");
	else if (strcmp(launcher_driver(launcher), "qemu") != 0)
		set_verdict(a, ACCEL_TCG, true, "a test VMM has no accelerator");
	else
		load_verdict(a);
	return a;
}

struct accel_wait *accel_resolve(struct accel *a, const struct template *tpl, accel_done_fn *done,
				 void *arg)
{
	struct accel_wait *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->accel = a;
	w->done = done;
	w->arg = arg;
	TAILQ_INSERT_TAIL(&a->waits, w, link);
	if (!a->probe && !a->lasting)
		find_out(a, tpl);
	if (!a->probe)
		event_active(a->deliver, EV_TIMEOUT, 1);
	return w;
}

void accel_cancel(struct accel_wait *w)
{
	TAILQ_REMOVE(&w->accel->waits, w, link);
	free(w);
}

struct accel_status accel_status(const struct accel *a)
{
	return (struct accel_status){a->mode, a->verdict, a->reason, a->checked_ms};
}

void accel_set_kvm_device(struct accel *a, const char *path)
{
	a->device = path;
}

void accel_destroy(struct accel *a)
{
	struct accel_wait *w, *next;

	if (!a)
		return;
	accel_probe_free(a->probe);
	for (w = TAILQ_FIRST(&a->waits); w; w = next) {
		next = TAILQ_NEXT(w, link);
		free(w);
	}
	event_free(a->deliver);
	free(a);
}
