/* SPDX-License-Identifier: Apache-2.0 */
/* One call between a client and a VM's agent. */
#include "host/hutchd/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uuid.h>

#include "host/hutchd/log.h"

struct relay {
	struct deferred deferred;
	struct client *client; /* NULL once it is over */
	struct vm *vm;
	const struct method *method;
	struct guest_waiter waiter;
	struct guest_link *link; /* NULL: waiting for one, or lost */
	struct mp_buf call;	 /* the CALL frame, while it may have to be sent (again) */
	char id[HUTCH_MAX_ID + 1];
	bool cancel;	 /* exec.kill when the client goes */
	bool sent;	 /* the CALL was written to a link */
	bool used_link;	 /* to one that had carried calls before */
	bool input_sent; /* input followed it */
	bool repeated;
	struct vm_waiter death; /* in the grace after a loss */
	struct event grace;
};

static void destroy(struct deferred *d)
{
	struct relay *r = container_of(d, struct relay, deferred);

	mp_buf_free(&r->call);
	free(r);
}

/* Off the client, the pool and the VM; the link is the caller's affair. */
static void retire(struct relay *r)
{
	r->client = NULL;
	r->link = NULL;
	guest_pool_cancel(&r->waiter);
	vm_unwait(&r->death);
	event_del(&r->grace);
	vm_unuse(r->vm);
	loop_defer(&r->vm->b->loop, &r->deferred, destroy);
}

static void answer_error(struct relay *r, const struct hutch_error *err)
{
	struct client *c = r->client;

	retire(r);
	stream_resume(&c->s);
	client_error(c, err);
}

static void answer_loss(struct relay *r, enum hutch_error_kind kind, const char *why)
{
	struct hutch_error err;

	hutch_error_clear(&err);
	hutch_error_set(&err, kind, 0, "%s on VM %s: %s", r->method->name, r->vm->r.id, why);
	answer_error(r, &err);
}

static void send_call(struct relay *r, struct guest_link *link);

static void get_link(struct relay *r)
{
	struct guest_link *link = guest_pool_get(&r->vm->pool, &r->waiter);

	if (link)
		send_call(r, link);
	else if (!r->client->ends.caller_ended)
		stream_pause(&r->client->s);
}

static void on_frame(void *arg, const struct frame *f, const uint8_t *raw)
{
	struct relay *r = arg;
	struct guest_link *link = r->link;
	struct client *c = r->client;
	size_t len = HUTCH_FRAME_HEADER + (size_t)f->length;

	if (f->type != FRAME_RESULT && f->type != FRAME_ERROR) {
		client_forward(c, &link->s, raw, len);
		return;
	}
	client_reply(c, raw, len);
	stream_resume(&c->s);
	retire(r);
	/* The agent closes a connection whose bytes it could not follow; the next call must not meet its end. */
	if (f->type == FRAME_ERROR) {
		guest_link_close(link);
		return;
	}
	guest_link_end_input(link);
	guest_pool_put(&r->vm->pool, link);
}

static bool may_repeat(const struct relay *r)
{
	return r->used_link && !r->repeated && !r->input_sent &&
	       (r->method->flags & METHOD_REPEAT) && r->vm->state == VM_RUNNING;
}

static void on_lost(void *arg, const struct hutch_error *err)
{
	struct relay *r = arg;
	bool answered = r->link->answered;

	r->link = NULL;
	if (err->kind == HUTCH_E_VM_DIED) {
		answer_error(r, err);
	} else if (err->kind == HUTCH_E_OUTCOME_UNKNOWN) {
		answer_loss(r, err->kind, err->message);
	} else if (err->kind == HUTCH_E_INTERNAL) {
		log_warn(r->vm->object, "%s: %s", r->method->name, err->message);
		answer_loss(r, HUTCH_E_INTERNAL, err->message);
	} else if (!answered && may_repeat(r)) {
		log_info(r->vm->object, "%s: stale connection, sent again", r->method->name);
		r->repeated = true;
		get_link(r);
	} else {
		stream_resume(&r->client->s);
		vm_wait(r->vm, &r->death);
		loop_timer(&r->grace, RELAY_GRACE_MS);
	}
}

static void on_death(struct vm_waiter *w, const struct hutch_error *none)
{
	struct relay *r = container_of(w, struct relay, death);
	struct hutch_error err;

	(void)none;
	vm_died_error(r->vm, &err);
	answer_error(r, &err);
}

static void on_grace(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;

	(void)fd;
	(void)what;
	if (r->vm->state >= VM_STOPPING)
		on_death(&r->death, NULL);
	else
		answer_loss(r, HUTCH_E_OUTCOME_UNKNOWN,
			    "the connection to the agent was lost before the answer");
}

static void on_link_drained(void *arg)
{
	struct relay *r = arg;

	stream_resume(&r->client->s);
}

static const struct link_user link_user = {.frame = on_frame,
					   .lost = on_lost,
					   .drained = on_link_drained};

static void send_call(struct relay *r, struct guest_link *link)
{
	r->link = link;
	r->used_link = link->used;
	r->sent = true;
	guest_link_take(link, &link_user, r);
	guest_link_send(link, r->call.data, r->call.len);
	if (!may_repeat(r))
		mp_buf_free(&r->call);
	stream_resume(&r->client->s);
}

