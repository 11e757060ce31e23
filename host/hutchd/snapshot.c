/* SPDX-License-Identifier: Apache-2.0 */
/* The store of snapshots. */
#include "host/hutchd/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "host/hutchd/vm.h"

/* Where one goes before it is removed; a name that no snapshot can have. */
#define REMOVED_PREFIX ".removed-"

static int io_error(struct hutch_error *err, const char *name, const char *what)
{
	return hutch_error_set(err, HUTCH_E_IO, errno, "snapshot '%s': %s: %s", name, what,
			       strerror(errno));
}

static int not_found(struct hutch_error *err, const char *name)
{
	return hutch_error_set(err, HUTCH_E_NOT_FOUND, 0, "there is no snapshot '%s'", name);
}

/* Call each for the names in a directory, "." and ".." left out. */
static void each_name(int dirfd, void (*each)(void *arg, int dirfd, const char *name), void *arg)
{
	int copy = dir_open(dirfd, ".");
	DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	const struct dirent *e;

	if (!dir) {
		fd_close(&copy);
		return;
	}
	while ((e = readdir(dir)) != NULL)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			each(arg, dirfd, e->d_name);
	closedir(dir);
}

static void sweep_one(void *arg, int dirfd, const char *name)
{
	(void)arg;
	if (strncmp(name, REMOVED_PREFIX, strlen(REMOVED_PREFIX)) == 0 &&
	    tree_remove(dirfd, name) < 0)
		log_errno(LOG_LEVEL_ERROR, "broker", "cannot remove the rest of a snapshot, %s",
			  name);
}

static void sweep_owner(void *arg, int dirfd, const char *owner)
{
	int fd = dir_open(dirfd, owner);

	if (fd < 0)
		return;
	each_name(fd, sweep_one, arg);
	fd_close(&fd);
}

int snapshots_open(struct broker *b, struct hutch_error *err)
{
	b->snapshots_fd = dir_make(b->state_fd, SNAPSHOTS_DIR);
	if (b->snapshots_fd < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno,
				       "cannot use %s/" SNAPSHOTS_DIR ": %s", b->config->state,
				       strerror(errno));
	each_name(b->snapshots_fd, sweep_owner, NULL);
	each_name(b->templates_fd, sweep_owner, NULL);
	return 0;
}

static int owner_dir(const struct broker *b, uint32_t owner, bool make)
{
	char name[16];

	snprintf(name, sizeof(name), "%u", (unsigned)owner);
	return make ? dir_make(b->snapshots_fd, name) : dir_open(b->snapshots_fd, name);
}

/* The one below dirfd, whose owner is known. */
static struct image *open_one(int dirfd, const char *name, int *out, struct hutch_error *err)
{
	struct image *im;
	int fd = dir_open(dirfd, name);

	if (fd < 0) {
		not_found(err, name);
		return NULL;
	}
	im = image_load(fd, err);
	if (im && strcmp(im->name, name) == 0) {
		*out = fd;
		return im;
	}
	if (im)
		hutch_error_set(err, HUTCH_E_STATE, 0, IMAGE_MANIFEST ": 'name' is wrong");
	free(im);
	fd_close(&fd);
	err->kind = HUTCH_E_STATE;
	snprintf(err->path, sizeof(err->path), IMAGE_MANIFEST);
	hutch_error_prefix(err, "snapshot '%s'", name);
	return NULL;
}

struct search {
	const char *name;
	uint32_t owner;
	bool found;
};

static void find_owner(void *arg, int dirfd, const char *owner)
{
	struct search *s = arg;
	int fd = s->found ? -1 : dir_open(dirfd, owner);
	struct stat st;

	if (fd < 0)
		return;
	if (fstatat(fd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		s->found = true;
		s->owner = (uint32_t)strtoul(owner, NULL, 10);
	}
	fd_close(&fd);
}

struct image *snapshot_find(struct broker *b, uint32_t uid, const char *name, int *dirfd,
			    struct hutch_error *err)
{
	struct search s = {.name = name, .owner = uid};
	int dir = owner_dir(b, uid, false);
	struct image *im = NULL;
	struct stat st;

	*dirfd = -1;
	s.found = dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!s.found && broker_is_admin(b, uid)) {
		fd_close(&dir);
		each_name(b->snapshots_fd, find_owner, &s);
		dir = s.found ? owner_dir(b, s.owner, false) : -1;
	}
	if (s.found && dir >= 0)
		im = open_one(dir, name, dirfd, err);
	else
		not_found(err, name);
	fd_close(&dir);
	/* A manifest must not put it under another owner. */
	if (im)
		im->owner_uid = s.owner;
	return im;
}

