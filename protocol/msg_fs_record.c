/* SPDX-License-Identifier: Apache-2.0 */
/* A file's record (wire.md section 3, Files). */
#include "protocol/msg_fs.h"

#include <string.h>
#include <sys/stat.h>

static const char type_names[][8] = {
	[FS_TYPE_UNKNOWN] = "unknown", [FS_TYPE_FILE] = "file",	  [FS_TYPE_DIR] = "dir",
	[FS_TYPE_LINK] = "link",       [FS_TYPE_FIFO] = "fifo",	  [FS_TYPE_SOCKET] = "socket",
	[FS_TYPE_CHAR] = "char",       [FS_TYPE_BLOCK] = "block",
};

const char *fs_type_name(enum fs_type type)
{
	return type_names[type];
}

enum fs_type fs_type_of_mode(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return FS_TYPE_FILE;
	case S_IFDIR:
		return FS_TYPE_DIR;
	case S_IFLNK:
		return FS_TYPE_LINK;
	case S_IFIFO:
		return FS_TYPE_FIFO;
	case S_IFSOCK:
		return FS_TYPE_SOCKET;
	case S_IFCHR:
		return FS_TYPE_CHAR;
	case S_IFBLK:
		return FS_TYPE_BLOCK;
	}
	return FS_TYPE_UNKNOWN;
}

void fs_record_put(struct mp_buf *out, const struct fs_record *r)
{
	mp_map_begin(out);
	if (r->path)
		mp_kv_str(out, "path", r->path);
	mp_kv_str(out, "type", fs_type_name(r->type));
	if (r->full) {
		mp_kv_uint(out, "mode", r->mode);
		mp_kv_uint(out, "uid", r->uid);
		mp_kv_uint(out, "gid", r->gid);
		mp_kv_uint(out, "size", r->size);
		mp_kv_uint(out, "nlink", r->nlink);
		mp_kv_uint(out, "ino", r->ino);
		mp_kv_uint(out, "dev", r->dev);
		mp_kv_uint(out, "mtime_ns", r->mtime_ns);
		mp_kv_uint(out, "atime_ns", r->atime_ns);
		mp_kv_uint(out, "ctime_ns", r->ctime_ns);
		mp_kv_uint(out, "blocks", r->blocks);
	}
	if (r->target)
		mp_kv_str(out, "target", r->target);
	mp_map_end(out);
}

void fs_record_get(struct mp_reader *r, struct fs_record *out)
{
	char type[16] = "";

	memset(out, 0, sizeof(*out));
	mp_get_str(r, "path", HUTCH_MAX_EVENT, &out->path);
	mp_require(r, "type");
	mp_get_strbuf(r, "type", type, sizeof(type));
	for (unsigned i = FS_TYPE_FILE; i <= FS_TYPE_BLOCK; i++)
		if (strcmp(type, type_names[i]) == 0)
			out->type = (enum fs_type)i;
	out->full = mp_find(r, "mode") != NULL;
	mp_get_u32(r, "mode", 0, 07777, &out->mode);
	mp_get_u32(r, "uid", 0, UINT32_MAX, &out->uid);
	mp_get_u32(r, "gid", 0, UINT32_MAX, &out->gid);
	mp_get_uint(r, "size", 0, HUTCH_MAX_UINT, &out->size);
	mp_get_uint(r, "nlink", 0, HUTCH_MAX_UINT, &out->nlink);
	mp_get_uint(r, "ino", 0, UINT64_MAX, &out->ino);
	mp_get_uint(r, "dev", 0, UINT64_MAX, &out->dev);
	mp_get_uint(r, "mtime_ns", 0, HUTCH_MAX_UINT, &out->mtime_ns);
	mp_get_uint(r, "atime_ns", 0, HUTCH_MAX_UINT, &out->atime_ns);
	mp_get_uint(r, "ctime_ns", 0, HUTCH_MAX_UINT, &out->ctime_ns);
	mp_get_uint(r, "blocks", 0, HUTCH_MAX_UINT, &out->blocks);
	mp_get_str(r, "target", HUTCH_MAX_PATH + 1, &out->target);
}
