/* SPDX-License-Identifier: Apache-2.0 */
/* ID:PATH, a file in a VM. */
#ifndef HUTCH_REMOTE_H
#define HUTCH_REMOTE_H

#include <stdbool.h>

/* Is word of this form? A path of this machine with a colon is written with a / before it: ./a:b. */
bool remote_is(const char *word);
/* Cut it at the colon; *path is what follows, "/" when that is empty. */
void remote_split(char *word, const char **vm, const char **path);
/* The last component of path, "/" for the root; to be freed. NULL: memory is short. */
char *path_base(const char *path);
/* What it lies in: "/" or "." at the end of the way; to be freed. NULL: memory is short. */
char *path_dir(const char *path);
char *path_join(const char *dir, const char *base);

#endif
