/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of fs.* in its worker process: what all methods share.
 *
 * A method's function reads its params, takes input (fs_in_*), sends output (fs_out_*) and the RESULT, and returns 0;
 * or it fails with fs->err set and returns -1. Input and output block. When the connection breaks, they return
 * -1 and fs->lost is set: the function cleans up and returns, whatever it returns then.
 */
#ifndef HUTCH_GUEST_FS_H
#define HUTCH_GUEST_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "guest/fs_path.h"
#include "protocol/msg_fs.h"

struct fs {
	int conn;
	struct fs_call p;
	struct hutch_error err;
	struct fs_root root;
	bool lost;	   /* the connection broke */
	bool broken;	   /* the peer broke the protocol; err says how */
	bool left_user;	   /* this process is another user's now */
	struct mp_buf map; /* the map that is being made */
	size_t map_start;
	struct mp_buf errors; /* entries for the RESULT */
	uint32_t error_count;
};

typedef int fs_fn(struct fs *fs);
fs_fn fs_stat, fs_exists, fs_readlink, fs_statfs, fs_list, fs_read, fs_tar_out, fs_watch, fs_write,
	fs_append, fs_mkdir, fs_remove, fs_move, fs_copy, fs_symlink, fs_link, fs_chmod, fs_chown,
	fs_utimes, fs_tar_in;

/* Failures */

/* From errno: the kind, and "WHAT PATH: why". Always -1. path NULL: p.path. */
int fs_fail(struct fs *fs, const char *what, const char *path);
/* The same with an errno that is given. */
int fs_fail_errno(struct fs *fs, int errnum, const char *what, const char *path);
/* HUTCH_E_INVALID: "PATH is not a regular file" and such. Always -1. */
int fs_refuse(struct fs *fs, const char *path, const char *why);
/* Keep {path, errno} for the RESULT's "errors"; the first 100 are kept, all are counted. */
void fs_note(struct fs *fs, const char *path, int errnum);

/* Input: the bytes of STDIN (fs_io.c) */

/* The next piece, at most max bytes, in the input's own buffer. Its length; 0 at the caller's END; -1. */
ssize_t fs_in_next(struct fs *fs, const uint8_t **p, size_t max);
/* The same, received right to where it belongs. errno EFAULT: that cannot be, or it was received before; it is still to come. */
ssize_t fs_in_into(struct fs *fs, uint8_t *to, size_t max);
/* Nothing was received that was not handed out. */
bool fs_in_drained(void);
/* There is something to read: read it once and pass over it. 0 with *ended: END was there; or -1. */
int fs_in_discard(struct fs *fs, bool *ended);
bool fs_in_ended(void);

/* Output */

/* Room for at most 64 KiB - 8 bytes of STDOUT; fs_out_added says how many were put there. NULL: fs->lost. */
uint8_t *fs_out_room(struct fs *fs, size_t *n);
void fs_out_added(size_t n);
int fs_out_bytes(struct fs *fs, const void *p, size_t n);
/*
 * STDOUT of FS_DIRECT bytes that lie in a mapped file; nothing is copied on the way. How many were sent: fewer where
 * the file was cut. -1: fs->lost, or it was cut in a frame that was on its way (err says so).
 */
#define FS_DIRECT (4u * (65536u - HUTCH_FRAME_HEADER))
int fs_out_direct(struct fs *fs, const uint8_t *p);
/* A map: fs_map_begin, keys and values into fs->map, fs_map_end with the frame's type (and END for a RESULT). */
void fs_map_begin(struct fs *fs);
int fs_map_end(struct fs *fs, enum frame_type type);
/* The same for a map that was put whole behind mp_frame_begin at map_start. */
int fs_frame_end(struct fs *fs, enum frame_type type);
/* A RESULT with "errors" and "error_count" behind what fs->map holds. */
int fs_result(struct fs *fs);
int fs_result_empty(struct fs *fs);
/* Send what is buffered. */
int fs_out_flush(struct fs *fs);

/* False once the peer closed the connection: what takes long asks now and then, and stops. */
bool fs_peer_waits(struct fs *fs);

/* A record of st; target NULL: none. */
void fs_put_stat(struct mp_buf *out, const struct stat *st, const char *path, const char *target);

#endif
