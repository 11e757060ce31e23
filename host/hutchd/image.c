/* SPDX-License-Identifier: Apache-2.0 */
/* A memory image: manifest and files. */
#include "host/hutchd/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/json_struct.h"

#define MANIFEST_VERSION 1
#define MANIFEST_MAX	 (128u << 10) /* of the file, bytes */

#define MEMBER(type, key, m) JSON_MEMBER(type, struct image, key, m)
static const struct json_member members[] = {
	MEMBER(TEXT, "vmm", traits.vmm),
	MEMBER(TEXT, "machine", traits.machine),
	MEMBER(TEXT, "cpu", traits.cpu),
	MEMBER(TEXT, "accel", traits.accel),
	MEMBER(U32, "tsc_khz", traits.tsc_khz),
	MEMBER(U32, "memory_mib", traits.memory_mib),
	MEMBER(U32, "vcpus", traits.vcpus),
	MEMBER(TEXT, "host_kernel", host_kernel),
	MEMBER(U32, "agent_proto", agent_proto),
	MEMBER(TEXT, "agent", agent_name),
	MEMBER(TEXT, "agent_boot_id", agent_boot_id),
	MEMBER(U64, "generation", generation),
	MEMBER(TEXT, "vm", vm),
	MEMBER(TEXT, "template", template_name),
	MEMBER(TEXT, "root", root.file),
	MEMBER(U64, "root_size", root.size),
	MEMBER(U64, "root_inode", root.inode),
	MEMBER(U64, "root_mtime_ns", root.mtime_ns),
	MEMBER(TEXT, "name", name),
	MEMBER(TEXT, "origin", origin),
	MEMBER(U32, "owner_uid", owner_uid),
	MEMBER(U64, "created_ms", created_ms),
	MEMBER(BOOL, "secrets", secrets),
	MEMBER(U32, "layers", nlayers),
	JSON_OPTIONAL(U32, struct image, "disk_mib", disk_mib),
	JSON_OPTIONAL(U32, struct image, "disk_layers", disk_layers),
};
#define MEMBERS (sizeof(members) / sizeof(members[0]))

static bool has_file(const struct image *im, unsigned file)
{
	if (file >= IMAGE_FILE_LAYERS)
		return file < IMAGE_FILE_LAYERS + 2 * im->nlayers;
	if (file >= IMAGE_FILE_DISK_LAYERS)
		return file < IMAGE_FILE_DISK_LAYERS + im->disk_layers;
	return file != IMAGE_FILE_DISK || im->disk_mib > 0;
}

unsigned image_next(const struct image *im, unsigned file)
{
	while (file < IMAGE_MAX_FILES && !has_file(im, file))
		file++;
	return file;
}

void image_file_name(unsigned file, char out[IMAGE_FILE_NAME])
{
	unsigned layer = (file - IMAGE_FILE_LAYERS) / 2;

	if (file == IMAGE_FILE_MEMORY)
		snprintf(out, IMAGE_FILE_NAME, IMAGE_MEMORY);
	else if (file == IMAGE_FILE_DEVICE)
		snprintf(out, IMAGE_FILE_NAME, IMAGE_DEVICE);
	else if (file == IMAGE_FILE_DISK)
		snprintf(out, IMAGE_FILE_NAME, IMAGE_DISK);
	else if (file < IMAGE_FILE_LAYERS)
		snprintf(out, IMAGE_FILE_NAME, IMAGE_DISK "-%u",
			 (file - IMAGE_FILE_DISK_LAYERS) % VMM_MAX_DISK_LAYERS);
	else
		snprintf(out, IMAGE_FILE_NAME,
			 (file - IMAGE_FILE_LAYERS) % 2 == 0 ? "layer-%u" : "extents-%u",
			 layer % VMM_MAX_LAYERS);
}

static json_t *digests_json(const struct image *im)
{
	json_t *o = json_object();
	char name[IMAGE_FILE_NAME];

	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES && o; i++) {
		image_file_name(i, name);
		if (json_object_set_new(o, name, json_string(im->digests[i])) < 0) {
			json_decref(o);
			o = NULL;
		}
	}
	return o;
}

int image_save(const struct image *im, int dirfd, bool sync)
{
	json_t *o = json_object();
	char *text = NULL;
	int rc = -1;

	if (o && json_object_set_new(o, "version", json_integer(MANIFEST_VERSION)) == 0 &&
	    json_put_members(o, im, members, MEMBERS) == 0 &&
	    json_object_set_new(o, "sha256", digests_json(im)) == 0)
		text = json_dumps(o, JSON_INDENT(1));
	json_decref(o);
	if (text)
		rc = file_write_atomic(dirfd, IMAGE_MANIFEST, text, strlen(text), sync);
	else
		errno = ENOMEM;
	free(text);
	return rc;
}

static bool digest_ok(const char *s)
{
	size_t len = s ? strlen(s) : 1;

	return len == 0 || (len == DIGEST_HEX && strspn(s, "0123456789abcdef") == len);
}

static int get_digests(struct image *im, const json_t *o, struct hutch_error *err)
{
	char name[IMAGE_FILE_NAME];

	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		const char *s;

		image_file_name(i, name);
		s = json_string_value(json_object_get(o, name));
		if (!digest_ok(s))
			return json_member_wrong(IMAGE_MANIFEST ": sha256", name, err);
		snprintf(im->digests[i], sizeof(im->digests[i]), "%s", s);
	}
	return 0;
}

