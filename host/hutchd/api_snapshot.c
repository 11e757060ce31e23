/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot.create, snapshot.info, snapshot.list, snapshot.delete, snapshot.verify. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/hutchd/api.h"
#include "host/hutchd/capture.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/snapshot.h"
#include "host/hutchd/verify.h"
#include "protocol/msg_snapshot.h"

static void put_number_text(struct mp_buf *b, const char *key, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	mp_kv_str(b, key, text);
}

static void put_must_match(struct mp_buf *b, const struct image *im)
{
	mp_key(b, "must_match");
	mp_map_begin(b);
	mp_kv_str(b, "vmm", im->traits.vmm);
	mp_kv_str(b, "machine", im->traits.machine);
	mp_kv_str(b, "cpu", im->traits.cpu);
	mp_kv_str(b, "accel", im->traits.accel);
	put_number_text(b, "tsc_khz", im->traits.tsc_khz);
	put_number_text(b, "memory_mib", im->traits.memory_mib);
	put_number_text(b, "vcpus", im->traits.vcpus);
	if (strcmp(im->traits.accel, vmm_accel_name(ACCEL_KVM)) == 0)
		mp_kv_str(b, "host_kernel", im->host_kernel);
	put_number_text(b, "agent_proto", im->agent_proto);
	if (im->root.file[0])
		mp_kv_str(b, "root", im->root.file);
	mp_map_end(b);
}

static void put_files(struct mp_buf *b, const struct image *im, int dirfd)
{
	char name[IMAGE_FILE_NAME];
	struct stat st;

	mp_key(b, "files");
	mp_array_begin(b);
	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		image_file_name(i, name);
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			st.st_blocks = 0;
		mp_map_begin(b);
		mp_kv_str(b, "name", name);
		mp_kv_uint(b, "bytes", (uint64_t)st.st_blocks * 512);
		mp_kv_str(b, "sha256", im->digests[i]);
		mp_map_end(b);
	}
	mp_array_end(b);
}

/* The members of snapshot.info, into a map that is open. */
static void put_snapshot(struct mp_buf *b, struct broker *broker, const struct image *im, int dirfd,
			 bool brief)
{
	const struct vm *vm = NULL;
	uint64_t own, bytes = image_bytes(im, dirfd, &own);

	mp_kv_str(b, "name", im->name);
	mp_kv_uint(b, "owner_uid", im->owner_uid);
	mp_kv_uint(b, "created_ms", im->created_ms);
	mp_kv_str(b, "template", im->template_name);
	mp_kv_uint(b, "memory_mib", im->traits.memory_mib);
	mp_kv_uint(b, "vcpus", im->traits.vcpus);
	mp_kv_uint_unless(b, "disk_mib", im->disk_mib, 0);
	mp_kv_bool(b, "secrets", im->secrets);
	mp_kv_str(b, "vm", im->vm);
	mp_kv_uint(b, "generation", im->generation);
	mp_kv_uint(b, "layers", im->nlayers);
	mp_kv_uint(b, "bytes", bytes);
	mp_kv_uint(b, "own_bytes", own);
	mp_key(b, "users");
	mp_array_begin(b);
	while ((vm = snapshot_user(broker, im, vm)) != NULL)
		mp_put_str(b, vm->r.id);
	mp_array_end(b);
	mp_kv_bool(b, "verified", verify_is_known(broker->verified, im, dirfd));
	if (brief)
		return;
	put_must_match(b, im);
	put_files(b, im, dirfd);
}

/* snapshot.create and snapshot.verify: what goes on while the client waits. */
struct snapshot_call {
	struct deferred deferred;
	struct broker *b;
	struct client *client; /* NULL: gone */
	struct snapshot_create args;
	struct capture *capture; /* snapshot.create: after it was captured */
	struct image *im;	 /* snapshot.verify: owned */
	int dirfd;
	struct verify *verify;
	uint64_t begun_us;
};

static void destroy(struct deferred *d)
{
	struct snapshot_call *s = container_of(d, struct snapshot_call, deferred);

	free(s->im);
	free(s);
}

static void retire(struct snapshot_call *s)
{
	verify_cancel(s->verify);
	if (s->capture)
		capture_end(s->capture);
	s->capture = NULL;
	fd_close(&s->dirfd);
	loop_defer(&s->b->loop, &s->deferred, destroy);
}

