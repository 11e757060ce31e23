/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping a guest, letting it go on, and saving it. */
#include <stdlib.h>

#include "host/hutchd/log.h"
#include "host/hutchd/vmm_priv.h"

/* Without memory even for the answer the VMM is ended, which answers as well. */
static void run_op(struct vmm *v, const char *name, vmm_done_fn *done, void *arg)
{
	if (vmm_ops_command(v->ops, v->state == VMM_UP ? v->qmp : NULL, name, done, arg))
		return;
	log_error(v->config.id, "out of memory for %s; the VMM is ended", name);
	vmm_kill_process(v);
}

void vmm_stop(struct vmm *v, vmm_done_fn *done, void *arg)
{
	run_op(v, "stop", done, arg);
}

void vmm_cont(struct vmm *v, vmm_done_fn *done, void *arg)
{
	run_op(v, "cont", done, arg);
}

bool vmm_is_stopped(const struct vmm *v)
{
	return v->stopped;
}

static void on_saved(void *arg, const struct hutch_error *err, const struct vmm_captured *captured)
{
	struct vmm *v = arg;
	bool freed = false;
	int used = v->state_file.used;

	v->state_file.used = 0;
	v->saving = NULL;
	v->freed = &freed;
	v->captured(v->captured_arg, err, captured);
	if (freed)
		return;
	v->freed = NULL;
	/* After what the callback has asked for: a guest that waits to go on comes first. */
	if (v->qmp && used)
		vmm_saving_tidy(v->qmp, used);
}

static struct qmp *begin_capture(struct vmm *v, vmm_captured_fn *done, void *arg)
{
	if (v->saving) {
		log_error(v->config.id, "a capture was asked for while one is under way");
		abort();
	}
	v->captured = done;
	v->captured_arg = arg;
	return v->state == VMM_UP ? v->qmp : NULL;
}

static void check_capture(struct vmm *v)
{
	if (v->saving)
		return;
	log_error(v->config.id, "out of memory for a capture; the VMM is ended");
	vmm_kill_process(v);
}

void vmm_capture(struct vmm *v, const struct vmm_capture_to *to, vmm_captured_fn *done, void *arg)
{
	struct qmp *q = begin_capture(v, done, arg);

	v->saving = vmm_saving_start(v->base, v->config.rundir_fd, q, to, to->data_fd,
				     &v->state_file, on_saved, v);
	check_capture(v);
}

void vmm_capture_ahead(struct vmm *v, int data_fd, vmm_captured_fn *done, void *arg)
{
	struct qmp *q = begin_capture(v, done, arg);

	v->saving = vmm_saving_start(v->base, v->config.rundir_fd, q, NULL, data_fd, &v->state_file,
				     on_saved, v);
	check_capture(v);
}
