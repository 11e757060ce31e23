/* SPDX-License-Identifier: Apache-2.0 */
#include "host/hutchd/vmm_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define COMMAND_MS 10000u

struct op {
	TAILQ_ENTRY(op) link;
	struct vmm_ops *ops;
	struct event *soon; /* active: it was answered, and is to be told */
	struct hutch_error err;
	char name[32];
	vmm_done_fn *done;
	void *arg;
};

struct vmm_ops {
	struct event_base *base;
	TAILQ_HEAD(, op) ops;
};

static void release(struct op *o)
{
	if (o->soon)
		event_free(o->soon);
	free(o);
}

static void free_op(struct op *o)
{
	TAILQ_REMOVE(&o->ops->ops, o, link);
	release(o);
}

static void tell(evutil_socket_t fd, short what, void *arg)
{
	struct op *o = arg;
	vmm_done_fn *done = o->done;
	void *done_arg = o->arg;
	struct hutch_error err = o->err;

	(void)fd;
	(void)what;
	free_op(o);
	done(done_arg, err.kind == HUTCH_OK ? NULL : &err);
}

static void answered(void *arg, const json_t *value, const char *error)
{
	struct op *o = arg;

	if (!value)
		hutch_error_set(&o->err, HUTCH_E_INTERNAL, 0, "QMP command %s failed: %s", o->name,
				error);
	event_active(o->soon, EV_TIMEOUT, 1);
}

struct vmm_ops *vmm_ops_new(struct event_base *base)
{
	struct vmm_ops *ops = calloc(1, sizeof(*ops));

	if (!ops)
		return NULL;
	ops->base = base;
	TAILQ_INIT(&ops->ops);
	return ops;
}

bool vmm_ops_command(struct vmm_ops *ops, struct qmp *q, const char *name, vmm_done_fn *done,
		     void *arg)
{
	struct op *o = calloc(1, sizeof(*o));

	if (!o)
		return false;
	o->ops = ops;
	o->done = done;
	o->arg = arg;
	strncpy(o->name, name, sizeof(o->name) - 1);
	TAILQ_INSERT_TAIL(&ops->ops, o, link);
	o->soon = event_new(ops->base, -1, 0, tell, o);
	if (!o->soon) {
		free_op(o);
		return false;
	}
	if (!q) {
		hutch_error_set(&o->err, HUTCH_E_STATE, 0, "the VMM is not up");
		event_active(o->soon, EV_TIMEOUT, 1);
	} else if (qmp_command(q, name, NULL, COMMAND_MS, answered, o) < 0) {
		answered(o, NULL, strerror(errno));
	}
	return true;
}

void vmm_ops_abort(struct vmm_ops *ops)
{
	struct op *o;

	TAILQ_FOREACH(o, &ops->ops, link)
		if (!event_pending(o->soon, EV_TIMEOUT, NULL))
			answered(o, NULL, "the VMM ended");
}

void vmm_ops_free(struct vmm_ops *ops)
{
	struct op *o, *next;

	if (!ops)
		return;
	for (o = TAILQ_FIRST(&ops->ops); o; o = next) {
		next = TAILQ_NEXT(o, link);
		release(o);
	}
	free(ops);
}
