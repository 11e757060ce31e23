/* SPDX-License-Identifier: Apache-2.0 */
/* Which files had their digest when they were last looked at. */
#include "host/hutchd/verified.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/log.h"
#include "protocol/limits.h"

#define LINE_MAX_BYTES	  200u
#define VERIFIED_MAX_TEXT ((size_t)VERIFIED_MAX * LINE_MAX_BYTES)

struct verified {
	int state_fd;
	char boot_id[HUTCH_UUID_LEN + 1];
	unsigned count, next; /* a ring once it is full */
	struct verified_file entries[VERIFIED_MAX];
};

static void describe(struct verified_file *e, const struct stat *st)
{
	*e = (struct verified_file){.dev = (uint64_t)st->st_dev,
				    .inode = (uint64_t)st->st_ino,
				    .size = (uint64_t)st->st_size,
				    .mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u +
						(uint64_t)st->st_mtim.tv_nsec};
}

static bool same(const struct verified_file *a, const struct verified_file *b)
{
	return a->inode == b->inode && a->dev == b->dev && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns;
}

int verified_read(int fd, digest_fn *digest, uint64_t *bytes, const atomic_bool *canceled,
		  struct verified_file *out)
{
	struct verified_file after;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	describe(out, &st);
	if (digest(fd, out->digest, bytes, canceled) < 0 || fstat(fd, &st) < 0)
		return -1;
	describe(&after, &st);
	return same(out, &after) ? 0 : 1;
}

static const struct verified_file *find(const struct verified *v, const struct verified_file *file)
{
	for (unsigned i = 0; i < v->count; i++)
		if (same(&v->entries[i], file))
			return &v->entries[i];
	return NULL;
}

void verified_add(struct verified *v, const struct verified_file *file)
{
	if (find(v, file))
		return;
	v->entries[v->next] = *file;
	v->next = (v->next + 1) % VERIFIED_MAX;
	if (v->count < VERIFIED_MAX)
		v->count++;
}

void verified_save(const struct verified *v)
{
	char *text = malloc(VERIFIED_MAX_TEXT + LINE_MAX_BYTES);
	size_t len;

	if (!text)
		return;
	len = (size_t)snprintf(text, LINE_MAX_BYTES, "%s\n", v->boot_id);
	for (unsigned i = 0; i < v->count; i++) {
		const struct verified_file *e = &v->entries[i];

		len += (size_t)snprintf(text + len, LINE_MAX_BYTES,
					"%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
					e->dev, e->inode, e->size, e->mtime_ns, e->digest);
	}
	if (file_write_atomic(v->state_fd, VERIFIED_FILE, text, len, false) < 0)
		log_errno(LOG_LEVEL_WARN, "broker", "cannot write " VERIFIED_FILE);
	free(text);
}

static void parse(struct verified *v, char *text)
{
	char *rest = NULL, *line = strtok_r(text, "\n", &rest);

	if (!line || strcmp(line, v->boot_id) != 0)
		return;
	while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
		struct verified_file e;

		if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %64s", &e.dev,
			   &e.inode, &e.size, &e.mtime_ns, e.digest) == 5)
			verified_add(v, &e);
	}
}

struct verified *verified_load(int state_fd, const char *host_boot_id)
{
	struct verified *v = calloc(1, sizeof(*v));
	size_t len = 0;
	char *text;

	if (!v)
		return NULL;
	v->state_fd = state_fd;
	snprintf(v->boot_id, sizeof(v->boot_id), "%s", host_boot_id);
	text = file_read(state_fd, VERIFIED_FILE, VERIFIED_MAX_TEXT + LINE_MAX_BYTES, &len);
	if (text)
		parse(v, text);
	free(text);
	return v;
}

void verified_free(struct verified *v)
{
	free(v);
}

bool verified_has(const struct verified *v, const struct stat *st, const char *digest)
{
	const struct verified_file *e;
	struct verified_file now;

	describe(&now, st);
	e = find(v, &now);
	return e && strcmp(e->digest, digest) == 0;
}