static void fail(struct snapshot_call *s, const struct hutch_error *err)
{
	struct client *c = s->client;

	if (c)
		client_error(c, err);
	retire(s);
}

static void on_gone(void *call)
{
	struct snapshot_call *s = call;

	s->client = NULL;
	if (s->verify) /* else it is being captured, and ends after that */
		retire(s);
}

static const struct call_ops call_ops = {.gone = on_gone};

static struct snapshot_call *call_new(struct client *c)
{
	struct snapshot_call *s = calloc(1, sizeof(*s));
	struct hutch_error err;

	if (!s) {
		hutch_error_clear(&err);
		hutch_error_set(&err, HUTCH_E_INTERNAL, ENOMEM, "out of memory for a snapshot");
		client_error(c, &err);
		return NULL;
	}
	s->b = c->b;
	s->client = c;
	s->dirfd = -1;
	s->begun_us = clock_us();
	client_begin(c, &call_ops, s);
	return s;
}

static void publish(struct snapshot_call *s)
{
	struct capture *k = s->capture;
	struct client *c = s->client;
	struct hutch_error err;
	struct mp_buf b;

	hutch_error_clear(&err);
	if (image_save(k->im, k->dirfd, true) < 0)
		hutch_error_set(&err, HUTCH_E_IO, errno, "cannot write the manifest: %s",
				strerror(errno));
	else if (limits_check_snapshot(s->b, k->im->owner_uid, k->dirfd, &err) == 0)
		snapshot_publish(s->b, k->im, k->vm->rundir_fd, VM_CAPTURE_DIR, &err);
	if (err.kind) {
		fail(s, &err);
		return;
	}
	log_info(k->vm->object, "kept as snapshot '%s' of uid %u", k->im->name,
		 (unsigned)k->im->owner_uid);
	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	put_snapshot(&b, s->b, k->im, k->dirfd, false);
	mp_kv_uint(&b, "pause_us", k->pause_us);
	mp_map_end(&b);
	retire(s);
	client_reply_buf(c, &b);
}

static void on_digests(void *arg, const struct hutch_error *err, uint64_t bytes)
{
	struct snapshot_call *s = arg;
	struct vm *vm = s->capture->vm;
	struct hutch_error died;

	(void)bytes;
	s->verify = NULL;
	if (vm->state >= VM_STOPPING) {
		vm_died_error(vm, &died);
		fail(s, &died);
	} else if (err) {
		fail(s, err);
	} else {
		publish(s);
	}
}

static void on_captured(void *arg, const struct hutch_error *err, struct capture *k)
{
	struct snapshot_call *s = arg;
	struct hutch_error failure;

	s->capture = k;
	if (err || !s->client) {
		fail(s, err);
		return;
	}
	hutch_error_clear(&failure);
	memcpy(k->im->name, s->args.name, sizeof(k->im->name));
	k->im->owner_uid = s->client->uid;
	s->verify = verify_start(s->b->verified, s->b->worker, k->im, k->dirfd, VERIFY_TAKE,
				 on_digests, s, &failure);
	if (!s->verify)
		fail(s, &failure);
}

int api_check_secrets(const struct vm *vm, bool allowed, const char *method,
		      struct hutch_error *err)
{
	if (!vm->r.secrets || allowed)
		return 0;
	return hutch_error_set(err, HUTCH_E_DENIED, 0,
			       "%s: VM %s holds secrets, which would be in every copy of it; "
			       "allow_secrets allows it",
			       method, vm->r.id);
}

void api_snapshot_create(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct snapshot_call *s = call_new(c);
	struct hutch_error err;

	hutch_error_clear(&err);
	if (!s)
		return;
	if (snapshot_create_decode(&s->args, call->params, call->params_len, &err) < 0 ||
	    api_check_secrets(vm, s->args.allow_secrets, call->method, &err) < 0 ||
	    snapshot_check_name(c->b, c->uid, s->args.name, &err) < 0 ||
	    limits_check_snapshot(c->b, c->uid, -1, &err) < 0 ||
	    !capture_start(vm, CAPTURE_GO_ON, on_captured, s, &err))
		fail(s, &err);
}

