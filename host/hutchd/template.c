/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates on disk. template.json is written by rootfs/build; it is checked as if by a stranger.
 */
#include "host/hutchd/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/launch_proto.h"
#include "host/hutchd/log.h"

#define TEMPLATE_JSON	  "template.json"
#define TEMPLATE_JSON_MAX (64u << 10)
#define TEMPLATE_VERSION  1
#define TEMPLATE_MAX	  1024u /* in one directory */
/* Where a template goes before it is removed; a name that no template can have. */
#define REMOVED_PREFIX ".removed-"

static bool name_ok(const char *name, size_t max)
{
	size_t len = strlen(name);

	return len > 0 && len <= max && name[0] != '.' && name[0] != '-' &&
	       strspn(name, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") ==
		       len;
}

static int invalid(struct hutch_error *err, const char *name, const char *field, const char *what)
{
	return hutch_error_set(err, HUTCH_E_INVALID, 0, "template %s: %s in " TEMPLATE_JSON " %s",
			       name, field, what);
}

/*
 * A text of printable characters, at most size - 1 bytes; without one, fallback, which NULL
 * forbids.
 */
static int get_text(const json_t *root, const char *template, const char *field,
		    const char *fallback, char *out, size_t size, struct hutch_error *err)
{
	const json_t *value = json_object_get(root, field);
	const char *text = value ? json_string_value(value) : fallback;

	if (!text)
		return invalid(err, template, field, value ? "is no text" : "is missing");
	if (value && strlen(text) != json_string_length(value))
		return invalid(err, template, field, "holds a NUL");
	if (strlen(text) >= size)
		return invalid(err, template, field, "is too long");
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return invalid(err, template, field, "holds a control character");
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int get_file(const json_t *root, const char *template, const char *field, char *out,
		    size_t size, struct hutch_error *err)
{
	if (get_text(root, template, field, NULL, out, size, err) < 0)
		return -1;
	return name_ok(out, size - 1) ? 0 : invalid(err, template, field, "is not a file name");
}

/* As get_file, for a field that may be missing: out is then empty. */
static int get_file_if_any(const json_t *root, const char *template, const char *field, char *out,
			   size_t size, struct hutch_error *err)
{
	out[0] = '\0';
	return json_object_get(root, field) ? get_file(root, template, field, out, size, err) : 0;
}

static int get_number(const json_t *root, const char *template, const char *field, uint64_t min,
		      uint64_t max, uint64_t *out, struct hutch_error *err)
{
	const json_t *value = json_object_get(root, field);
	json_int_t n = json_integer_value(value);

	if (!json_is_integer(value))
		return invalid(err, template, field, value ? "is no number" : "is missing");
	if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
		return invalid(err, template, field, "is out of range");
	*out = (uint64_t)n;
	return 0;
}

const char *template_file_name(const struct template *t, enum template_file file)
{
	switch (file) {
	case TEMPLATE_KERNEL:
		return t->kernel;
	case TEMPLATE_INITRAMFS:
		return t->initramfs;
	default:
		return t->root;
	}
}

/* "files" may be missing, or say nothing of a file. */
static int read_digests(struct template *t, const json_t *root, struct hutch_error *err)
{
	const json_t *files = json_object_get(root, "files");

	for (int i = 0; i < TEMPLATE_FILES; i++) {
		const char *name = template_file_name(t, (enum template_file)i);
		const json_t *value = json_object_get(json_object_get(files, name), "sha256");
		const char *text = json_string_value(value);

		if (!value)
			continue;
		if (!text || strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
			return invalid(err, t->name, "sha256 of a file", "is no digest");
		memcpy(t->digests[i], text, 65);
	}
	return 0;
}

/* Both or none: a VM without is given nothing to write to but its memory. */
static int read_disk(struct template *t, const json_t *root, struct hutch_error *err)
{
	uint64_t mib = 0;

	if (get_file_if_any(root, t->name, "disk", t->disk, sizeof(t->disk), err) < 0)
		return -1;
	if (t->disk[0] && get_number(root, t->name, "disk_mib", VMM_MIN_DISK_MIB, VMM_MAX_DISK_MIB,
				     &mib, err) < 0)
		return -1;
	t->disk_mib = (uint32_t)mib;
	return 0;
}

static int read_fields(struct template *t, const json_t *root, struct hutch_error *err)
{
	uint64_t version, memory = 0, vcpus = 0;

	if (get_number(root, t->name, "version", TEMPLATE_VERSION, TEMPLATE_VERSION, &version,
		       err) < 0 ||
	    get_file(root, t->name, "kernel", t->kernel, sizeof(t->kernel), err) < 0 ||
	    get_file(root, t->name, "initramfs", t->initramfs, sizeof(t->initramfs), err) < 0 ||
	    get_file_if_any(root, t->name, "root", t->root, sizeof(t->root), err) < 0 ||
	    read_disk(t, root, err) < 0 ||
	    get_text(root, t->name, "cmdline", "", t->cmdline, sizeof(t->cmdline), err) < 0 ||
	    get_text(root, t->name, "kernel_version", "", t->kernel_version,
		     sizeof(t->kernel_version), err) < 0 ||
	    get_number(root, t->name, "memory_mib", VMM_MIN_MEMORY_MIB, VMM_MAX_MEMORY_MIB, &memory,
		       err) < 0 ||
	    get_number(root, t->name, "vcpus", 1, VMM_MAX_VCPUS, &vcpus, err) < 0)
		return -1;
	t->memory_mib = (uint32_t)memory;
	t->vcpus = (uint32_t)vcpus;
	return read_digests(t, root, err);
}

/* Its build is reproducible, so that only the file system knows when it was made. */
static void read_created(struct template *t, int dir)
{
	struct stat st;

	if (fstatat(dir, TEMPLATE_JSON, &st, AT_SYMLINK_NOFOLLOW) == 0)
		t->created_ms = (uint64_t)st.st_mtim.tv_sec * 1000 +
				(uint64_t)st.st_mtim.tv_nsec / 1000000;
}

/* A sparse file, such as a blank disk, takes less than its size. */
static uint64_t bytes_of(const struct stat *st)
{
	uint64_t taken = (uint64_t)st->st_blocks * 512, size = (uint64_t)st->st_size;

	return taken < size ? taken : size;
}

/* What it names must be there; the sizes of all files are added up. */
static int check_files(struct template *t, int dir, struct hutch_error *err)
{
	const char *const names[] = {t->kernel, t->initramfs, t->root, t->disk};
	int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *e;
	struct stat st;

	if (!d) {
		fd_close(&copy);
		return hutch_error_set(err, HUTCH_E_IO, errno, "template %s: %s", t->name,
				       strerror(errno));
	}
	while ((e = readdir(d)) != NULL)
		if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			t->bytes += bytes_of(&st);
	closedir(d);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!names[i][0])
			continue;
		if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			return hutch_error_set(err, HUTCH_E_INVALID, errno, "template %s: %s: %s",
					       t->name, names[i], strerror(errno));
		if (!S_ISREG(st.st_mode))
			return hutch_error_set(err, HUTCH_E_INVALID, 0,
					       "template %s: %s is not a regular file", t->name,
					       names[i]);
	}
	return 0;
}

static int load_json(struct template *t, int dir, struct hutch_error *err)
{
	json_error_t where;
	json_t *root;
	char *text;
	size_t len;
	int r;

	text = file_read(dir, TEMPLATE_JSON, TEMPLATE_JSON_MAX, &len);
	if (!text)
		return hutch_error_set(err, errno == ENOENT ? HUTCH_E_INVALID : HUTCH_E_IO, errno,
				       "template %s: " TEMPLATE_JSON ": %s", t->name,
				       strerror(errno));
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	free(text);
	if (!json_is_object(root))
		r = hutch_error_set(err, HUTCH_E_INVALID, 0,
				    "template %s: " TEMPLATE_JSON
				    " is not a JSON object: line %d: %s",
				    t->name, root ? 1 : where.line,
				    root ? "no object" : where.text);
	else
		r = read_fields(t, root, err);
	json_decref(root);
	return r;
}

static int not_found(struct hutch_error *err, const char *template_dir, const char *name)
{
	return hutch_error_set(
		err, HUTCH_E_NOT_FOUND, ENOENT,
		"there is no template %.64s in %s; build it with: hutch template build "
		"%.64s",
		name, template_dir, name);
}

int template_load(struct template *t, int template_dir_fd, const char *template_dir,
		  const char *name, struct hutch_error *err)
{
	int dir, r;

	memset(t, 0, sizeof(*t));
	if (!name_ok(name, HUTCH_MAX_TEMPLATE_NAME))
		return hutch_error_set(
			err, HUTCH_E_INVALID, 0,
			"a template's name is 1-%u of A-Z a-z 0-9 . _ - and does not "
			"begin with . or -",
			HUTCH_MAX_TEMPLATE_NAME);
	memcpy(t->name, name, strlen(name) + 1);
	dir = dir_open(template_dir_fd, name);
	if (dir < 0 && errno == ENOENT)
		return not_found(err, template_dir, name);
	if (dir < 0)
		return hutch_error_set(err, HUTCH_E_IO, errno, "template %s in %s: %s", name,
				       template_dir, strerror(errno));
	r = load_json(t, dir, err);
	if (r == 0)
		r = check_files(t, dir, err);
	read_created(t, dir);
	fd_close(&dir);
	return r;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct template *)a)->name, ((const struct template *)b)->name);
}

