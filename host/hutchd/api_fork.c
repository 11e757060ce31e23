/* SPDX-License-Identifier: Apache-2.0 */
/* vm.fork: the parent is captured once, all children go on from that image at once, and are told of when all are ready. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/api.h"
#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"

struct fork {
	struct deferred deferred;
	struct broker *b;
	struct client *client; /* NULL: gone, or answered */
	struct vm_fork args;
	uint64_t pause_us, bytes;
	bool capturing;
	unsigned made, left;
	struct fork_child {
		struct vm_waiter waiter;
		struct fork *f;
		struct vm *vm;
	} children[HUTCH_MAX_FORK];
};

static void destroy(struct deferred *d)
{
	struct fork *f = container_of(d, struct fork, deferred);

	vm_fork_free(&f->args);
	free(f);
}

static void retire(struct fork *f)
{
	f->client = NULL;
	for (unsigned i = 0; i < f->made; i++)
		vm_unwait(&f->children[i].waiter);
	loop_defer(&f->b->loop, &f->deferred, destroy);
}

/* All or none. */
static void undo(struct fork *f, const char *why)
{
	for (unsigned i = 0; i < f->made; i++)
		vm_unwait(&f->children[i].waiter);
	for (unsigned i = 0; i < f->made; i++)
		vm_end(f->children[i].vm, why);
}

static void fail(struct fork *f, const struct hutch_error *err)
{
	struct client *c = f->client;
	struct hutch_error copy = *err;

	undo(f, "a fork of the same call failed");
	retire(f);
	client_error(c, &copy);
}

static void on_gone(void *call)
{
	struct fork *f = call;

	undo(f, "the client that asked for it went away");
	f->client = NULL;
	if (!f->capturing)
		retire(f);
}

static const struct call_ops fork_ops = {.gone = on_gone};

static void answer(struct fork *f)
{
	struct client *c = f->client;
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_key(&b, "vms");
	mp_array_begin(&b);
	for (unsigned i = 0; i < f->made; i++)
		api_put_vm(&b, f->children[i].vm, false);
	mp_array_end(&b);
	mp_kv_uint(&b, "pause_us", f->pause_us);
	mp_kv_uint(&b, "bytes", f->bytes);
	mp_map_end(&b);
	retire(f);
	client_reply_buf(c, &b);
}

static void on_child(struct vm_waiter *w, const struct hutch_error *err)
{
	struct fork *f = container_of(w, struct fork_child, waiter)->f;

	if (err)
		fail(f, err);
	else if (--f->left == 0)
		answer(f);
}

static void child_name(const struct fork *f, unsigned i, char *out, size_t size)
{
	if (!f->args.name[0] || f->args.count == 1)
		snprintf(out, size, "%s", f->args.name);
	else
		snprintf(out, size, "%.*s-%u", (int)HUTCH_MAX_VM_NAME - 3, f->args.name,
			 (i + 1) % 100);
}

/* One more link to the image's directory. -1 with err. */
static int child_origin(const struct capture *c, struct vm_origin *o, struct hutch_error *err)
{
	*o = (struct vm_origin){.im = malloc(sizeof(*o->im)),
				.dirfd = dir_open(c->dirfd, "."),
				.trusted = true};
	if (o->im && o->dirfd >= 0) {
		*o->im = *c->im;
		return 0;
	}
	vm_origin_free(o);
	return hutch_error_set(err, HUTCH_E_INTERNAL, errno, "cannot make a child: %s",
			       strerror(errno));
}

static int make_child(struct fork *f, const struct capture *c, unsigned i, struct hutch_error *err)
{
	const struct vm *parent = c->vm;
	struct fork_child *child = &f->children[i];
	char name[HUTCH_MAX_VM_NAME + 1];
	struct vm_origin origin;
	struct template tpl;
	const struct vm_spec spec = {
		.owner = parent->r.owner_uid,
		.tpl = &tpl,
		.name = name,
		.key = "",
		.ttl_ms = f->args.ttl_ms ? f->args.ttl_ms : parent->r.ttl_ms,
		.timeout_ms = f->args.timeout_ms,
		.metadata = f->args.has_metadata ? f->args.metadata : parent->r.metadata,
		.secrets = parent->r.secrets,
		.idle = parent->r.idle,
		.cold_reason = "",
		.parent = parent,
	};

	child_name(f, i, name, sizeof(name));
	snapshot_template(c->im, &tpl);
	if (child_origin(c, &origin, err) < 0)
		return -1;
	child->vm = vm_make(f->b, &spec, &origin, err);
	if (!child->vm)
		return -1;
	child->f = f;
	child->waiter = (struct vm_waiter){.for_ready = true, .done = on_child};
	f->made++;
	return 0;
}

static void on_captured(void *arg, const struct hutch_error *err, struct capture *c)
{
	struct fork *f = arg;
	struct hutch_error failure;

	f->capturing = false;
	hutch_error_clear(&failure);
	if (!f->client) {
		if (!err)
			capture_end(c);
		retire(f);
		return;
	}
	if (err) {
		fail(f, err);
		return;
	}
	f->pause_us = c->pause_us;
	f->bytes = c->bytes;
	log_info(c->vm->object, "forking %u, after a pause of %llu us", f->args.count,
		 (unsigned long long)f->pause_us);
	while (f->made < f->args.count && make_child(f, c, f->made, &failure) == 0)
		;
	/* They have links of their own by now. */
	capture_end(c);
	if (failure.kind) {
		fail(f, &failure);
		return;
	}
	f->left = f->made;
	for (unsigned i = 0; i < f->made; i++)
		vm_wait(f->children[i].vm, &f->children[i].waiter);
}

static int start(struct fork *f, struct vm *vm, const struct msg_call *call,
		 struct hutch_error *err)
{
	if (vm_fork_decode(&f->args, call->params, call->params_len, err) < 0 ||
	    api_check_secrets(vm, f->args.allow_secrets, call->method, err) < 0)
		return -1;
	f->capturing = true;
	return capture_start(vm, CAPTURE_GO_ON, on_captured, f, err) ? 0 : -1;
}

void api_vm_fork(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct fork *f = calloc(1, sizeof(*f));
	struct hutch_error err;

	hutch_error_clear(&err);
	if (!f) {
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for vm.fork");
		client_error(c, &err);
		return;
	}
	f->b = c->b;
	f->client = c;
	client_begin(c, &fork_ops, f);
	if (start(f, vm, call, &err) < 0) {
		f->capturing = false;
		fail(f, &err);
	}
}
