/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From wanted to ready:
 *
 *   (a moment) -> restored and running -> agent.warm -> captured and thrown away (a first fork finds that translated, too)
 *   -> held and stopped
 */
#include "host/hutchd/zygote.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/vsock/vmm_fork.h"

#define WARM_MS 30000u

struct zygote {
	TAILQ_ENTRY(zygote) next;
	struct deferred deferred;
	struct broker *b;
	char template_name[HUTCH_MAX_TEMPLATE_NAME + 1];
	uint64_t made_ms; /* image::created_ms of the snapshot */
	struct image_root root;
	struct vm *vm; /* NULL: not made yet, or failed */
	struct vm_waiter waiter;
	struct guest_call *warm;
	bool rehearsed, ready;
	unsigned failures; /* since one served last */
	uint64_t used_ms;
	struct event start;
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct zygote, deferred));
}

static uint64_t now_ms(void)
{
	return clock_us() / 1000;
}

static struct zygote *find(const struct broker *b, const char *template_name)
{
	struct zygote *z;

	TAILQ_FOREACH(z, &b->zygotes, next)
		if (strcmp(z->template_name, template_name) == 0)
			return z;
	return NULL;
}

/* Its VM, if any, is left to whoever calls. */
static void let_go(struct zygote *z)
{
	event_del(&z->start);
	vm_unwait(&z->waiter);
	guest_call_cancel(z->warm);
	z->warm = NULL;
	z->vm = NULL;
	z->ready = z->rehearsed = false;
}

static void retire(struct zygote *z, const char *why)
{
	struct vm *vm = z->vm;

	let_go(z);
	TAILQ_REMOVE(&z->b->zygotes, z, next);
	z->b->zygote_count--;
	loop_defer(&z->b->loop, &z->deferred, destroy);
	if (vm)
		vm_end(vm, why);
}

/* No other is made for a while, or for good: the template works without. */
static void fail(struct zygote *z, const char *why)
{
	struct vm *vm = z->vm;

	log_warn("broker", "template %s has no zygote: %s", z->template_name, why);
	let_go(z);
	if (++z->failures < ZYGOTE_FAILURES)
		loop_timer(&z->start, ZYGOTE_PAUSE_MS);
	if (vm)
		vm_end(vm, "it failed as a zygote");
}

static void hold(struct zygote *z);

static void on_held(void *arg, const struct hutch_error *err, struct capture *c)
{
	struct zygote *z = arg;

	if (!err)
		capture_end(c);
	if (!z->vm)
		return; /* it ended, and this is how its capture did */
	if (err) {
		fail(z, err->message);
	} else if (!z->rehearsed) {
		z->rehearsed = true;
		hold(z);
	} else {
		z->ready = true;
		vmm_renew(z->vm->vmm, ZYGOTE_LEASE_MS);
		log_info(z->vm->object, "is the zygote of template %s", z->template_name);
	}
}

static void hold(struct zygote *z)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	if (!capture_start(z->vm, z->rehearsed ? CAPTURE_PAUSE : CAPTURE_GO_ON, on_held, z, &err))
		fail(z, err.message);
}

static void on_warm(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct zygote *z = arg;

	(void)payload;
	(void)len;
	z->warm = NULL;
	if (err)
		fail(z, err->message);
	else
		hold(z);
}

static void on_running(struct vm_waiter *w, const struct hutch_error *err)
{
	static const struct msg_call warm = {.method = "agent.warm"};
	struct zygote *z = container_of(w, struct zygote, waiter);

	if (err) {
		fail(z, err->message);
		return;
	}
	z->warm = guest_call_start(&z->vm->pool, NULL, &warm, WARM_MS, on_warm, z);
	if (!z->warm)
		fail(z, "out of memory");
}

static struct vm *make(struct zygote *z, struct hutch_error *err)
{
	struct vm_origin origin;
	struct template tpl;

	if (vm_origin_of_template(z->b, z->template_name, &origin, &tpl, err) < 0)
		return NULL;
	z->made_ms = origin.im->created_ms;
	z->root = origin.im->root;
	return vm_make_hidden(z->b, VM_ZYGOTE, &tpl, ZYGOTE_BOOT_MS, &origin, err);
}

static void on_start(evutil_socket_t fd, short what, void *arg)
{
	struct zygote *z = arg;
	struct hutch_error err;

	(void)fd;
	(void)what;
	if (z->b->stopping)
		return;
	hutch_error_clear(&err);
	z->vm = make(z, &err);
	if (!z->vm) {
		fail(z, err.message);
		return;
	}
	log_info(z->vm->object, "is to be the zygote of template %s", z->template_name);
	z->waiter = (struct vm_waiter){.for_ready = true, .done = on_running};
	vm_wait(z->vm, &z->waiter);
}

/* Room for one more: the one that was not used for the longest time goes. */
static bool make_room(struct broker *b)
{
	struct zygote *z, *oldest = NULL;

	if (b->zygote_count < b->config->zygotes)
		return true;
	TAILQ_FOREACH(z, &b->zygotes, next)
		if (!oldest || z->used_ms < oldest->used_ms)
			oldest = z;
	if (!oldest || now_ms() - oldest->used_ms < ZYGOTE_PAUSE_MS)
		return false;
	retire(oldest, "another template is used more");
	return true;
}

static struct zygote *want(struct broker *b, const struct image *im, uint32_t wait_ms)
{
	struct zygote *z = make_room(b) ? calloc(1, sizeof(*z)) : NULL;

