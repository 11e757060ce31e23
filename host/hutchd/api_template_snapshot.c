/* SPDX-License-Identifier: Apache-2.0 */
/*
 * template.snapshot: the template is booted as a VM that nobody sees, its agent runs what a first call would run, and what is
 * then captured is kept with the template. The VM ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/api.h"
#include "host/hutchd/capture.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/verify.h"
#include "host/hutchd/zygote.h"
#include "protocol/msg_snapshot.h"

#define WARM_MS 30000u
#define TTL_MS	(10u * 60 * 1000) /* of the VM, in case that it is forgotten */

struct template_call {
	struct deferred deferred;
	struct broker *b;
	struct client *client; /* NULL: gone */
	struct vm *vm;
	struct vm_waiter waiter;
	struct guest_call *warm;
	struct capture *capture;
	struct verify *verify;
};

static void destroy(struct deferred *d)
{
	free(container_of(d, struct template_call, deferred));
}

static void retire(struct template_call *t, const char *why)
{
	vm_unwait(&t->waiter);
	guest_call_cancel(t->warm);
	verify_cancel(t->verify);
	if (t->capture)
		capture_end(t->capture);
	t->capture = NULL;
	if (t->vm)
		vm_end(t->vm, why);
	loop_defer(&t->b->loop, &t->deferred, destroy);
}

static void fail(struct template_call *t, const struct hutch_error *err)
{
	if (t->client)
		client_error(t->client, err);
	retire(t, "its template's snapshot failed");
}

/* A capture that is under way ends with the VM, and tells so. */
static void on_gone(void *call)
{
	struct template_call *t = call;

	t->client = NULL;
	if (t->vm && t->vm->capture && !t->capture)
		vm_end(t->vm, "the client that asked for it went away");
	else
		retire(t, "the client that asked for it went away");
}

static const struct call_ops call_ops = {.gone = on_gone};

static void on_digests(void *arg, const struct hutch_error *err, uint64_t bytes)
{
	struct template_call *t = arg;
	struct capture *k = t->capture;
	struct client *c = t->client;
	struct hutch_error failure;
	struct template tpl;

	(void)bytes;
	t->verify = NULL;
	hutch_error_clear(&failure);
	if (err)
		failure = *err;
	else if (image_save(k->im, k->dirfd, true) < 0)
		hutch_error_set(&failure, HUTCH_E_IO, errno, "cannot write the manifest: %s",
				strerror(errno));
	else if (template_snapshot_publish(t->b, k->im, k->vm->rundir_fd, VM_CAPTURE_DIR,
					   &failure) == 0)
		template_load(&tpl, t->b->templates_fd, t->b->config->template_dir,
			      k->im->template_name, &failure);
	if (failure.kind) {
		fail(t, &failure);
		return;
	}
	log_info("broker", "template %s has a snapshot", tpl.name);
	zygote_is_coming(t->b, &tpl, k->im);
	retire(t, "its template's snapshot is taken");
	api_reply_template(c, &tpl);
}

static void on_captured(void *arg, const struct hutch_error *err, struct capture *k)
{
	struct template_call *t = arg;
	struct hutch_error failure;

	t->capture = k;
	if (err || !t->client) {
		fail(t, err);
		return;
	}
	hutch_error_clear(&failure);
	t->verify = verify_start(t->b->verified, t->b->worker, k->im, k->dirfd, VERIFY_TAKE,
				 on_digests, t, &failure);
	if (!t->verify)
		fail(t, &failure);
}

static void on_warm(void *arg, const struct hutch_error *err, const uint8_t *payload, size_t len)
{
	struct template_call *t = arg;
	struct hutch_error failure;

	(void)payload;
	(void)len;
	t->warm = NULL;
	if (err) {
		fail(t, err);
		return;
	}
	hutch_error_clear(&failure);
	if (!capture_start(t->vm, CAPTURE_LAST, on_captured, t, &failure))
		fail(t, &failure);
}

static void on_ready(struct vm_waiter *w, const struct hutch_error *err)
{
	static const struct msg_call warm = {.method = "agent.warm"};
	struct template_call *t = container_of(w, struct template_call, waiter);
	struct hutch_error failure;

	if (err) {
		fail(t, err);
		return;
	}
	t->warm = guest_call_start(&t->vm->pool, NULL, &warm, WARM_MS, on_warm, t);
	if (t->warm)
		return;
	hutch_error_clear(&failure);
	hutch_error_set(&failure, HUTCH_E_INTERNAL, ENOMEM, "out of memory for agent.warm");
	fail(t, &failure);
}

static int start(struct template_call *t, const struct msg_call *call, struct hutch_error *err)
{
	struct vm_origin origin = VM_ORIGIN_NONE;
	struct template_snapshot args;
	struct template tpl;
	struct vm_spec spec = {.kind = VM_TEMPLATE,
			       .owner = t->b->uid,
			       .tpl = &tpl,
			       .name = "",
			       .key = "",
			       .ttl_ms = TTL_MS,
			       .cold_reason = ""};

	if (template_snapshot_decode(&args, call->params, call->params_len, err) < 0 ||
	    api_check_template_rights(t->client, args.name, call->method, err) < 0 ||
	    template_load(&tpl, t->b->templates_fd, t->b->config->template_dir, args.name, err) < 0)
		return -1;
	spec.memory_mib = args.memory_mib;
	spec.vcpus = args.vcpus;
	spec.timeout_ms = args.timeout_ms;
	t->vm = vm_make(t->b, &spec, &origin, err);
	if (!t->vm)
		return -1;
	t->waiter = (struct vm_waiter){.for_ready = true, .done = on_ready};
	vm_wait(t->vm, &t->waiter);
	return 0;
}

void api_template_snapshot(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct template_call *t = calloc(1, sizeof(*t));
	struct hutch_error err;

	(void)vm;
	hutch_error_clear(&err);
	if (!t) {
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a snapshot");
		client_error(c, &err);
		return;
	}
	t->b = c->b;
	t->client = c;
	client_begin(c, &call_ops, t);
	if (start(t, call, &err) < 0)
		fail(t, &err);
}