/* The snapshot that the call names. */
static struct image *find(struct client *c, const struct msg_call *call, int *dirfd,
			  struct hutch_error *err)
{
	char name[HUTCH_MAX_SNAPSHOT_NAME + 1];

	*dirfd = -1;
	hutch_error_clear(err);
	if (snapshot_name_decode(name, call->method, call->params, call->params_len, err) < 0)
		return NULL;
	return snapshot_find(c->b, c->uid, name, dirfd, err);
}

void api_snapshot_info(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;
	struct image *im;
	struct mp_buf b;
	int dirfd;

	(void)vm;
	im = find(c, call, &dirfd, &err);
	if (!im) {
		client_error(c, &err);
		return;
	}
	mp_buf_init(&b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	put_snapshot(&b, c->b, im, dirfd, false);
	mp_map_end(&b);
	fd_close(&dirfd);
	free(im);
	client_reply_buf(c, &b);
}

struct put_list {
	struct mp_buf b;
	struct broker *broker;
};

static void put_one(void *arg, const struct image *im, int dirfd)
{
	struct put_list *l = arg;

	mp_map_begin(&l->b);
	put_snapshot(&l->b, l->broker, im, dirfd, true);
	mp_map_end(&l->b);
}

void api_snapshot_list(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct put_list l = {.broker = c->b};

	(void)call;
	(void)vm;
	mp_buf_init(&l.b, HUTCH_MAX_RESULT + HUTCH_FRAME_HEADER);
	mp_frame_begin(&l.b);
	mp_map_begin(&l.b);
	mp_key(&l.b, "snapshots");
	mp_array_begin(&l.b);
	snapshot_list(c->b, c->uid, put_one, &l);
	mp_array_end(&l.b);
	mp_map_end(&l.b);
	client_reply_buf(c, &l.b);
}

void api_snapshot_delete(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct hutch_error err;
	struct image *im;
	int dirfd;

	(void)vm;
	im = find(c, call, &dirfd, &err);
	fd_close(&dirfd);
	if (!im || snapshot_delete(c->b, im, &err) < 0) {
		client_error(c, &err);
	} else {
		log_info(c->object, "deleted snapshot '%s' of uid %u", im->name,
			 (unsigned)im->owner_uid);
		client_reply_empty(c);
	}
	free(im);
}

static void on_verified(void *arg, const struct hutch_error *err, uint64_t bytes)
{
	struct snapshot_call *s = arg;
	struct client *c = s->client;
	struct hutch_error named;
	struct mp_buf b;

	s->verify = NULL;
	if (err) {
		named = *err;
		hutch_error_prefix(&named, "snapshot '%s'", s->im->name);
		fail(s, &named);
		return;
	}
	mp_buf_init(&b, 256);
	mp_frame_begin(&b);
	mp_map_begin(&b);
	mp_kv_uint(&b, "bytes", bytes);
	mp_kv_uint(&b, "duration_us", clock_us() - s->begun_us);
	mp_map_end(&b);
	retire(s);
	client_reply_buf(c, &b);
}

/* What VMs are run with here; before that is known, what the image was made with. */
enum vmm_accel api_snapshot_accel(const struct broker *b, const struct image *im)
{
	enum vmm_accel verdict = accel_status(b->accel).verdict;

	if (verdict != ACCEL_AUTO)
		return verdict;
	return strcmp(im->traits.accel, vmm_accel_name(ACCEL_KVM)) == 0 ? ACCEL_KVM : ACCEL_TCG;
}

void api_snapshot_verify(struct client *c, const struct msg_call *call, struct vm *vm)
{
	struct snapshot_call *s = call_new(c);
	struct hutch_error err;

	(void)vm;
	if (!s)
		return;
	s->im = find(c, call, &s->dirfd, &err);
	if (s->im) {
		if (snapshot_fits(c->b, s->im, api_snapshot_accel(c->b, s->im), &err) == 0)
			s->verify = verify_start(c->b->verified, c->b->worker, s->im, s->dirfd,
						 VERIFY_ALL, on_verified, s, &err);
		else
			hutch_error_prefix(&err, "snapshot '%s'", s->im->name);
	}
	if (!s->verify)
		fail(s, &err);
}