static int parse(struct image *im, const json_t *o, struct hutch_error *err)
{
	if (json_integer_value(json_object_get(o, "version")) != MANIFEST_VERSION)
		return json_member_wrong(IMAGE_MANIFEST, "version", err);
	if (json_get_members(o, im, members, MEMBERS, IMAGE_MANIFEST, err) < 0)
		return -1;
	if (im->nlayers > VMM_MAX_LAYERS)
		return json_member_wrong(IMAGE_MANIFEST, "layers", err);
	if (im->disk_mib > VMM_MAX_DISK_MIB)
		return json_member_wrong(IMAGE_MANIFEST, "disk_mib", err);
	if (im->disk_layers > (im->disk_mib ? VMM_MAX_DISK_LAYERS : 0))
		return json_member_wrong(IMAGE_MANIFEST, "disk_layers", err);
	return get_digests(im, json_object_get(o, "sha256"), err);
}

struct image *image_load(int dirfd, struct hutch_error *err)
{
	size_t len = 0;
	char *text = file_read(dirfd, IMAGE_MANIFEST, MANIFEST_MAX, &len);
	struct image *im = calloc(1, sizeof(*im));
	json_error_t where;
	json_t *o = NULL;
	int rc = -1;

	if (!text || !im)
		hutch_error_set(err, text || errno != ENOENT ? HUTCH_E_IO : HUTCH_E_NOT_FOUND,
				errno, IMAGE_MANIFEST ": %s", strerror(errno));
	else if (!(o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where)))
		hutch_error_set(err, HUTCH_E_INVALID, 0, IMAGE_MANIFEST ": line %d: %s", where.line,
				where.text);
	else
		rc = parse(im, o, err);
	json_decref(o);
	free(text);
	if (rc == 0)
		return im;
	free(im);
	return NULL;
}

static int link_one(int from, int to, const char *name, struct hutch_error *err)
{
	if (linkat(from, name, to, name, 0) == 0)
		return 0;
	hutch_error_set(err, errno == ENOENT ? HUTCH_E_STATE : HUTCH_E_IO, errno, "%s: %s", name,
			strerror(errno));
	snprintf(err->path, sizeof(err->path), "%s", name);
	return -1;
}

int image_link(const struct image *im, int from, int to, bool all, struct hutch_error *err)
{
	char name[IMAGE_FILE_NAME];

	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		if (i == IMAGE_FILE_DEVICE && !all)
			continue;
		image_file_name(i, name);
		if (link_one(from, to, name, err) < 0)
			return -1;
	}
	return all ? link_one(from, to, IMAGE_MANIFEST, err) : 0;
}

static int *fd_of(struct image_fds *fds, unsigned file)
{
	struct vmm_layer *layer;

	if (file == IMAGE_FILE_MEMORY)
		return &fds->memory;
	if (file == IMAGE_FILE_DEVICE)
		return &fds->device;
	if (file == IMAGE_FILE_DISK)
		return &fds->disk;
	if (file < IMAGE_FILE_LAYERS)
		return &fds->disk_fds[file - IMAGE_FILE_DISK_LAYERS];
	layer = &fds->layers[(file - IMAGE_FILE_LAYERS) / 2];
	return (file - IMAGE_FILE_LAYERS) % 2 == 0 ? &layer->data_fd : &layer->extents_fd;
}

int image_open(const struct image *im, int dirfd, struct image_fds *fds, struct hutch_error *err)
{
	char name[IMAGE_FILE_NAME];
	struct stat st;

	*fds = (struct image_fds){.nlayers = im->nlayers,
				  .disk = -1,
				  .disk_layers = im->disk_layers};
	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++)
		*fd_of(fds, i) = -1;
	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		int *fd = fd_of(fds, i);

		image_file_name(i, name);
		*fd = file_open(dirfd, name, O_RDONLY);
		if (*fd >= 0 && fstat(*fd, &st) == 0 && S_ISREG(st.st_mode))
			continue;
		hutch_error_set(err, HUTCH_E_INVALID, errno, "%s: %s", name,
				*fd < 0 ? strerror(errno) : "is not a regular file");
		snprintf(err->path, sizeof(err->path), "%s", name);
		image_close(fds);
		return -1;
	}
	return 0;
}

void image_close(struct image_fds *fds)
{
	fd_close(&fds->memory);
	fd_close(&fds->device);
	fd_close(&fds->disk);
	for (unsigned i = 0; i < fds->disk_layers; i++)
		fd_close(&fds->disk_fds[i]);
	for (unsigned i = 0; i < fds->nlayers; i++) {
		fd_close(&fds->layers[i].data_fd);
		fd_close(&fds->layers[i].extents_fd);
	}
}

uint64_t image_bytes(const struct image *im, int dirfd, uint64_t *own)
{
	uint64_t total = 0, alone = 0;
	char name[IMAGE_FILE_NAME];
	struct stat st;

	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		image_file_name(i, name);
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		total += (uint64_t)st.st_blocks * 512;
		if (st.st_nlink == 1)
			alone += (uint64_t)st.st_blocks * 512;
	}
	if (own)
		*own = alone;
	return total;
}
