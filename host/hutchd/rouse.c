/* SPDX-License-Identifier: Apache-2.0 */
/* A call that finds its VM asleep. */
#include "host/hutchd/rouse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rouse {
	struct deferred deferred;
	struct client *client;
	const struct method *method;
	struct vm *vm;
	struct vm_waiter waiter;
	unsigned flags;
	size_t len;
	uint8_t payload[];
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct rouse, deferred));
}

static void retire(struct rouse *r)
{
	vm_unwait(&r->waiter);
	vm_unuse(r->vm);
	loop_defer(&r->vm->b->loop, &r->deferred, destroy);
}

/* It wakes all the same. */
static void on_gone(void *call)
{
	retire(call);
}

/* None comes while the client is not read; with this it counts as a call to an agent (limits.c). */
static void on_input(void *call, const struct frame *f, const uint8_t *raw)
{
	(void)call;
	(void)f;
	(void)raw;
}

static const struct call_ops rouse_ops = {.input = on_input, .gone = on_gone};

static void on_awake(struct vm_waiter *w, const struct hutch_error *err)
{
	struct rouse *r = container_of(w, struct rouse, waiter);
	struct client *c = r->client;
	struct hutch_error failure;
	struct msg_call call;

	retire(r);
	stream_resume(&c->s);
	hutch_error_clear(&failure);
	if (r->vm->state >= VM_STOPPING)
		vm_died_error(r->vm, &failure);
	else if (err)
		failure = *err;
	else
		msg_call_decode(&call, r->payload, r->len, &failure);
	if (failure.kind)
		client_error(c, &failure);
	else
		dispatch_run(c, r->method, &call, r->vm, r->flags);
}

void rouse_start(struct client *c, const struct method *m, struct vm *vm, const struct frame *f,
		 const uint8_t *payload)
{
	struct rouse *r = malloc(sizeof(*r) + f->length);
	struct hutch_error err;

	if (!r) {
		hutch_error_clear(&err);
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a call");
		client_error(c, &err);
		return;
	}
	*r = (struct rouse){.client = c,
			    .method = m,
			    .vm = vm,
			    .waiter = {.for_ready = true, .done = on_awake},
			    .flags = f->flags,
			    .len = f->length};
	memcpy(r->payload, payload, f->length);
	client_begin(c, &rouse_ops, r);
	if (!(f->flags & FRAME_END))
		stream_pause(&c->s);
	vm_use(vm);
	vm_wait(vm, &r->waiter);
	vm_rouse(vm);
}
