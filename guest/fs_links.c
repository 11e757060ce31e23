/* SPDX-License-Identifier: Apache-2.0 */
/* Files with several names; see fs_links.h. */
#include "guest/fs_links.h"

#include <stdlib.h>
#include <string.h>

#include "guest/limits.h"

struct fs_link {
	struct fs_link *next;
	dev_t dev;
	ino_t ino;
	char path[];
};

const char *fs_links_met(struct fs_links *l, const struct stat *st, const char *path)
{
	struct fs_link **at = &l->bucket[st->st_ino % FS_LINKS_BUCKETS], *e;
	size_t n = strlen(path) + 1;

	if (st->st_nlink < 2 || S_ISDIR(st->st_mode))
		return NULL;
	for (e = *at; e; e = e->next)
		if (e->ino == st->st_ino && e->dev == st->st_dev)
			return e->path;
	if (l->bytes + n > AGENT_LINKS_BYTES || !(e = malloc(sizeof(*e) + n)))
		return NULL;
	l->bytes += sizeof(*e) + n;
	e->next = *at;
	e->dev = st->st_dev;
	e->ino = st->st_ino;
	memcpy(e->path, path, n);
	*at = e;
	return NULL;
}

void fs_links_free(struct fs_links *l)
{
	for (unsigned i = 0; i < FS_LINKS_BUCKETS; i++) {
		while (l->bucket[i]) {
			struct fs_link *e = l->bucket[i];

			l->bucket[i] = e->next;
			free(e);
		}
	}
	l->bytes = 0;
}
