/* SPDX-License-Identifier: Apache-2.0 */
/* The writable disk of a VM. */
#include "host/hutchd/vmm_disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/log.h"
#include "host/hutchd/qcow2.h"
#include "host/hutchd/vmm_priv.h"
#include "host/hutchd/vmm_qemu.h"
#include "host/hutchd/vmm_restore.h"

#define QMP_MS 10000u

/* ---- its start ---- */

static int check_layer(const struct vmm_disk *d, size_t i, struct hutch_error *err)
{
	const char *why;

	if (vmm_check_shared(d->layers[i], "a disk layer", err) < 0)
		return -1;
	why = qcow2_check_below(d->layers[i], d->bytes);
	if (!why)
		return 0;
	return hutch_error_set(err, HUTCH_E_STATE, 0, "a disk layer cannot be used: %s", why);
}

int vmm_disk_fds(const struct vmm_disk *d, int *fds, size_t *nfds, struct hutch_error *err)
{
	if (d->nlayers >= LAUNCH_MAX_DISK_LAYERS)
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "%zu disk layers, where %u are possible", d->nlayers,
				       LAUNCH_MAX_DISK_LAYERS - 1);
	if (vmm_check_shared(d->base_fd, "the disk's base", err) < 0)
		return -1;
	fds[(*nfds)++] = d->base_fd;
	for (size_t i = 0; i < d->nlayers; i++) {
		if (check_layer(d, i, err) < 0)
			return -1;
		fds[(*nfds)++] = d->layers[i];
	}
	fds[(*nfds)++] = d->top_fd;
	return 0;
}

/* ---- commands ---- */

struct vmm_disk_op {
	struct vmm *v;
	struct event *soon; /* active: all was answered, and is to be told */
	unsigned left;	    /* commands without an answer */
	const char *name;   /* of what is done */
	struct hutch_error err;
	uint32_t *top; /* vmm_disk_query's */
	vmm_done_fn *done;
	void *arg;
};

void vmm_disk_free(struct vmm_disk_op *op)
{
	if (!op)
		return;
	if (op->soon)
		event_free(op->soon);
	free(op);
}

static void tell(evutil_socket_t fd, short what, void *arg)
{
	struct vmm_disk_op *op = arg;
	vmm_done_fn *done = op->done;
	void *done_arg = op->arg;
	struct hutch_error err = op->err;

	(void)fd;
	(void)what;
	op->v->disk_op = NULL;
	vmm_disk_free(op);
	done(done_arg, err.kind == HUTCH_OK ? NULL : &err);
}

static void finish_if_last(struct vmm_disk_op *op)
{
	if (op->left == 0)
		event_active(op->soon, EV_TIMEOUT, 1);
}

static void fail(struct vmm_disk_op *op, const char *why)
{
	if (op->err.kind == HUTCH_OK)
		hutch_error_set(&op->err, HUTCH_E_INTERNAL, 0, "the disk: %s: %s", op->name, why);
}

static void answered(void *arg, const json_t *value, const char *error)
{
	struct vmm_disk_op *op = arg;

	op->left--;
	if (!value)
		fail(op, error);
	finish_if_last(op);
}

void vmm_disk_abort(struct vmm_disk_op *op)
{
	if (!op || event_pending(op->soon, EV_TIMEOUT, NULL))
		return;
	op->left = 0;
	fail(op, "the VMM ended");
	finish_if_last(op);
}

/* Takes over args. */
static void command_fd(struct vmm_disk_op *op, const char *name, json_t *args, int fd,
		       qmp_done_fn *done)
{
	int rc = -1;

	errno = ENOMEM;
	if (args && op->v->qmp)
		rc = qmp_command_fd(op->v->qmp, name, args, fd, QMP_MS, done, op);
	if (rc == 0)
		op->left++;
	else
		fail(op, op->v->qmp ? strerror(errno) : "the VMM is not up");
}

static void command(struct vmm_disk_op *op, const char *name, json_t *args)
{
	command_fd(op, name, args, -1, answered);
}

/* NULL: without memory even for the answer, the VMM is ended. */
static struct vmm_disk_op *op_new(struct vmm *v, const char *name, vmm_done_fn *done, void *arg)
{
	struct vmm_disk_op *op = calloc(1, sizeof(*op));

