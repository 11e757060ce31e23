/* SPDX-License-Identifier: Apache-2.0 */
/* template.list and template.remove. Making templates is rootfs/build's. */
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/api.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/template.h"

static void put_snapshot(struct mp_buf *b, struct broker *broker, const struct template *t)
{
	struct hutch_error err;
	struct image *im;
	int dirfd, fits;

	hutch_error_clear(&err);
	im = template_snapshot_open(broker, t->name, &dirfd, &err);
	if (!im)
		return;
	fits = snapshot_fits(broker, im, api_snapshot_accel(broker, im), &err);
	mp_key(b, "snapshot");
	mp_map_begin(b);
	mp_kv_uint(b, "bytes", image_bytes(im, dirfd, NULL));
	mp_kv_uint(b, "created_ms", im->created_ms);
	mp_kv_uint(b, "memory_mib", im->traits.memory_mib);
	mp_kv_uint(b, "vcpus", im->traits.vcpus);
	mp_kv_bool(b, "fits", fits == 0);
	if (fits < 0)
		mp_kv_str(b, "reason", err.message);
	mp_map_end(b);
	fd_close(&dirfd);
	free(im);
}

static void put_template(struct mp_buf *b, struct broker *broker, const struct template *t)
{
	mp_map_begin(b);
	mp_kv_str(b, "name", t->name);
	mp_kv_uint(b, "bytes", t->bytes);
	mp_kv_uint(b, "created_ms", t->created_ms);
	mp_kv_str(b, "kernel", t->kernel_version);
	mp_kv_uint(b, "memory_mib", t->memory_mib);
	mp_kv_uint(b, "vcpus", t->vcpus);
	mp_kv_uint_unless(b, "disk_mib", t->disk_mib, 0);
	put_snapshot(b, broker, t);
	mp_map_end(b);
}

void api_reply_template(struct client *c, const struct template *t)
{
	struct mp_buf b;

	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	put_template(&b, c->b, t);
	client_reply_buf(c, &b);
}

void api_template_list(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct template *list = NULL;
	struct hutch_error err;
	size_t count = 0;
	struct mp_buf b;

	(void)call;
	(void)vm;
	hutch_error_clear(&err);
	if (template_list(c->b->templates_fd, c->b->config->template_dir, &list, &count, &err) <
	    0) {
		client_error(c, &err);
		return;
	}
	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_key(&b, "templates");
	mp_array_begin(&b);
	for (size_t i = 0; i < count; i++)
		put_template(&b, c->b, &list[i]);
	mp_array_end(&b);
	mp_map_end(&b);
	free(list);
	client_reply_buf(c, &b);
}

static const struct vm *template_user(const struct broker *b, const char *name)
{
	const struct vm *vm;

	TAILQ_FOREACH(vm, &b->vms, next)
		if (strcmp(vm->r.template_name, name) == 0)
			return vm;
	return NULL;
}

int api_check_template_rights(const struct client *c, const char *name, const char *method,
			      struct hutch_error *err)
{
	if (c->admin || c->uid == c->b->uid)
		return 0;
	return hutch_error_set(err, HUTCH_E_DENIED, 0,
			       "%s: template '%s' is the broker's: uid %u may not change it",
			       method, name, (unsigned)c->uid);
}

void api_template_remove(struct client *c, const struct msg_call *call, struct vm *vm)
{
	char name[HUTCH_MAX_TEMPLATE_NAME + 1];
	const struct vm *in_use;
	struct hutch_error err;
	int rc;

	(void)vm;
	hutch_error_clear(&err);
	rc = template_remove_decode(name, call->params, call->params_len, &err);
	if (rc == 0)
		rc = api_check_template_rights(c, name, call->method, &err);
	in_use = rc == 0 ? template_user(c->b, name) : NULL;
	if (in_use)
		rc = hutch_error_set(&err, HUTCH_E_STATE, 0, "template '%s' is used by VM %s", name,
				     in_use->r.id);
	if (rc == 0)
		rc = template_remove(c->b->templates_fd, name, &err);
	if (rc < 0) {
		client_error(c, &err);
		return;
	}
	log_info(c->object, "removed template %s", name);
	client_reply_empty(c);
}