static void on_got(struct guest_waiter *w, struct guest_link *link)
{
	send_call(container_of(w, struct relay, waiter), link);
}

static void on_no_link(struct guest_waiter *w, const struct hutch_error *err)
{
	struct relay *r = container_of(w, struct relay, waiter);

	if (err->kind == HUTCH_E_OUTCOME_UNKNOWN && !r->sent)
		answer_loss(r, HUTCH_E_NOT_DISPATCHED, err->message);
	else
		answer_error(r, err);
}

static void on_input(void *call, const struct frame *f, const uint8_t *raw)
{
	struct relay *r = call;

	if (!r->link)
		return;
	r->input_sent = true;
	guest_link_pass(r->link, &r->client->s, raw, HUTCH_FRAME_HEADER + (size_t)f->length);
}

static void on_client_drained(void *call)
{
	struct relay *r = call;

	if (r->link)
		stream_resume(&r->link->s);
}

static void on_canceled(void *arg, const struct hutch_error *err, const uint8_t *payload,
			size_t len)
{
	struct vm *vm = arg;

	(void)payload;
	(void)len;
	if (err && err->kind != HUTCH_E_VM_DIED && err->kind != HUTCH_E_NOT_FOUND)
		log_warn(vm->object, "exec.kill for a client that went: %s", err->message);
}

static void on_client_gone(void *call)
{
	struct relay *r = call;
	struct msg_call kill = {.method = "exec.kill"};
	struct vm *vm = r->vm;
	bool cancel = r->cancel && r->sent;

	memcpy(kill.id, r->id, sizeof(kill.id));
	guest_link_close(r->link);
	retire(r);
	/* A broker that ends says nothing about the execs of its clients: they can be attached again. */
	if (!cancel || vm->state >= VM_STOPPING || vm->b->stopping)
		return;
	log_info(vm->object, "exec %s: its client has gone, killing it", kill.id);
	if (!guest_call_start(&vm->pool, NULL, &kill, RELAY_CANCEL_MS, on_canceled, vm))
		log_error(vm->object, "exec %s: out of memory to kill it", kill.id);
}

static const struct call_ops call_ops = {.input = on_input,
					 .gone = on_client_gone,
					 .drained = on_client_drained};

/* A bool of the params. What is wrong with them is the agent's to say. */
static bool param_true(const struct msg_call *call, const char *key)
{
	struct hutch_error err;
	struct mp_reader reader;
	struct mp_doc doc;
	bool value = false;

	hutch_error_clear(&err);
	if (!call->params || mp_doc_parse(&doc, call->params, call->params_len, &err) < 0)
		return false;
	mp_reader_init(&reader, &doc, &doc.root, "params", &err);
	mp_get_bool(&reader, key, &value);
	mp_doc_free(&doc);
	return value;
}

static void new_id(char *out, size_t size)
{
	char text[HUTCH_UUID_LEN + 1];
	uuid_t id;

	uuid_generate_random(id);
	uuid_unparse_lower(id, text);
	snprintf(out, size, "%s", text);
}

/* The envelope for the agent: no vm; an id and a key where the method wants them. */
static int rewrite(struct relay *r, const struct msg_call *call, unsigned flags)
{
	struct msg_call out = *call;

	out.vm[0] = '\0';
	if (r->method->flags & METHOD_START) {
		if (!out.id[0])
			new_id(out.id, sizeof(out.id));
		if (!out.key[0])
			new_id(out.key, sizeof(out.key));
		r->cancel = !param_true(call, "detach");
	} else if (r->method->flags & METHOD_ATTACH) {
		r->cancel = param_true(call, "owner");
	}
	memcpy(r->id, out.id, sizeof(r->id));
	mp_buf_init(&r->call, HUTCH_MAX_CALL + HUTCH_FRAME_HEADER);
	return msg_call_encode(&r->call, &out, flags);
}

static struct relay *relay_new(struct client *c, const struct method *m, struct vm *vm)
{
	struct relay *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->client = c;
	r->vm = vm;
	r->method = m;
	r->waiter.got = on_got;
	r->waiter.failed = on_no_link;
	r->death.done = on_death;
	event_assign(&r->grace, c->b->loop.base, -1, 0, on_grace, r);
	return r;
}

void relay_start(struct client *c, const struct method *m, const struct msg_call *call,
		 struct vm *vm, unsigned flags)
{
	struct hutch_error err;
	struct relay *r;

	if (vm->state >= VM_STOPPING) {
		vm_died_error(vm, &err);
		client_error(c, &err);
		return;
	}
	hutch_error_clear(&err);
	if (vm->state == VM_PAUSED) {
		hutch_error_set(&err, HUTCH_E_STATE, 0, "VM %s is paused: vm.resume lets it go on",
				vm->r.id);
		client_error(c, &err);
		return;
	}
	r = relay_new(c, m, vm);
	if (!r || rewrite(r, call, flags) < 0) {
		hutch_error_set(&err, HUTCH_E_TOO_LARGE, 0,
				"%s on VM %s: the call does not fit in a frame", m->name, vm->r.id);
		client_error(c, &err);
		if (r)
			destroy(&r->deferred);
		return;
	}
	client_begin(c, &call_ops, r);
	vm_use(vm);
	get_link(r);
}