	if (op)
		op->soon = event_new(v->base, -1, 0, tell, op);
	if (!op || !op->soon) {
		free(op);
		log_error(v->config.id, "out of memory for %s; the VMM is ended", name);
		vmm_kill_process(v);
		return NULL;
	}
	op->v = v;
	op->name = name;
	op->done = done;
	op->arg = arg;
	v->disk_op = op;
	return op;
}

static void node_name(uint32_t number, char out[24])
{
	snprintf(out, 24, "disk-%u", number);
}

static json_t *set_of(uint32_t number)
{
	return json_pack("{s:I}", "fdset-id", (json_int_t)QEMU_DISK_TOP_FDSET + number);
}

/* The number of the one node on this list that is a top. */
static bool find_top(const json_t *devices, uint32_t *top)
{
	const json_t *device;
	size_t i;

	json_array_foreach(devices, i, device)
	{
		const char *name = json_string_value(
			json_object_get(json_object_get(device, "inserted"), "node-name"));

		if (name && sscanf(name, "disk-%u", top) == 1)
			return true;
	}
	return false;
}

static void on_query(void *arg, const json_t *value, const char *error)
{
	struct vmm_disk_op *op = arg;

	if (value && !find_top(value, op->top))
		fail(op, "the VMM does not know of it");
	answered(op, value, error);
}

void vmm_disk_query(struct vmm *v, uint32_t *top, vmm_done_fn *done, void *arg)
{
	struct vmm_disk_op *op = op_new(v, "query-block", done, arg);

	if (!op)
		return;
	op->top = top;
	command_fd(op, op->name, json_object(), -1, on_query);
	finish_if_last(op);
}

static json_t *overlay_options(uint32_t number)
{
	char name[24], file[32];

	node_name(number, name);
	snprintf(file, sizeof(file), "/dev/fdset/%u", QEMU_DISK_TOP_FDSET + number);
	return json_pack("{s:s, s:s, s:n, s:s, s:{s:b}, s:{s:s, s:s, s:s}}", "driver", "qcow2",
			 "node-name", name, "backing", "discard", "unmap", "cache", "no-flush", 1,
			 "file", "driver", "file", "locking", "off", "filename", file);
}

void vmm_disk_prepare(struct vmm *v, uint32_t top, int top_fd, int next_fd, vmm_done_fn *done,
		      void *arg)
{
	struct vmm_disk_op *op = op_new(v, "blockdev-add", done, arg);

	if (!op)
		return;
	command_fd(op, "add-fd", set_of(top), top_fd, answered);
	command_fd(op, "add-fd", set_of(top + 1), next_fd, answered);
	command(op, "blockdev-add", overlay_options(top + 1));
	finish_if_last(op);
}

void vmm_disk_freeze(struct vmm *v, uint32_t top, vmm_done_fn *done, void *arg)
{
	struct vmm_disk_op *op = op_new(v, "blockdev-snapshot", done, arg);
	char from[24], to[24];

	if (!op)
		return;
	node_name(top, from);
	node_name(top + 1, to);
	command(op, op->name, json_pack("{s:s, s:s}", "node", from, "overlay", to));
	finish_if_last(op);
}

void vmm_disk_grow(struct vmm *v, uint32_t top, uint64_t bytes, vmm_done_fn *done, void *arg)
{
	struct vmm_disk_op *op = op_new(v, "block_resize", done, arg);
	char name[24];

	if (!op)
		return;
	node_name(top, name);
	command(op, op->name,
		json_pack("{s:s, s:I}", "node-name", name, "size", (json_int_t)bytes));
	finish_if_last(op);
}

static void forget(struct vmm *v, const char *name, json_t *args)
{
	if (v->qmp && args)
		qmp_command(v->qmp, name, args, QMP_MS, NULL, NULL);
	else
		json_decref(args);
}

void vmm_disk_settle(struct vmm *v, uint32_t number)
{
	forget(v, "remove-fd", set_of(number));
}

void vmm_disk_drop(struct vmm *v, uint32_t number)
{
	char name[24];

	node_name(number, name);
	forget(v, "blockdev-del", json_pack("{s:s}", "node-name", name));
	vmm_disk_settle(v, number);
}
