/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.*: the parameters of every method in one struct, and a file's record (wire.md section 3, Files).
 *
 * The methods share most of their parameters, so both are tables: one row per parameter says its key, kind and
 * place, one row per method which of them it takes and needs.
 */
#ifndef HUTCH_PROTOCOL_MSG_FS_H
#define HUTCH_PROTOCOL_MSG_FS_H

#include "protocol/msg.h"

enum fs_method {
	FS_STAT,
	FS_EXISTS,
	FS_READLINK,
	FS_STATFS,
	FS_LIST,
	FS_READ,
	FS_TAR_OUT,
	FS_WATCH,
	FS_WRITE,
	FS_APPEND,
	FS_MKDIR,
	FS_REMOVE,
	FS_MOVE,
	FS_COPY,
	FS_SYMLINK,
	FS_LINK,
	FS_CHMOD,
	FS_CHOWN,
	FS_UTIMES,
	FS_TAR_IN,
	FS_METHODS
};

/* Bits of fs_call::given. */
enum fs_param {
	FS_P_USER = 1 << 0,
	FS_P_ROOT = 1 << 1,
	FS_P_PATH = 1 << 2,
	FS_P_TO = 1 << 3,
	FS_P_TARGET = 1 << 4,
	FS_P_OWNER = 1 << 5,
	FS_P_SHA256 = 1 << 6,
	FS_P_IF_SHA256 = 1 << 7,
	FS_P_SYNC = 1 << 8,
	FS_P_FOLLOW = 1 << 9,
	FS_P_STAT = 1 << 10,
	FS_P_RECURSIVE = 1 << 11,
	FS_P_PARENTS = 1 << 12,
	FS_P_ATOMIC = 1 << 13,
	FS_P_TRUNCATE = 1 << 14,
	FS_P_IF_ABSENT = 1 << 15,
	FS_P_MISSING_OK = 1 << 16,
	FS_P_REPLACE = 1 << 17,
	FS_P_PRESERVE = 1 << 18,
	FS_P_KEEP_OWNER = 1 << 19,
	FS_P_MODE = 1 << 20,
	FS_P_UID = 1 << 21,
	FS_P_GID = 1 << 22,
	FS_P_DEPTH = 1 << 23,
	FS_P_OFFSET = 1 << 24,
	FS_P_LENGTH = 1 << 25,
	FS_P_SIZE = 1 << 26,
	FS_P_IF_SIZE = 1 << 27,
	FS_P_MTIME = 1 << 28,
	FS_P_ATIME = 1 << 29,
	FS_P_NAMES = 1 << 30,
	FS_P_EXCLUDE = 1u << 31,
};

enum fs_sync { FS_SYNC_NONE, FS_SYNC_FILE, FS_SYNC_ALL };

#define FS_NO_ID ((uint32_t)-1)

struct fs_call {
	enum fs_method method;
	uint32_t
		given; /* FS_P_*: what the caller gave; the rest holds its default, NULL for texts */
	const char *user, *root, *path, *to, *target, *owner;
	const char *sha256, *if_sha256; /* 64 lower-case hex digits */
	enum fs_sync sync;
	bool follow, stat, recursive, parents, atomic, truncate, if_absent, missing_ok, replace,
		preserve, keep_owner;
	uint32_t mode;	   /* 0 to 07777 */
	uint32_t uid, gid; /* FS_NO_ID: not given */
	uint32_t depth;	   /* 0: all */
	uint64_t offset, length, size, if_size, mtime_ns,
		atime_ns;	 /* length, size: HUTCH_MAX_UINT */
	char **names, **exclude; /* NULL-terminated; NULL when not given */
	size_t nnames, nexclude;
	struct mp_doc doc;
};

/* The method of that name ("fs.stat"); -1: there is none. */
int fs_method_find(const char *name);
const char *fs_method_name(enum fs_method method);
/* The texts live until fs_call_free, which is needed in any case. -1 with err. */
int fs_call_decode(struct fs_call *m, enum fs_method method, const void *params, size_t len,
		   struct hutch_error *err);
void fs_call_free(struct fs_call *m);
/* A params map of what is given and belongs to the method. */
void fs_call_encode_params(struct mp_buf *out, const struct fs_call *m);

enum fs_type {
	FS_TYPE_UNKNOWN,
	FS_TYPE_FILE,
	FS_TYPE_DIR,
	FS_TYPE_LINK,
	FS_TYPE_FIFO,
	FS_TYPE_SOCKET,
	FS_TYPE_CHAR,
	FS_TYPE_BLOCK,
};
const char *fs_type_name(enum fs_type type);
/* Of a mode as in struct stat (S_IFMT). */
enum fs_type fs_type_of_mode(uint32_t mode);

struct fs_record {
	const char *path; /* NULL: none */
	enum fs_type type;
	bool full; /* the rest is known */
	uint32_t mode, uid, gid;
	uint64_t size, nlink, ino, dev, blocks, mtime_ns, atime_ns, ctime_ns;
	const char *target; /* links; NULL: none */
};
/* The whole map. */
void fs_record_put(struct mp_buf *out, const struct fs_record *r);
/* From the map that r is on; the texts live in its doc. */
void fs_record_get(struct mp_reader *r, struct fs_record *out);

#endif
