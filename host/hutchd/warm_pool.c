/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of VMs that are ready to be taken. */
#include "host/hutchd/warm_pool.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/zygote.h"

#define POOLS_TEXT_MAX (64u << 10)

static void destroy(struct deferred *d)
{
	free(container_of(d, struct warm_pool, deferred));
}

static void refill_after(struct warm_pool *p, uint32_t ms)
{
	if (!event_pending(&p->refill, EV_TIMEOUT, NULL))
		loop_timer(&p->refill, ms);
}

struct warm_pool *warm_pool_find(const struct broker *b, const char *template_name)
{
	struct warm_pool *p;

	TAILQ_FOREACH(p, &b->pools, next)
		if (strcmp(p->template_name, template_name) == 0)
			return p;
	return NULL;
}

static bool is_of(const struct vm *vm, const struct warm_pool *p)
{
	return vm->kind == VM_POOLED && vm->state < VM_STOPPING &&
	       strcmp(vm->r.template_name, p->template_name) == 0;
}

/* A VM of p, after prev; NULL: no more. */
static struct vm *next_of(const struct warm_pool *p, struct vm *prev)
{
	struct vm *vm = prev ? TAILQ_NEXT(prev, next) : TAILQ_FIRST(&p->b->vms);

	while (vm && !is_of(vm, p))
		vm = TAILQ_NEXT(vm, next);
	return vm;
}

static void failed(struct warm_pool *p, const char *why)
{
	p->failed++;
	snprintf(p->last_error, sizeof(p->last_error), "%.250s", why);
	p->pause_ms = p->pause_ms ? p->pause_ms * 2 : POOL_PAUSE_MS;
	if (p->pause_ms > POOL_PAUSE_MAX_MS)
		p->pause_ms = POOL_PAUSE_MAX_MS;
	refill_after(p, p->pause_ms);
}

/* NULL with err; or without, when it is too early. */
static struct vm *start_one(struct warm_pool *p, struct hutch_error *err)
{
	struct vm_origin origin;
	struct template tpl;

	if (vm_origin_of_template(p->b, p->template_name, &origin, &tpl, err) < 0)
		return NULL;
	if (!zygote_is_coming(p->b, &tpl, origin.im))
		return vm_make_hidden(p->b, VM_POOLED, &tpl, POOL_BOOT_MS, &origin, err);
	vm_origin_free(&origin);
	return NULL;
}

static void on_refill(evutil_socket_t fd, short what, void *arg)
{
	struct warm_pool *p = arg;
	struct hutch_error err;

	(void)fd;
	(void)what;
	if (p->starting > 0 || p->ready >= p->size || p->b->stopping)
		return;
	hutch_error_clear(&err);
	if (start_one(p, &err))
		p->starting++;
	else if (err.kind)
		failed(p, err.message);
	else
		refill_after(p, POOL_REFILL_MS);
}

void warm_pool_ready(struct vm *vm)
{
	struct warm_pool *p = warm_pool_find(vm->b, vm->r.template_name);

	if (!p || p->ready >= p->size) {
		vm_end(vm, "its pool does not need it");
		return;
	}
	vmm_renew(vm->vmm, POOL_LEASE_MS);
	vm->pool_ready = true;
	p->starting--;
	p->ready++;
	p->pause_ms = 0;
	p->last_error[0] = '\0';
	refill_after(p, 0);
}

void warm_pool_lost(struct vm *vm)
{
	struct warm_pool *p = warm_pool_find(vm->b, vm->r.template_name);

	if (!p)
		return;
	if (vm->pool_ready)
		p->ready--;
	else
		p->starting--;
	vm->pool_ready = false;
	if (p->ready + p->starting < p->size)
		failed(p, vm->reason);
}

/* What is above the size, or all; those that are still starting end as they become ready. */
static void shrink(struct warm_pool *p, uint32_t size)
{
	struct vm *vm = next_of(p, NULL);

	while (vm && p->ready > size) {
		struct vm *after = next_of(p, vm);

		if (vm->pool_ready)
			vm_end(vm, "its pool was made smaller");
		vm = after;
	}
}

static struct warm_pool *pool_new(struct broker *b, const char *template_name)
{
	struct warm_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->b = b;
	snprintf(p->template_name, sizeof(p->template_name), "%s", template_name);
	event_assign(&p->refill, b->loop.base, -1, 0, on_refill, p);
	TAILQ_INSERT_TAIL(&b->pools, p, next);
	b->pool_count++;
	return p;
}

static void pool_free(struct warm_pool *p)
{
	event_del(&p->refill);
	TAILQ_REMOVE(&p->b->pools, p, next);
	p->b->pool_count--;
	loop_defer(&p->b->loop, &p->deferred, destroy);
}

