/* SPDX-License-Identifier: Apache-2.0 */
/* Tar archives: headers; see tar.h. */
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "guest/tar.h"

/* A ustar header (POSIX.1-2017 pax, "ustar Interchange Format"). */
struct ustar {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a header is one block");

/* n - 1 octal digits and a NUL; false: it does not fit. */
static bool octal(char *p, size_t n, uint64_t v)
{
	for (p[--n] = '\0'; n > 0; v >>= 3)
		p[--n] = (char)('0' + (v & 7));
	return v == 0;
}

struct pax {
	uint8_t *p;
	size_t len;
};

size_t tar_put_number(uint8_t *p, uint64_t v)
{
	return (size_t)snprintf((char *)p, 22, "%llu\n", (unsigned long long)v);
}

/* "LENGTH KEY=VALUE\n", in which the length counts its own digits. */
static void record(struct pax *x, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, n = rest + 1;
	char digits[24];

	while (n != rest + (size_t)snprintf(digits, sizeof(digits), "%zu", n))
		n = rest + strlen(digits);
	x->len += (size_t)snprintf((char *)x->p + x->len, n + 1, "%s %s=%s\n", digits, key, value);
}

static void record_number(struct pax *x, const char *key, uint64_t v)
{
	char text[24];

	text[tar_put_number((uint8_t *)text, v) - 1] = '\0';
	record(x, key, text);
}

static void record_mtime(struct pax *x, const struct timespec *ts)
{
	long long sec = ts->tv_sec;
	long nsec = ts->tv_nsec;
	char text[48];

	if (sec < 0 && nsec) { /* "-0.5" is half a second before the epoch */
		sec++;
		nsec = 1000000000 - nsec;
	}
	snprintf(text, sizeof(text), "%s%llu.%09u", ts->tv_sec < 0 ? "-" : "",
		 (unsigned long long)(sec < 0 ? -sec : sec), (unsigned)nsec);
	record(x, "mtime", text);
}

static void finish(struct ustar *u)
{
	const uint8_t *p = (const uint8_t *)u;
	unsigned sum = 0;

	memcpy(u->magic,
	       "ustar\0"
	       "00",
	       8);
	memset(u->checksum, ' ', sizeof(u->checksum));
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += p[i];
	octal(u->checksum, 7, sum);
}

/* A text without its NUL when it fills the field; false: it does not fit. */
static bool text(char *p, size_t n, const char *s)
{
	size_t len = strlen(s);

	memcpy(p, s, len < n ? len : n);
	return len <= n;
}

/* What u can say of e; the rest into x. */
static void fill(struct ustar *u, struct pax *x, const struct tar_entry *e, uint64_t data,
		 bool sparse)
{
	octal(u->mode, 8, e->mode);
	u->type = e->type;
	if (!text(u->name, 100, e->path) && !sparse)
		record(x, "path", e->path);
	if (!text(u->link, 100, e->link))
		record(x, "linkpath", e->link);
	if (!octal(u->uid, 8, e->uid))
		record_number(x, "uid", e->uid);
	if (!octal(u->gid, 8, e->gid))
		record_number(x, "gid", e->gid);
	if (!octal(u->size, 12, data))
		record_number(x, "size", data);
	if (!octal(u->mtime, 12, e->mtime.tv_sec < 0 ? 0 : (uint64_t)e->mtime.tv_sec) ||
	    e->mtime.tv_sec < 0 || e->mtime.tv_nsec)
		record_mtime(x, &e->mtime);
	if (sparse) {
		record(x, "GNU.sparse.major", "1");
		record(x, "GNU.sparse.minor", "0");
		record(x, "GNU.sparse.name", e->path);
		record_number(x, "GNU.sparse.realsize", e->size);
	}
}

size_t tar_put(uint8_t h[TAR_MAX_HEAD], const struct tar_entry *e, uint64_t data, bool sparse,
	       dev_t dev)
{
	struct ustar u = {0}, xu = {.type = 'x'};
	struct pax x = {h + TAR_BLOCK, 0};
	size_t blocks = 0;

	fill(&u, &x, e, data, sparse);
	octal(u.major, 8, major(dev));
	octal(u.minor, 8, minor(dev));
	finish(&u);
	if (x.len) {
		blocks = (x.len + TAR_BLOCK - 1) / TAR_BLOCK;
		memset(x.p + x.len, 0, blocks * TAR_BLOCK - x.len);
		strcpy(xu.name, "././@PaxHeader");
		octal(xu.mode, 8, 0644);
		octal(xu.size, 12, x.len);
		octal(xu.uid, 8, 0);
		octal(xu.gid, 8, 0);
		octal(xu.mtime, 12, 0);
		finish(&xu);
		memcpy(h, &xu, TAR_BLOCK);
		blocks = (blocks + 1) * TAR_BLOCK;
	}
	memcpy(h + blocks, &u, TAR_BLOCK);
	return blocks + TAR_BLOCK;
}
