/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of this machine, as an archive that is sent while it is made.
 *
 * Each member is a pax header with what ustar cannot say (always the exact time; long names and
 * targets, large sizes, holes) and a ustar header. Files are opened relative to their directory
 * without following links, so that a tree that changes meanwhile leads nowhere else. A file that
 * shrinks is filled up with zeros, as its size was sent before.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/hutch/tarout.h"

#define BLOCK	  512
#define MAX_NAME  100		  /* of a ustar header */
#define MAX_OCTAL 077777777777ull /* eleven digits */
#define MAX_DEPTH 1024
#define MAX_HOLES 4096 /* parts of a sparse file; one with more is sent whole */

struct link {
	dev_t dev;
	ino_t ino;
	char *name;
};

struct part {
	uint64_t at, len;
};

struct walk {
	struct tarout *t;
	struct link *links;
	size_t link_count, link_room;
	char *buf; /* XFER_PIECE */
};

struct text {
	char *data;
	size_t len, room;
	bool failed;
};

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

struct member {
	const char *name, *target; /* target: of a link or hard link, else NULL */
	char type;		   /* '0' file '1' hard link '2' link '5' directory '6' fifo */
	uint64_t size;		   /* of the data in the archive */
	struct stat st;
	const struct part *parts; /* of a sparse file; NULL: it is none */
	size_t part_count;
};

/* ---- Headers ---- */

static void text_add(struct text *t, const void *p, size_t n)
{
	if (n == 0)
		return;
	if (t->data == NULL || t->len + n > t->room) {
		size_t room = 2 * (t->len + n);
		char *data = realloc(t->data, room);

		if (data == NULL) {
			t->failed = true;
			return;
		}
		t->data = data;
		t->room = room;
	}
	memcpy(t->data + t->len, p, n);
	t->len += n;
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void pax_record(struct text *t, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, len = body + 1;
	char number[24];
	int n;

	while ((n = snprintf(number, sizeof(number), "%zu", len)), body + (size_t)n != len)
		len = body + (size_t)n;
	text_add(t, number, (size_t)n);
	text_add(t, " ", 1);
	text_add(t, key, strlen(key));
	text_add(t, "=", 1);
	text_add(t, value, strlen(value));
	text_add(t, "\n", 1);
}

static void pax_number(struct text *t, const char *key, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, n);
	pax_record(t, key, text);
}

static void octal(char *field, size_t size, uint64_t n)
{
	char text[32];

	snprintf(text, sizeof(text), "%0*" PRIo64, (int)size - 1, n);
	memcpy(field, text, size);
}

static void cut(char *field, size_t size, const char *text)
{
	size_t n = strnlen(text, size);

	memcpy(field, text, n);
}