	if (!z)
		return NULL;
	z->b = b;
	snprintf(z->template_name, sizeof(z->template_name), "%s", im->template_name);
	z->made_ms = im->created_ms;
	z->used_ms = now_ms();
	event_assign(&z->start, b->loop.base, -1, 0, on_start, z);
	loop_timer(&z->start, wait_ms);
	TAILQ_INSERT_TAIL(&b->zygotes, z, next);
	b->zygote_count++;
	return z;
}

static bool is_possible(const struct broker *b, enum vmm_accel accel, uint32_t disk_mib)
{
	return b->config->zygotes > 0 && accel == ACCEL_TCG && !disk_mib &&
	       launcher_jail(b->launcher)->level == JAIL_UID;
}

/* That of this snapshot of its template; one of an earlier snapshot is ended. */
static struct zygote *find_current(struct broker *b, const struct image *im)
{
	struct zygote *z = find(b, im->template_name);

	if (!z || z->made_ms == im->created_ms)
		return z;
	retire(z, "its template has another snapshot now");
	return NULL;
}

bool zygote_is_coming(struct broker *b, const struct template *tpl, const struct image *im)
{
	struct zygote *z;

	if (!is_possible(b, accel_status(b->accel).verdict, tpl->disk_mib))
		return false;
	z = find_current(b, im);
	if (!z)
		z = want(b, im, 0);
	return z && !z->ready && !z->failures;
}

/* Does o lie over the file that z's VM was restored from? */
static bool same_base(const struct zygote *z, const struct vm_origin *o)
{
	struct stat a, b;

	return fstatat(z->vm->rundir_fd, VM_IMAGE_DIR "/" IMAGE_MEMORY, &a, AT_SYMLINK_NOFOLLOW) ==
		       0 &&
	       fstatat(o->dirfd, IMAGE_MEMORY, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Of all layers, or UINT64_MAX. */
static uint64_t layer_bytes(const struct vm_origin *o)
{
	char name[IMAGE_FILE_NAME];
	uint64_t bytes = 0;
	struct stat st;

	for (unsigned i = 0; i < o->im->nlayers; i++) {
		image_file_name(IMAGE_FILE_LAYERS + 2 * i, name);
		if (fstatat(o->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return UINT64_MAX;
		bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

static bool can_reload(const struct zygote *z, const struct vm_origin *o)
{
	const char *version = launcher_vmm_version(z->b->launcher);
	const struct image_root *a = &z->root, *b = &o->im->root;

	return strncmp(version, ZYGOTE_QEMU, strlen(ZYGOTE_QEMU)) == 0 &&
	       o->im->nlayers <= VMM_FORK_LAYERS && strcmp(a->file, b->file) == 0 &&
	       a->size == b->size && a->inode == b->inode && a->mtime_ns == b->mtime_ns &&
	       same_base(z, o) && layer_bytes(o) <= ZYGOTE_RELOAD_MAX;
}

struct vm *zygote_for(struct vm *vm, const struct vm_origin *o, bool *reload)
{
	struct broker *b = vm->b;
	struct zygote *z;

	if (!o->im || vm->kind == VM_ZYGOTE || !is_possible(b, vm->r.accel, vm->r.disk_mib))
		return NULL;
	z = o->of_template ? find_current(b, o->im) : find(b, o->im->template_name);
	if (!z && o->of_template)
		want(b, o->im, ZYGOTE_WAIT_MS);
	if (!z || !z->ready || (!o->of_template && !can_reload(z, o)))
		return NULL;
	*reload = !o->of_template;
	z->used_ms = now_ms();
	return z->vm;
}

void zygotes_start(struct broker *b)
{
	struct template *list = NULL;
	struct hutch_error err;
	size_t count = 0;

	hutch_error_clear(&err);
	if (template_list(b->templates_fd, b->config->template_dir, &list, &count, &err) < 0)
		return; /* who lists them is told why */
	for (size_t i = 0; i < count; i++) {
		int fd = -1;
		struct image *im = template_snapshot_open(b, list[i].name, &fd, &err);

		if (im)
			zygote_is_coming(b, &list[i], im);
		free(im);
		fd_close(&fd);
	}
	free(list);
}

void zygote_served(const struct vm *vm)
{
	struct zygote *z = find(vm->b, vm->r.template_name);

	if (z)
		z->failures = 0;
}

void zygote_failed(struct broker *b, const struct vm *vm, const char *why)
{
	struct zygote *z = find(b, vm->r.template_name);

	log_warn(vm->object, "is restored, since its zygote did not make it: %s", why);
	if (z && z->ready)
		fail(z, why);
}

void zygote_lost(struct vm *vm)
{
	struct zygote *z = find(vm->b, vm->r.template_name);

	if (!z || z->vm != vm)
		return;
	z->vm = NULL;
	fail(z, vm->reason);
}

void zygotes_renew(struct broker *b)
{
	struct zygote *z, *next;

	for (z = TAILQ_FIRST(&b->zygotes); z; z = next) {
		next = TAILQ_NEXT(z, next);
		if (z->failures < ZYGOTE_FAILURES && now_ms() - z->used_ms > ZYGOTE_IDLE_MS)
			retire(z, "no VM of its template was asked for");
		else if (z->ready)
			vmm_renew(z->vm->vmm, ZYGOTE_LEASE_MS);
	}
}

void zygotes_forget(struct broker *b)
{
	struct zygote *z;

	while ((z = TAILQ_FIRST(&b->zygotes))) {
		z->vm = NULL; /* freed with all others */
		retire(z, "");
	}
}
