/* SPDX-License-Identifier: Apache-2.0 */
/* Between fs_io.c and fs_serve.c: the start and the end of a call's input and output. */
#ifndef HUTCH_GUEST_FS_IO_H
#define HUTCH_GUEST_FS_IO_H

#include "guest/fs.h"
#include "guest/worker.h"

/* ended: the CALL carried END; bytes: what was received behind it, at most AGENT_READ_CHUNK + a header. */
void fs_in_start(bool ended, const uint8_t *bytes, size_t n);
/* Where in the input the call stopped; what is buffered is skipped. -1: more came than a call may send. */
int fs_in_rest(struct fs *fs, bool *ended, struct conn_rest *rest);
void fs_out_start(void);
/* The frames in fs->map. */
int fs_out_map(struct fs *fs);

#endif
