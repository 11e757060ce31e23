/* SPDX-License-Identifier: Apache-2.0 */
/* vm.pause and vm.resume. */
#include <errno.h>
#include <stdlib.h>

#include "host/hutchd/api.h"
#include "host/hutchd/capture.h"

struct pause_call {
	struct deferred deferred;
	struct broker *b;
	struct client *client; /* NULL: gone */
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct pause_call, deferred));
}

/* It is paused all the same. */
static void on_gone(void *call)
{
	struct pause_call *p = call;

	p->client = NULL;
}

static const struct call_ops pause_ops = {.gone = on_gone};

static void on_paused(void *arg, const struct hutch_error *err, struct capture *capture)
{
	struct pause_call *p = arg;
	struct client *c = p->client;

	if (!err)
		capture_end(capture);
	loop_defer(&p->b->loop, &p->deferred, destroy);
	if (c && err)
		client_error(c, err);
	else if (c)
		client_reply_empty(c);
}

void api_vm_pause(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;
	struct pause_call *p;

	(void)call;
	if (vm->state == VM_PAUSED && !vm->thaw && !vm->rejoin) {
		client_reply_empty(c);
		return;
	}
	hutch_error_clear(&err);
	p = calloc(1, sizeof(*p));
	if (!p) {
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for vm.pause");
		client_error(c, &err);
		return;
	}
	p->b = c->b;
	p->client = c;
	client_begin(c, &pause_ops, p);
	if (!capture_start(vm, CAPTURE_PAUSE, on_paused, p, &err))
		on_paused(p, &err, NULL);
}

void api_vm_resume(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;

	(void)call;
	hutch_error_clear(&err);
	if (vm->state != VM_PAUSED && vm->state != VM_RUNNING)
		hutch_error_set(&err, HUTCH_E_STATE, 0, "VM %s is %s", vm->r.id,
				vm_state_name(vm->state));
	else if (vm->state == VM_PAUSED && vm->capture)
		hutch_error_set(&err, HUTCH_E_BUSY, 0, "VM %s: a fork or snapshot is under way",
				vm->r.id);
	else if (vm->state == VM_PAUSED)
		vm_thaw_start(vm, &err);
	if (err.kind)
		client_error(c, &err);
	else
		api_wait_running(c, vm);
}
