/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that the broker reads back: an image's manifest, a VM's record, a template's description; and what the kernel says of
 * cgroups. The first byte selects. What loads is saved, and loads again as the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/cgroup_priv.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/image.h"
#include "host/hutchd/template.h"
#include "host/hutchd/vm_record.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[32] = "/dev/shm/fuzz_state_XXXXXX"; /* in memory: a file is written for every run */
static int dir_fd;

static void require(bool fact)
{
	if (!fact)
		abort();
}

static void remove_dir(void)
{
	tree_remove(AT_FDCWD, dir);
}

static void put(const char *name, const void *data, size_t len)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	require(fd >= 0 && write_all(fd, data, len) == 0);
	close(fd);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	if (!mkdtemp(dir)) {
		snprintf(dir, sizeof(dir), "/tmp/fuzz_state_XXXXXX");
		require(mkdtemp(dir) != NULL);
	}
	atexit(remove_dir);
	dir_fd = dir_open(AT_FDCWD, dir);
	require(dir_fd >= 0 && mkdirat(dir_fd, "t", 0700) == 0);
	put("t/k", "kernel", 6);
	put("t/i", "init", 4);
	return 0;
}

static char *read_file(const char *name, size_t *len)
{
	char *text = file_read(dir_fd, name, 1u << 22, len);

	require(text != NULL);
	return text;
}

/* Saved once and once more: the same bytes. */
static void check_same(const char *name, const char *first, size_t first_len)
{
	size_t len;
	char *again = read_file(name, &len);

	require(len == first_len && memcmp(again, first, len) == 0);
	free(again);
}

static void load_image(const uint8_t *data, size_t size)
{
	struct hutch_error err;
	struct image *im;
	char *text;
	size_t len;

	put(IMAGE_MANIFEST, data, size);
	hutch_error_clear(&err);
	im = image_load(dir_fd, &err);
	require((im == NULL) == (err.kind != HUTCH_OK));
	if (!im)
		return;
	require(image_save(im, dir_fd, false) == 0);
	free(im);
	text = read_file(IMAGE_MANIFEST, &len);
	im = image_load(dir_fd, &err);
	require(im && image_save(im, dir_fd, false) == 0);
	check_same(IMAGE_MANIFEST, text, len);
	free(text);
	free(im);
}

static void load_record(const uint8_t *data, size_t size)
{
	struct hutch_error err;
	struct vm_record r;
	char *text;
	size_t len;

	put(VM_RECORD_FILE, data, size);
	hutch_error_clear(&err);
	if (vm_record_load(&r, dir_fd, &err) < 0)
		return;
	require(vm_record_save(&r, dir_fd) == 0);
	vm_record_free(&r);
	text = read_file(VM_RECORD_FILE, &len);
	require(vm_record_load(&r, dir_fd, &err) == 0 && vm_record_save(&r, dir_fd) == 0);
	check_same(VM_RECORD_FILE, text, len);
	free(text);
	vm_record_free(&r);
}

static void load_template(const uint8_t *data, size_t size)
{
	struct hutch_error err;
	struct template t;

	put("t/template.json", data, size);
	hutch_error_clear(&err);
	if (template_load(&t, dir_fd, dir, "t", &err) < 0) {
		require(err.kind != HUTCH_OK && err.message[0]);
		return;
	}
	for (int i = 0; i < TEMPLATE_FILES; i++) {
		const char *name = template_file_name(&t, (enum template_file)i);

		require(strlen(t.digests[i]) == 0 || strlen(t.digests[i]) == 64);
		require(!strchr(name, '/') && name[0] != '.');
	}
}

/* /proc/self/cgroup and mountinfo, parted by a NUL; then what a run directory's file names. */
static void look_for_cgroups(const uint8_t *data, size_t size)
{
	const uint8_t *part = memchr(data, '\0', size);
	size_t first = part ? (size_t)(part - data) : size;
	struct cgroups c = {.wish = {.cpu_weight = 100}};
	char own[64], mounts[64];
	const struct cgroup_places places = {.own = own, .mounts = mounts};
	bool oom;
	int file;

	snprintf(own, sizeof(own), "%s/own", dir);
	snprintf(mounts, sizeof(mounts), "%s/mounts", dir);
	put("own", data, first);
	put("mounts", data + first, size - first);
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		c.bases[i].fd = -1;
	/* v2 moves processes where it finds itself alone: not in a fuzzer. */
	cgroup_find_v1(&c, &places);
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++) {
		require((c.bases[i].fd >= 0) == (c.report.has >> i & 1));
		require(strlen(c.bases[i].path) < CGROUP_PATH);
		fd_close(&c.bases[i].fd);
	}
	file = openat(dir_fd, "mounts", O_RDONLY | O_CLOEXEC);
	cgroup_vm_remove(file, "no-such-vm", &oom);
	close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const targets[])(const uint8_t *data, size_t size) = {load_image, load_record,
									    load_template,
									    look_for_cgroups};

	if (size > 0)
		targets[data[0] % 4](data + 1, size - 1);
	return 0;
}