int snapshot_check_name(struct broker *b, uint32_t owner, const char *name, struct hutch_error *err)
{
	int dir = owner_dir(b, owner, false);
	struct stat st;
	int rc = 0;

	if (dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		rc = hutch_error_set(err, HUTCH_E_EXISTS, 0, "there is a snapshot '%s' already",
				     name);
	fd_close(&dir);
	return rc;
}

int snapshot_publish(struct broker *b, const struct image *im, int from_fd, const char *from,
		     struct hutch_error *err)
{
	int dir = owner_dir(b, im->owner_uid, true), rc = -1;

	if (dir < 0)
		return io_error(err, im->name, "cannot make its owner's directory");
	if (renameat2(from_fd, from, dir, im->name, RENAME_NOREPLACE) == 0)
		rc = fsync(dir);
	else if (errno == EEXIST) {
		fd_close(&dir);
		return hutch_error_set(err, HUTCH_E_EXISTS, 0, "there is a snapshot '%s' already",
				       im->name);
	}
	if (rc < 0)
		io_error(err, im->name, "cannot publish it");
	fd_close(&dir);
	return rc;
}

const struct vm *snapshot_user(const struct broker *b, const struct image *im,
			       const struct vm *prev)
{
	const struct vm *vm = prev ? TAILQ_NEXT(prev, next) : TAILQ_FIRST(&b->vms);

	while (vm &&
	       !(vm->r.snapshot_uid == im->owner_uid && strcmp(vm->r.snapshot, im->name) == 0))
		vm = TAILQ_NEXT(vm, next);
	return vm;
}

int snapshot_delete(struct broker *b, const struct image *im, struct hutch_error *err)
{
	const struct vm *user = snapshot_user(b, im, NULL);
	char gone[sizeof(REMOVED_PREFIX) + HUTCH_MAX_SNAPSHOT_NAME];
	int dir, rc;

	if (user)
		return hutch_error_set(err, HUTCH_E_STATE, 0, "snapshot '%s' is used by VM %s",
				       im->name, user->r.id);
	dir = owner_dir(b, im->owner_uid, false);
	snprintf(gone, sizeof(gone), REMOVED_PREFIX "%s", im->name);
	tree_remove(dir, gone);
	rc = renameat(dir, im->name, dir, gone);
	if (rc < 0)
		io_error(err, im->name, "cannot remove it");
	else if (tree_remove(dir, gone) < 0)
		log_errno(LOG_LEVEL_ERROR, "broker", "cannot remove all of snapshot '%s'",
			  im->name);
	fd_close(&dir);
	return rc;
}

struct listing {
	struct broker *b;
	snapshot_each *each;
	void *arg;
	uint32_t uid, owner;
	bool all;
	char (*names)[HUTCH_MAX_SNAPSHOT_NAME + 1];
	unsigned count;
};

static void add_name(void *arg, int dirfd, const char *name)
{
	struct listing *l = arg;

	(void)dirfd;
	if (name[0] != '.' && strlen(name) <= HUTCH_MAX_SNAPSHOT_NAME && l->count < SNAPSHOTS_MAX)
		snprintf(l->names[l->count++], sizeof(l->names[0]), "%s", name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void list_owner(void *arg, int dirfd, const char *owner)
{
	struct listing *l = arg;
	uint32_t uid = (uint32_t)strtoul(owner, NULL, 10);
	struct hutch_error err;
	struct image *im;
	int dir, fd;

	if ((!l->all && uid != l->uid) || (dir = dir_open(dirfd, owner)) < 0)
		return;
	l->count = 0;
	each_name(dir, add_name, l);
	qsort(l->names, l->count, sizeof(l->names[0]), by_name);
	for (unsigned i = 0; i < l->count; i++) {
		hutch_error_clear(&err);
		im = open_one(dir, l->names[i], &fd, &err);
		if (!im) {
			log_warn("broker", "left out of the list: %s", err.message);
			continue;
		}
		im->owner_uid = uid;
		l->each(l->arg, im, fd);
		fd_close(&fd);
		free(im);
	}
	fd_close(&dir);
}

void snapshot_list(struct broker *b, uint32_t uid, snapshot_each *each, void *arg)
{
	struct listing l = {.b = b, .each = each, .arg = arg, .uid = uid};

	l.all = broker_is_admin(b, uid);
	l.names = calloc(SNAPSHOTS_MAX, sizeof(*l.names));
	if (l.names)
		each_name(b->snapshots_fd, list_owner, &l);
	free(l.names);
}

struct image *template_snapshot_open(struct broker *b, const char *template_name, int *dirfd,
				     struct hutch_error *err)
{
	int dir = dir_open(b->templates_fd, template_name);
	struct image *im = NULL;

	*dirfd = dir >= 0 ? dir_open(dir, TEMPLATE_SNAPSHOT) : -1;
	fd_close(&dir);
	if (*dirfd >= 0)
		im = image_load(*dirfd, err);
	else
		hutch_error_set(err, HUTCH_E_NOT_FOUND, 0, "template %s has no snapshot",
				template_name);
	if (!im)
		fd_close(dirfd);
	return im;
}

int template_snapshot_publish(struct broker *b, const struct image *im, int from_fd,
			      const char *from, struct hutch_error *err)
{
	int dir = dir_open(b->templates_fd, im->template_name), rc = -1;

	if (dir >= 0)
		rc = renameat2(from_fd, from, dir, TEMPLATE_SNAPSHOT, RENAME_NOREPLACE);
	/* from is then the old one, and goes with the directory it is in. */
	if (dir >= 0 && rc < 0 && errno == EEXIST)
		rc = renameat2(from_fd, from, dir, TEMPLATE_SNAPSHOT, RENAME_EXCHANGE);
	if (rc == 0)
		rc = fsync(dir);
	if (rc < 0)
		hutch_error_set(err, HUTCH_E_IO, errno, "template %s: cannot keep its snapshot: %s",
				im->template_name, strerror(errno));
	fd_close(&dir);
	return rc;
}

void snapshot_template(const struct image *im, struct template *tpl)
{
	/* Nothing is booted: the names of kernel and initramfs stand for no file. */
	*tpl = (struct template){.kernel = "none",
				 .initramfs = "none",
				 .memory_mib = im->traits.memory_mib,
				 .vcpus = im->traits.vcpus,
				 .disk_mib = im->disk_mib};
	snprintf(tpl->name, sizeof(tpl->name), "%s", im->template_name);
	snprintf(tpl->root, sizeof(tpl->root), "%s", im->root.file);
}

int snapshot_root(struct broker *b, const struct template *tpl, struct image_root *out)
{
	int dir, rc;
	struct stat st;

	*out = (struct image_root){.size = 0};
	if (!tpl->root[0])
		return 0;
	dir = dir_open(b->templates_fd, tpl->name);
	rc = dir < 0 ? -1 : fstatat(dir, tpl->root, &st, AT_SYMLINK_NOFOLLOW);
	fd_close(&dir);
	if (rc < 0)
		return -1;
	snprintf(out->file, sizeof(out->file), "%s", tpl->root);
	out->size = (uint64_t)st.st_size;
	out->inode = (uint64_t)st.st_ino;
	out->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	return 0;
}

void snapshot_host_kernel(char *out, size_t size)
{
	struct utsname u;

	snprintf(out, size, "%.64s", uname(&u) == 0 ? u.release : "unknown");
}

static int differs(struct hutch_error *err, const char *field, const char *then, const char *now)
{
	hutch_error_set(err, HUTCH_E_UNSUPPORTED, 0,
			"it does not fit here: %s was \"%.300s\", and is \"%.300s\"", field, then,
			now);
	snprintf(err->stage, sizeof(err->stage), "match");
	return -1;
}

static int differs_in_number(struct hutch_error *err, const char *field, uint64_t then,
			     uint64_t now)
{
	char a[24], b[24];

	snprintf(a, sizeof(a), "%llu", (unsigned long long)then);
	snprintf(b, sizeof(b), "%llu", (unsigned long long)now);
	return differs(err, field, a, b);
}

static int traits_error(struct hutch_error *err, const char *field, const struct vmm_traits *then,
			const struct vmm_traits *now)
{
	if (strcmp(field, "vmm") == 0)
		return differs(err, field, then->vmm, now->vmm);
	if (strcmp(field, "machine") == 0)
		return differs(err, field, then->machine, now->machine);
	if (strcmp(field, "cpu") == 0)
		return differs(err, field, then->cpu, now->cpu);
	if (strcmp(field, "accel") == 0)
		return differs(err, field, then->accel, now->accel);
	if (strcmp(field, "tsc_khz") == 0)
		return differs_in_number(err, field, then->tsc_khz, now->tsc_khz);
	if (strcmp(field, "memory_mib") == 0)
		return differs_in_number(err, field, then->memory_mib, now->memory_mib);
	return differs_in_number(err, field, then->vcpus, now->vcpus);
}

int snapshot_fits(struct broker *b, const struct image *im, enum vmm_accel accel,
		  struct hutch_error *err)
{
	char kernel[sizeof(im->host_kernel)];
	struct image_root root;
	struct vmm_traits now;
	struct template tpl;
	const char *field;

	snapshot_template(im, &tpl);
	vmm_traits_get(&now, b->launcher, &tpl, accel, im->traits.memory_mib, im->traits.vcpus);
	field = vmm_traits_differ(&im->traits, &now);
	if (field)
		return traits_error(err, field, &im->traits, &now);
	snapshot_host_kernel(kernel, sizeof(kernel));
	if (accel == ACCEL_KVM && strcmp(im->host_kernel, kernel) != 0)
		return differs(err, "host_kernel", im->host_kernel, kernel);
	if (im->agent_proto != HUTCH_PROTO_VERSION)
		return differs_in_number(err, "agent_proto", im->agent_proto, HUTCH_PROTO_VERSION);
	if (snapshot_root(b, &tpl, &root) < 0)
		return differs(err, "root", im->root.file, "missing");
	if (root.inode != im->root.inode || root.size != im->root.size ||
	    root.mtime_ns != im->root.mtime_ns)
		return differs(err, "root", im->root.file, "another file of that name");
	return 0;
}