static int save(struct broker *b, struct hutch_error *err)
{
	json_t *o = json_object();
	const struct warm_pool *p;
	char *text;
	int rc = -1;

	TAILQ_FOREACH(p, &b->pools, next)
		json_object_set_new(o, p->template_name, json_integer(p->size));
	text = json_dumps(o, JSON_INDENT(1));
	json_decref(o);
	if (text)
		rc = file_write_atomic(b->state_fd, POOLS_FILE, text, strlen(text), true);
	free(text);
	return rc == 0 ? 0
		       : hutch_error_set(err, HUTCH_E_IO, errno, "cannot write " POOLS_FILE ": %s",
					 strerror(errno));
}

static void end_all(struct warm_pool *p)
{
	struct vm *vm = next_of(p, NULL);

	p->size = 0;
	while (vm) {
		struct vm *after = next_of(p, vm);

		vm_end(vm, "its pool was ended");
		vm = after;
	}
}

struct warm_pool *warm_pool_set(struct broker *b, const char *template_name, uint32_t size,
				struct hutch_error *err)
{
	struct warm_pool *p = warm_pool_find(b, template_name);
	struct image *im;
	int dirfd;

	if (size == 0) {
		if (p) {
			end_all(p);
			pool_free(p);
			save(b, err);
		}
		return NULL;
	}
	im = template_snapshot_open(b, template_name, &dirfd, err);
	if (!im) {
		err->kind = HUTCH_E_STATE;
		return NULL;
	}
	fd_close(&dirfd);
	free(im);
	if (!p && b->pool_count >= POOLS_MAX) {
		hutch_error_set(err, HUTCH_E_BUSY, 0, "there are %u pools", POOLS_MAX);
		return NULL;
	}
	if (!p && !(p = pool_new(b, template_name))) {
		hutch_error_set(err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a pool");
		return NULL;
	}
	p->size = size;
	shrink(p, size);
	p->pause_ms = 0;
	event_del(&p->refill);
	refill_after(p, 0);
	save(b, err);
	return p;
}

struct vm *warm_pool_take(struct broker *b, const struct vm_spec *spec, const struct image *im,
			  struct hutch_error *err)
{
	struct warm_pool *p = warm_pool_find(b, im->template_name);
	struct vm *vm = p ? next_of(p, NULL) : NULL;

	if (!p)
		return NULL;
	while (vm) {
		struct vm *after = next_of(p, vm);

		if (vm->pool_ready && vm->image_made_ms == im->created_ms)
			break;
		if (vm->pool_ready)
			vm_end(vm, "its template has another snapshot now");
		vm = after;
	}
	if (!vm) {
		p->missed++;
		refill_after(p, POOL_REFILL_MS);
		return NULL;
	}
	vm->pool_ready = false;
	p->ready--;
	p->taken++;
	refill_after(p, POOL_REFILL_MS);
	if (vm_give(vm, spec, err) == 0)
		return vm;
	vm_end(vm, "it could not be given out");
	return NULL;
}

static void on_renew(evutil_socket_t fd, short what, void *arg)
{
	struct broker *b = arg;
	struct vm *vm;

	(void)fd;
	(void)what;
	TAILQ_FOREACH(vm, &b->vms, next)
		if (vm->kind == VM_POOLED && vm->pool_ready && vm->vmm)
			vmm_renew(vm->vmm, POOL_LEASE_MS);
	zygotes_renew(b);
}

static void load(struct broker *b)
{
	size_t len = 0;
	char *text = file_read(b->state_fd, POOLS_FILE, POOLS_TEXT_MAX, &len);
	json_t *o = text ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL, *size;
	const char *name;

	json_object_foreach(o, name, size)
	{
		struct warm_pool *p;
		json_int_t n = json_integer_value(size);

		if (!hutch_name_valid(name, strlen(name), HUTCH_MAX_TEMPLATE_NAME) || n < 1 ||
		    n > HUTCH_MAX_POOL || b->pool_count >= POOLS_MAX || !(p = pool_new(b, name))) {
			log_warn("broker", "left out of " POOLS_FILE ": %s", name);
			continue;
		}
		p->size = (uint32_t)n;
		refill_after(p, POOL_REFILL_MS);
	}
	json_decref(o);
	free(text);
}

int warm_pools_start(struct broker *b)
{
	const struct timeval tv = {.tv_sec = POOL_RENEW_S};

	load(b);
	event_assign(&b->pool_renew, b->loop.base, -1, EV_PERSIST, on_renew, b);
	return event_add(&b->pool_renew, &tv);
}

void warm_pools_free(struct broker *b)
{
	while (!TAILQ_EMPTY(&b->pools))
		pool_free(TAILQ_FIRST(&b->pools));
	event_del(&b->pool_renew);
}