/* Room for one more; NULL when there is no memory or the directory is absurd. */
static struct template *grow(struct template **list, size_t count)
{
	struct template *more = *list;

	if (count == TEMPLATE_MAX)
		return NULL;
	if ((count & (count - 1)) == 0) { /* full at every power of two */
		more = realloc(*list, (count ? count * 2 : 1) * sizeof(*more));
		if (!more)
			return NULL;
		*list = more;
	}
	return &more[count];
}

int template_list(int template_dir_fd, const char *template_dir, struct template **out,
		  size_t *count, struct hutch_error *err)
{
	int copy = openat(template_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	struct template *t;
	struct dirent *e;

	*out = NULL;
	*count = 0;
	if (!d) {
		hutch_error_set(err, HUTCH_E_IO, errno, "template directory %s: %s", template_dir,
				strerror(errno));
		fd_close(&copy);
		return -1;
	}
	while ((e = readdir(d)) != NULL) {
		struct hutch_error why;

		if (!name_ok(e->d_name, HUTCH_MAX_TEMPLATE_NAME))
			continue;
		t = grow(out, *count);
		if (!t) {
			log_warn("templates", "there are more than can be listed in %s",
				 template_dir);
			break;
		}
		if (template_load(t, template_dir_fd, template_dir, e->d_name, &why) == 0)
			++*count;
		else
			log_warn("templates", "left out of the list: %s", why.message);
	}
	closedir(d);
	if (*count > 0)
		qsort(*out, *count, sizeof(**out), by_name);
	return 0;
}

/* Also what an earlier, interrupted removal left. */
static int remove_renamed(int template_dir_fd)
{
	int copy = openat(template_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *e;
	int first = 0;

	if (!d) {
		fd_close(&copy);
		return -1;
	}
	while ((e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, REMOVED_PREFIX, strlen(REMOVED_PREFIX)) != 0)
			continue;
		if (tree_remove(template_dir_fd, e->d_name) < 0 && first == 0)
			first = errno;
	}
	closedir(d);
	errno = first;
	return first ? -1 : 0;
}

int template_remove(int template_dir_fd, const char *name, struct hutch_error *err)
{
	char gone[sizeof(REMOVED_PREFIX) + HUTCH_MAX_TEMPLATE_NAME];

	if (!name_ok(name, HUTCH_MAX_TEMPLATE_NAME))
		return hutch_error_set(err, HUTCH_E_NOT_FOUND, 0, "there is no template %.64s",
				       name);
	snprintf(gone, sizeof(gone), REMOVED_PREFIX "%s", name);
	/* Else the rename would fail where an earlier removal of this name was interrupted. */
	if (remove_renamed(template_dir_fd) < 0)
		goto failed;
	if (renameat(template_dir_fd, name, template_dir_fd, gone) < 0) {
		if (errno == ENOENT)
			return hutch_error_set(err, HUTCH_E_NOT_FOUND, ENOENT,
					       "there is no template %s", name);
		goto failed;
	}
	if (remove_renamed(template_dir_fd) == 0)
		return 0;
failed:
	return hutch_error_set(err, HUTCH_E_IO, errno, "template %s: remove: %s", name,
			       strerror(errno));
}
