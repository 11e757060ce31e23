/* SPDX-License-Identifier: Apache-2.0 */
/* pool.set and pool.list. */
#include <string.h>

#include "host/hutchd/api.h"
#include "host/hutchd/log.h"
#include "host/hutchd/warm_pool.h"
#include "protocol/msg_snapshot.h"

static void put_pool(struct mp_buf *b, const struct warm_pool *p)
{
	mp_map_begin(b);
	mp_kv_str(b, "template", p->template_name);
	mp_kv_uint(b, "size", p->size);
	mp_kv_uint(b, "ready", p->ready);
	mp_kv_uint(b, "starting", p->starting);
	mp_kv_uint(b, "taken", p->taken);
	mp_kv_uint(b, "missed", p->missed);
	mp_kv_uint(b, "failed", p->failed);
	mp_kv_text(b, "last_error", p->last_error);
	mp_map_end(b);
}

void api_pool_set(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct warm_pool none = {.size = 0};
	const struct warm_pool *p = NULL;
	struct hutch_error err;
	struct pool_set args;
	struct mp_buf b;

	(void)vm;
	hutch_error_clear(&err);
	if (pool_set_decode(&args, call->params, call->params_len, &err) == 0 &&
	    api_check_template_rights(c, args.template_name, call->method, &err) == 0)
		p = warm_pool_set(c->b, args.template_name, args.size, &err);
	if (err.kind) {
		client_error(c, &err);
		return;
	}
	log_info(c->object, "set the pool of template %s to %u", args.template_name, args.size);
	memcpy(none.template_name, args.template_name, sizeof(none.template_name));
	mp_buf_init(&b, 4096);
	mp_frame_begin(&b);
	put_pool(&b, p ? p : &none);
	client_reply_buf(c, &b);
}

void api_pool_list(struct client *c, const struct msg_call *call, struct vm *vm)
{
	const struct warm_pool *p;
	struct mp_buf b;

	(void)call;
	(void)vm;
	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_key(&b, "pools");
	mp_array_begin(&b);
	TAILQ_FOREACH(p, &c->b->pools, next)
		put_pool(&b, p);
	mp_array_end(&b);
	mp_map_end(&b);
	client_reply_buf(c, &b);
}