static int send_header(struct walk *w, const char *name, const char *target, char type,
		       unsigned mode, uint64_t size, int64_t mtime)
{
	struct header h = {.type = type};
	const unsigned char *p = (const unsigned char *)&h;
	unsigned sum = 0;

	_Static_assert(sizeof(h) == BLOCK, "a header is a block");
	cut(h.name, sizeof(h.name), name);
	cut(h.target, sizeof(h.target), target ? target : "");
	octal(h.mode, sizeof(h.mode), mode);
	octal(h.uid, sizeof(h.uid), 0);
	octal(h.gid, sizeof(h.gid), 0);
	octal(h.size, sizeof(h.size), size <= MAX_OCTAL ? size : 0);
	octal(h.mtime, sizeof(h.mtime),
	      mtime > 0 && (uint64_t)mtime <= MAX_OCTAL ? (uint64_t)mtime : 0);
	memcpy(h.magic, "ustar", 6);
	memcpy(h.version, "00", 2);
	memset(h.sum, ' ', sizeof(h.sum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += p[i];
	octal(h.sum, 7, sum);
	return xfer_send(w->t->x, &h, sizeof(h));
}

static int send_padding(struct walk *w, uint64_t size)
{
	static const char zeros[BLOCK];

	return xfer_send(w->t->x, zeros, (BLOCK - size % BLOCK) % BLOCK);
}

static void pax_fields(struct text *t, const struct member *m)
{
	char time[48];

	snprintf(time, sizeof(time), "%lld.%09ld", (long long)m->st.st_mtim.tv_sec,
		 m->st.st_mtim.tv_nsec);
	if (m->st.st_mtim.tv_sec >= 0)
		pax_record(t, "mtime", time);
	if (m->parts != NULL) {
		pax_record(t, "GNU.sparse.major", "1");
		pax_record(t, "GNU.sparse.minor", "0");
		pax_record(t, "GNU.sparse.name", m->name);
		pax_number(t, "GNU.sparse.realsize", (uint64_t)m->st.st_size);
	}
	pax_record(t, "path", m->name);
	if (m->target != NULL)
		pax_record(t, "linkpath", m->target);
	if (m->size > MAX_OCTAL)
		pax_number(t, "size", m->size);
}

static int no_memory(struct walk *w)
{
	xfer_quiet(w->t->x);
	w->t->x->status = cli_error(w->t->x->cli, "io", ENOMEM, "no memory for the archive");
	w->t->x->over = true;
	return -1;
}

static int send_member(struct walk *w, const struct member *m)
{
	unsigned mode = m->st.st_mode & (w->t->setid ? 07777 : 01777);
	struct text t = {0};
	int r;

	pax_fields(&t, m);
	if (t.failed) {
		free(t.data);
		return no_memory(w);
	}
	r = send_header(w, "././@PaxHeader", NULL, 'x', 0644, t.len, 0);
	if (r == 0)
		r = xfer_send(w->t->x, t.data, t.len);
	if (r == 0)
		r = send_padding(w, t.len);
	free(t.data);
	if (r == 0)
		r = send_header(w, m->name, m->target, m->type, mode, m->size,
				m->st.st_mtim.tv_sec);
	return r;
}

/* ---- Files ---- */

static void unread(struct walk *w, const char *name, const char *what)
{
	xfer_quiet(w->t->x);
	cli_note("%s: %s: %s", name, what, strerror(errno));
	w->t->unread++;
}

/* len bytes from at; what the file does not have any more is sent as zeros. */
static int send_range(struct walk *w, int fd, const char *name, uint64_t at, uint64_t len)
{
	bool gone = false;

	while (len > 0) {
		size_t want = len < XFER_PIECE ? (size_t)len : XFER_PIECE;
		ssize_t n = gone ? 0 : pread(fd, w->buf, want, (off_t)at);

		if (n <= 0 && !gone) {
			errno = n < 0 ? errno : EIO;
			unread(w, name, "it became shorter, or cannot be read on");
			gone = true;
		}
		if (gone) {
			memset(w->buf, 0, want);
			n = (ssize_t)want;
		}
		if (xfer_send(w->t->x, w->buf, (size_t)n) < 0)
			return -1;
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* Where a file has data. 0: it has no holes, or too many, or that cannot be told. */
static size_t find_parts(int fd, uint64_t size, struct part *parts)
{
	size_t n = 0;
	off_t at = 0, end;

	for (;; at = end) {
		at = lseek(fd, at, SEEK_DATA);
		if (at < 0 && errno == ENXIO)
			break;
		if (at < 0 || n == MAX_HOLES)
			return 0;
		if ((uint64_t)at >= size)
			break;
		end = lseek(fd, at, SEEK_HOLE);
		if (end < 0)
			return 0;
		if ((uint64_t)end > size)
			end = (off_t)size;
		parts[n++] = (struct part){(uint64_t)at, (uint64_t)(end - at)};
	}
	if (n == 1 && parts[0].at == 0 && parts[0].len == size)
		return 0;
	/* The end of the file is said by a part of no length. */
	if (n == 0 || parts[n - 1].at + parts[n - 1].len < size)
		parts[n++] = (struct part){size, 0};
	return n;
}

/* GNU.sparse 1.0: before the data, in decimal, the count of parts, and where each is. */
static int send_map(struct walk *w, struct member *m)
{
	struct text t = {0};
	char line[64];
	int n, r;

	n = snprintf(line, sizeof(line), "%zu\n", m->part_count);
	text_add(&t, line, (size_t)n);
	for (size_t i = 0; i < m->part_count; i++) {
		n = snprintf(line, sizeof(line), "%" PRIu64 "\n%" PRIu64 "\n", m->parts[i].at,
			     m->parts[i].len);
		text_add(&t, line, (size_t)n);
		m->size += m->parts[i].len;
	}
	if (t.failed) {
		free(t.data);
		return no_memory(w);
	}
	m->size += (t.len + BLOCK - 1) / BLOCK * BLOCK;
	r = send_member(w, m);
	if (r == 0)
		r = xfer_send(w->t->x, t.data, t.len);
	if (r == 0)
		r = send_padding(w, t.len);
	free(t.data);
	return r;
}

static int send_sparse(struct walk *w, int fd, struct member *m)
{
	m->size = 0;
	if (send_map(w, m) < 0)
		return -1;
	for (size_t i = 0; i < m->part_count; i++)
		if (send_range(w, fd, m->name, m->parts[i].at, m->parts[i].len) < 0)
			return -1;
	return send_padding(w, m->size);
}

/* Shared by the functions below: one file is looked at at a time. */
static struct part found[MAX_HOLES + 1];

static size_t holes(int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;

	return (uint64_t)st->st_blocks * BLOCK < size ? find_parts(fd, size, found) : 0;
}

bool tarout_has_holes(int fd, const struct stat *st)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	bool any = holes(fd, st) > 0;

	return lseek(fd, at, SEEK_SET) == at && any;
}

static int send_file(struct walk *w, int fd, struct member *m)
{
	uint64_t size = (uint64_t)m->st.st_size;
	size_t n = holes(fd, &m->st);

	if (n > 0) {
		m->parts = found;
		m->part_count = n;
		return send_sparse(w, fd, m);
	}
	m->size = size;
	if (send_member(w, m) < 0 || send_range(w, fd, m->name, 0, size) < 0)
		return -1;
	return send_padding(w, size);
}

/* ---- The tree ---- */

/* The name that an earlier member has for the same file; NULL: none, and it is noted now. */
static const char *linked(struct walk *w, const struct member *m)
{
	if (m->st.st_nlink < 2)
		return NULL;
	for (size_t i = 0; i < w->link_count; i++)
		if (w->links[i].dev == m->st.st_dev && w->links[i].ino == m->st.st_ino)
			return w->links[i].name;
	if (w->link_count == w->link_room) {
		size_t room = w->link_room ? 2 * w->link_room : 64;
		struct link *p = realloc(w->links, room * sizeof(*p));

		if (p == NULL)
			return NULL;
		w->links = p;
		w->link_room = room;
	}
	w->links[w->link_count] = (struct link){m->st.st_dev, m->st.st_ino, strdup(m->name)};
	if (w->links[w->link_count].name != NULL)
		w->link_count++;
	return NULL;
}

static int send_regular(struct walk *w, int dir, const char *base, struct member *m)
{
	int fd, r;

	m->target = linked(w, m);
	if (m->target != NULL) {
		m->type = '1';
		return send_member(w, m);
	}
	m->type = '0';
	fd = openat(dir, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &m->st) < 0 || !S_ISREG(m->st.st_mode)) {
		unread(w, m->name, "cannot open it");
		r = 0;
	} else {
		r = send_file(w, fd, m);
	}
	if (fd >= 0)
		close(fd);
	return r;
}

static int send_link(struct walk *w, int dir, const char *base, struct member *m)
{
	char target[4097];
	ssize_t n = readlinkat(dir, base, target, sizeof(target) - 1);
	int r;

	if (n < 0) {
		unread(w, m->name, "cannot read the link");
		return 0;
	}
	target[n] = '\0';
	m->target = target;
	m->type = '2';
	r = send_member(w, m);
	m->target = NULL;
	return r;
}

static int send_dir(struct walk *w, int fd, const char *name, unsigned depth);

static int send_entry(struct walk *w, int dir, const char *base, const char *name, unsigned depth)
{
	struct member m = {.name = name};
	int fd;

	if (fstatat(dir, base, &m.st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			unread(w, name, "cannot look at it");
		return 0;
	}
	switch (m.st.st_mode & S_IFMT) {
	case S_IFREG:
		return send_regular(w, dir, base, &m);
	case S_IFLNK:
		return send_link(w, dir, base, &m);
	case S_IFIFO:
		m.type = '6';
		return send_member(w, &m);
	case S_IFDIR:
		fd = openat(dir, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0)
			return send_dir(w, fd, name, depth + 1);
		unread(w, name, "cannot open the directory");
		return 0;
	default:
		w->t->left_out++;
		return 0;
	}
}

static char *below(const char *dir, const char *base)
{
	char *name = NULL;

	return asprintf(&name, "%s/%s", dir, base) < 0 ? NULL : name;
}

static int send_contents(struct walk *w, DIR *d, const char *name, unsigned depth)
{
	struct dirent *e;
	char *path;
	int r = 0;

	while (r == 0 && (errno = 0, e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		path = below(name, e->d_name);
		r = path != NULL ? send_entry(w, dirfd(d), e->d_name, path, depth) : no_memory(w);
		free(path);
	}
	if (r == 0 && errno != 0)
		unread(w, name, "cannot read the directory on");
	return r;
}

/* fd becomes the directory's. */
static int send_dir(struct walk *w, int fd, const char *name, unsigned depth)
{
	char *slashed = below(name, "");
	struct member m = {.name = slashed, .type = '5'};
	DIR *d = fdopendir(fd);
	int r = 0;

	if (slashed == NULL || d == NULL) {
		r = no_memory(w);
	} else if (depth > MAX_DEPTH) {
		errno = ELOOP;
		unread(w, name, "it is too deep");
	} else if (fstat(fd, &m.st) < 0) {
		unread(w, name, "cannot look at it");
	} else {
		r = send_member(w, &m);
		if (r == 0)
			r = send_contents(w, d, name, depth);
	}
	free(slashed);
	if (d != NULL)
		closedir(d);
	else
		close(fd);
	return r;
}

static const char archive_end[2 * BLOCK];

int tarout_send_file(struct tarout *t, int fd, const char *name)
{
	struct walk w = {.t = t, .buf = malloc(XFER_PIECE)};
	struct member m = {.name = name, .type = '0'};
	int r;

	if (w.buf == NULL)
		r = no_memory(&w);
	else if (fstat(fd, &m.st) < 0)
		r = (unread(&w, name, "cannot look at it"), 0);
	else
		r = send_file(&w, fd, &m);
	if (r == 0)
		r = xfer_send(t->x, archive_end, sizeof(archive_end));
	free(w.buf);
	return r;
}

int tarout_send(struct tarout *t, const char *path, const char *name)
{
	struct walk w = {.t = t, .buf = malloc(XFER_PIECE)};
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (w.buf == NULL)
		r = no_memory(&w);
	else if (fd < 0)
		r = (unread(&w, path, "cannot open the directory"), 0);
	else
		r = send_dir(&w, fd, name, 0);
	if (r == 0)
		r = xfer_send(t->x, archive_end, sizeof(archive_end));
	while (w.link_count > 0)
		free(w.links[--w.link_count].name);
	free(w.links);
	free(w.buf);
	return r;
}
