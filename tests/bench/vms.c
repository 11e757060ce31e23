/* SPDX-License-Identifier: Apache-2.0 */
/* VMs made, forked and ended over the wire; see bench.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/limits.h"
#include "protocol/msg_vm.h"
#include "tests/bench/bench.h"

#define MAX_CHILDREN 64
#define BEFORE_US    100000 /* ticks are watched for so long before a fork, and after it */

struct vms {
	size_t count;
	char ids[MAX_CHILDREN][40];
};

static void request(struct conn *c, const char *method, const char *vm, const struct mp_buf *params)
{
	struct mp_buf out;

	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_params(&out, method, vm, params, FRAME_END);
	send_all(c, out.data, out.len);
	mp_buf_free(&out);
}

static void take_id(struct mp_doc *doc, const msgpack_object *map, struct vms *out)
{
	struct hutch_error err = {0};
	struct mp_reader r;

	mp_reader_init(&r, doc, map, "a VM", &err);
	mp_get_strbuf(&r, "id", out->ids[out->count], sizeof(out->ids[0]));
	if (out->ids[out->count][0] == '\0')
		die("a VM without an id");
	out->count++;
}

/* The RESULT of vm.create or vm.fork. */
static void take_vms(struct conn *c, struct vms *out)
{
	struct hutch_error err = {0};
	struct frame f = peek(c);
	const msgpack_object *list;
	struct mp_reader r;
	struct mp_doc doc;

	out->count = 0;
	if (f.type != FRAME_RESULT) {
		finish(c, false); /* an ERROR: tells it, and ends */
		die("no result");
	}
	if (mp_doc_parse(&doc, payload(c), f.length, &err) < 0)
		die(err.message);
	mp_reader_init(&r, &doc, &doc.root, "a result", &err);
	list = mp_find(&r, "vms");
	if (list == NULL)
		take_id(&doc, &doc.root, out);
	for (uint32_t i = 0; list != NULL && list->type == MSGPACK_OBJECT_ARRAY &&
			     i < list->via.array.size && i < MAX_CHILDREN;
	     i++)
		take_id(&doc, &list->via.array.ptr[i], out);
	mp_doc_free(&doc);
	next(c, &f);
}

static void end_all(struct conn *c, const struct vms *vms)
{
	for (size_t i = 0; i < vms->count; i++) {
		request(c, "vm.kill", vms->ids[i], NULL);
		finish(c, false);
	}
}

static double exec_ms(struct conn *c, const char *vm, const struct exec_start *start)
{
	struct mp_buf out;
	double t = now_us();

	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_call(&out, "exec.start", vm, start, FRAME_END);
	send_all(c, out.data, out.len);
	mp_buf_free(&out);
	finish(c, true);
	return (now_us() - t) / 1e3;
}

void vm_create_ping(struct conn *c, const char *template_name, long n,
		    const struct exec_start *start)
{
	struct vm_create create = {.ttl_ms = 60000};
	struct mp_buf params;
	struct vms vms;

	snprintf(create.template_name, sizeof(create.template_name), "%s", template_name);
	mp_buf_init(&params, HUTCH_MAX_CALL);
	vm_create_encode_params(&params, &create);
	for (long i = 0; i < n; i++) {
		double t = now_us();

		request(c, "vm.create", "", &params);
		take_vms(c, &vms);
		request(c, "ping", vms.ids[0], NULL);
		finish(c, false);
		t = (now_us() - t) / 1e3;
		printf("%.4f %.4f\n", t, exec_ms(c, vms.ids[0], start));
		end_all(c, &vms);
	}
	mp_buf_free(&params);
}

static void send_fork(struct conn *c, const char *vm, long count)
{
	struct mp_buf params;

	mp_buf_init(&params, HUTCH_MAX_CALL);
	mp_map_begin(&params);
	mp_kv_uint(&params, "count", (uint64_t)count);
	mp_map_end(&params);
	request(c, "vm.fork", vm, &params);
	mp_buf_free(&params);
}

void fork_exec(const char *socket, const char *vm, long n, long count,
	       const struct exec_start *start)
{
	struct conn *c[MAX_CHILDREN] = {0};
	struct mp_buf out;
	struct vms vms;

	if (count < 1 || count > MAX_CHILDREN)
		die("count");
	for (long i = 0; i < count; i++)
		c[i] = dial(socket);
	mp_buf_init(&out, HUTCH_MAX_CALL);
	for (long i = 0; i < n; i++) {
		double t = now_us();

		send_fork(c[0], vm, count);
		take_vms(c[0], &vms);
		for (size_t k = 0; k < vms.count; k++) {
			mp_buf_reset(&out);
			encode_call(&out, "exec.start", vms.ids[k], start, FRAME_END);
			send_all(c[k], out.data, out.len);
		}
		for (size_t k = 0; k < vms.count; k++)
			finish(c[k], true);
		printf("%.4f\n", (now_us() - t) / 1e3);
		end_all(c[0], &vms);
	}
	mp_buf_free(&out);
}

/* Watches the ticks on a until stop (us), or b has something to say; the longest time without any, in *gap. */
static void watch_ticks(struct conn *a, struct conn *b, double *last, double *gap, double stop)
{
	static uint8_t dots[65536];
	struct pollfd fds[2] = {{.fd = a->fd, .events = POLLIN},
				{.fd = b ? b->fd : -1, .events = POLLIN}};

	while (stop == 0 || now_us() < stop) {
		double now;

		if (poll(fds, 2, 20) < 0)
			die("poll");
		now = now_us();
		if (fds[0].revents != 0) {
			if (recv(a->fd, dots, sizeof(dots), 0) <= 0)
				die("the ticks ended");
			if (now - *last > *gap)
				*gap = now - *last;
			*last = now;
		}
		if (fds[1].revents != 0)
			return;
	}
}

void fork_gap(const char *socket, const char *vm, long n, const struct exec_start *start)
{
	struct conn *a = dial(socket), *b = dial(socket);
	double last, gap = 0, usual = 0;
	struct mp_buf out;
	struct vms vms;
	struct frame f;

	mp_buf_init(&out, HUTCH_MAX_CALL);
	encode_call(&out, "exec.start", vm, start, FRAME_END);
	send_all(a, out.data, out.len);
	f = peek(a);
	if (f.type != FRAME_STDOUT)
		die("no ticks");
	last = now_us();
	for (long i = 0; i < n; i++) {
		usual = gap = 0;
		last = now_us();
		watch_ticks(a, NULL, &last, &usual, now_us() + BEFORE_US);
		send_fork(b, vm, 1);
		watch_ticks(a, b, &last, &gap, 0);
		take_vms(b, &vms);
		watch_ticks(a, NULL, &last, &gap, now_us() + BEFORE_US);
		printf("%.4f %.4f\n", gap / 1e3, usual / 1e3);
		end_all(b, &vms);
	}
	mp_buf_free(&out);
	close(a->fd);
}

void park_wake(struct conn *c, const char *vm, long n)
{
	for (long i = 0; i < n; i++) {
		double t = now_us(), parked;

		request(c, "vm.park", vm, NULL);
		finish(c, false);
		parked = now_us();
		request(c, "ping", vm, NULL);
		finish(c, false);
		printf("%.4f %.4f\n", (parked - t) / 1e3, (now_us() - parked) / 1e3);
	}
}
