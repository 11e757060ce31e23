/* SPDX-License-Identifier: Apache-2.0 */
/* Mode, owner and times of what is found by name, without following a link. */
#ifndef HUTCH_GUEST_FS_ATTR_H
#define HUTCH_GUEST_FS_ATTR_H

#include <sys/stat.h>

/* chmod(2) of name in dir; a link is left alone. 0, or -1 with errno. */
int fs_chmod_at(int dir, const char *name, mode_t mode);

#endif
