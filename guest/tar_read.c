/* SPDX-License-Identifier: Apache-2.0 */
/* Tar archives: reading; see tar.h. Everything in an archive may be a lie. */
#include <stdlib.h>
#include <string.h>

#include "guest/tar.h"

/* Fields of a header: where and how long. */
enum {
	NAME = 0,
	MODE = 100,
	UID = 108,
	GID = 116,
	SIZE = 124,
	MTIME = 136,
	CHECKSUM = 148,
	TYPE = 156,
	LINK = 157,
	MAGIC = 257,
	PREFIX = 345,
	/* old GNU: stretches of 24 bytes in the header, then in further blocks */
	GNU_MAP = 386,
	GNU_MORE = 482,
	GNU_SIZE = 483,
	GNU_BLOCK_MORE = 504,
};

static int wrong(struct tar_reader *r, const char *what)
{
	r->wrong = what;
	return -1;
}

/* Bytes */

/* Exactly n bytes. 1; 0: the archive ended before the first; -1. */
static int take(struct tar_reader *r, void *buf, size_t n)
{
	uint8_t *to = buf;

	for (size_t have = 0; have < n;) {
		const uint8_t *p;
		ssize_t got = r->next(r->arg, &p, n - have);

		if (got < 0)
			return wrong(r, NULL);
		if (got == 0)
			return have ? wrong(r, "it ends inside of a block") : 0;
		memcpy(to + have, p, (size_t)got);
		have += (size_t)got;
	}
	return 1;
}

static int must_take(struct tar_reader *r, void *buf, size_t n)
{
	int ret = take(r, buf, n);

	return ret == 0 ? wrong(r, "it ends inside of a member") : ret < 0 ? -1 : 0;
}

static int skip(struct tar_reader *r, uint64_t n)
{
	while (n > 0) {
		const uint8_t *p;
		ssize_t got = r->next(r->arg, &p, n < SIZE_MAX ? (size_t)n : SIZE_MAX);

		if (got <= 0)
			return wrong(r, got < 0 ? NULL : "it ends inside of a member");
		n -= (uint64_t)got;
	}
	return 0;
}

static uint64_t padding(uint64_t size)
{
	return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK;
}

/* Numbers */

/* GNU's base 256, two's complement behind a first bit that is set. */
static int64_t base256(const uint8_t *p, size_t n)
{
	uint64_t v = p[0] & 0x40 ? (uint64_t)-1 << 6 | (p[0] & 0x3f) : p[0] & 0x3f;

	for (size_t i = 1; i < n; i++) {
		if ((v + (1ull << 54)) >> 55) /* eight bits more do not fit */
			return INT64_MAX;
		v = v << 8 | p[i];
	}
	return (int64_t)v;
}

/* Octal between blanks, or base 256; what does not fit is read as the largest. */
static int64_t number_signed(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	if (p[0] & 0x80)
		return base256(p, n);
	while (n && *p == ' ')
		p++, n--;
	for (; n && *p >= '0' && *p <= '7'; p++, n--)
		v = v >> 60 ? INT64_MAX : v << 3 | (uint64_t)(*p - '0');
	return (int64_t)v;
}

/* A negative one is no size and no id, and read as 0. */
static uint64_t number(const uint8_t *p, size_t n)
{
	int64_t v = number_signed(p, n);

	return v < 0 ? 0 : (uint64_t)v;
}

/* Decimal; *end is behind it. */
static uint64_t decimal(const char *s, const char **end)
{
	uint64_t v = 0;

	for (; *s >= '0' && *s <= '9'; s++)
		v = v > INT64_MAX / 10 - 1 ? INT64_MAX / 10 : v * 10 + (uint64_t)(*s - '0');
	*end = s;
	return v;
}

/* Seconds with a fraction. */
static struct timespec pax_time(const char *s)
{
	bool negative = *s == '-';
	struct timespec ts;
	long scale = 100000000;

	ts.tv_sec = (time_t)decimal(s + negative, &s);
	ts.tv_nsec = 0;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9' && scale; s++, scale /= 10)
			ts.tv_nsec += (*s - '0') * scale;
	if (negative) {
		ts.tv_sec = -ts.tv_sec - (ts.tv_nsec > 0);
		ts.tv_nsec = ts.tv_nsec ? 1000000000 - ts.tv_nsec : 0;
	}
	return ts;
}

/* Text of at most n bytes. */
static void field(char *out, const uint8_t *p, size_t n)
{
	n = strnlen((const char *)p, n);
	memcpy(out, p, n);
	out[n] = '\0';
}

static bool checksum_fits(const uint8_t *h)
{
	uint64_t want = number(h + CHECKSUM, 8);
	uint32_t sum = 0;
	int32_t sum_signed = 0; /* as some old programs made it */

	for (size_t i = 0; i < TAR_BLOCK; i++) {
		uint8_t b = i >= CHECKSUM && i < CHECKSUM + 8 ? ' ' : h[i];

		sum += b;
		sum_signed += (int8_t)b;
	}
	return want == sum || (int64_t)want == sum_signed;
}

/* Sparse files */

static int add_stretch(struct tar_reader *r, uint64_t at, uint64_t size)
{
	const struct tar_stretch *last = r->nmap ? &r->map[r->nmap - 1] : NULL;

	if (at > INT64_MAX - size || (last && at < last->at + last->size))
		return wrong(r, "the map of a sparse file is not in order");
	if (r->nmap == TAR_MAX_STRETCHES)
		return wrong(r, "a sparse file has too many pieces");
	if (!r->map || r->nmap == r->cap_map) {
		uint32_t cap = r->cap_map ? 2 * r->cap_map : 64;
		struct tar_stretch *grown = realloc(r->map, cap * sizeof(*grown));

		if (!grown)
			return wrong(r, "there is no memory for the map of a sparse file");
		r->map = grown;
		r->cap_map = cap;
	}
	r->map[r->nmap++] = (struct tar_stretch){at, size};
	return 0;
}

static int gnu_stretches(struct tar_reader *r, const uint8_t *p, unsigned n)
{
	for (; n > 0 && p[12]; n--, p += 24)
		if (add_stretch(r, number(p, 12), number(p + 12, 12)) < 0)
			return -1;
	return 0;
}

/* Old GNU: type 'S'. */
static int gnu_sparse(struct tar_reader *r, struct tar_entry *e, const uint8_t *h)
{
	uint8_t block[TAR_BLOCK];
	bool more = h[GNU_MORE];

	e->size = number(h + GNU_SIZE, 12);
	e->type = '0';
	r->sparse = true;
	if (gnu_stretches(r, h + GNU_MAP, 4) < 0)
		return -1;
	while (more) {
		if (must_take(r, block, sizeof(block)) < 0 || gnu_stretches(r, block, 21) < 0)
			return -1;
		more = block[GNU_BLOCK_MORE];
	}
	return 0;
}

/* A line with a number, from blocks before the data. */
static int map_number(struct tar_reader *r, uint8_t *block, size_t *at, uint64_t *v)
{
	for (unsigned digits = 0, c; digits < 20; digits++) {
		if (*at == TAR_BLOCK) {
			if (r->left < TAR_BLOCK || must_take(r, block, TAR_BLOCK) < 0)
				break;
			r->left -= TAR_BLOCK;
			*at = 0;
		}
		c = block[(*at)++];
		if (c == '\n')
			return 0;
		if (c < '0' || c > '9')
			break;
		*v = digits ? *v * 10 + (c - '0') : c - '0';
	}
	return r->wrong ? -1 : wrong(r, "the map of a sparse file is unreadable");
}

/* pax 1.0: the map is the start of the data. */
static int pax_sparse(struct tar_reader *r)
{
	uint64_t n = 0, at = 0, size = 0;
	uint8_t block[TAR_BLOCK];
	size_t used = TAR_BLOCK;

	r->sparse = true;
	r->wrong = NULL;
	if (map_number(r, block, &used, &n) < 0)
		return -1;
	for (; n > 0; n--)
		if (map_number(r, block, &used, &at) < 0 ||
		    map_number(r, block, &used, &size) < 0 || add_stretch(r, at, size) < 0)
			return -1;
	return 0;
}

/* The stretches must hold just what is in the archive, inside of the file. */
static int check_map(struct tar_reader *r, const struct tar_entry *e)
{
	uint64_t data = 0;

	for (uint32_t i = 0; i < r->nmap; i++)
		data += r->map[i].size;
	if (data != r->left ||
	    (r->nmap && r->map[r->nmap - 1].at + r->map[r->nmap - 1].size > e->size))
		return wrong(r, "the map of a sparse file does not fit its data");
	return 0;
}

/* Extended headers */

struct extended {
	bool path, link, size, mtime, uid, gid, sparse, real_size;
	uint64_t size_v, real_v;
};

static int read_extended(struct tar_reader *r, uint64_t size)
{
	if (size > TAR_MAX_EXTENDED)
		return wrong(r, "an extended header is too large");
	free(r->extended);
	r->extended = malloc(size + 1);
	if (!r->extended)
		return wrong(r, "there is no memory for an extended header");
	if (must_take(r, r->extended, size) < 0 || skip(r, padding(size)) < 0)
		return -1;
	r->extended[size] = '\0';
	return 0;
}

static int set_text(struct tar_reader *r, char *out, bool *given, const char *value)
{
	size_t n = strlen(value);

	if (n >= PATH_MAX)
		return wrong(r, "a name is longer than 4095 bytes");
	memcpy(out, value, n + 1);
	*given = true;
	return 0;
}

static int pax_record(struct tar_reader *r, struct extended *x, struct tar_entry *e,
		      const char *key, const char *value)
{
	const char *end;

	if (strcmp(key, "path") == 0 || strcmp(key, "GNU.sparse.name") == 0)
		return x->path && key[0] == 'p' ? 0 : set_text(r, e->path, &x->path, value);
	if (strcmp(key, "linkpath") == 0)
		return set_text(r, e->link, &x->link, value);
	if (strcmp(key, "size") == 0) {
		x->size_v = decimal(value, &end);
		x->size = true;
	} else if (strcmp(key, "mtime") == 0) {
		e->mtime = pax_time(value);
		x->mtime = true;
	} else if (strcmp(key, "uid") == 0) {
		e->uid = (uint32_t)decimal(value, &end);
		x->uid = true;
	} else if (strcmp(key, "gid") == 0) {
		e->gid = (uint32_t)decimal(value, &end);
		x->gid = true;
	} else if (strcmp(key, "GNU.sparse.major") == 0) {
		x->sparse = value[0] == '1';
		return x->sparse ? 0 : wrong(r, "a sparse file is of an old pax kind");
	} else if (strcmp(key, "GNU.sparse.map") == 0 || strcmp(key, "GNU.sparse.offset") == 0) {
		return wrong(r, "a sparse file is of an old pax kind");
	} else if (strcmp(key, "GNU.sparse.realsize") == 0) {
		x->real_v = decimal(value, &end);
		x->real_size = true;
	}
	return 0;
}

/* "LENGTH KEY=VALUE\n", one after the other. */
static int pax_records(struct tar_reader *r, struct extended *x, struct tar_entry *e, size_t size)
{
	char *s = r->extended;

	while (size > 0) {
		const char *end;
		uint64_t n = decimal(s, &end);
		char *key = r->extended + (end - r->extended) + 1, *value;

		if (*end != ' ' || n > size || n < (size_t)(key - s) + 2 || s[n - 1] != '\n')
			return wrong(r, "a pax header is unreadable");
		s[n - 1] = '\0';
		value = strchr(key, '=');
		if (!value)
			return wrong(r, "a pax header is unreadable");
		*value++ = '\0';
		/* A value with a NUL inside is no name: it is cut there, and such a name fits nothing. */
		if (pax_record(r, x, e, key, value) < 0)
			return -1;
		s += n;
		size -= n;
	}
	return 0;
}

/* Headers */

static void plain_fields(struct tar_entry *e, const struct extended *x, const uint8_t *h)
{
	char prefix[156];

	e->type = (char)h[TYPE];
	e->mode = (mode_t)number(h + MODE, 8) & 07777;
	if (!x->uid)
		e->uid = (uint32_t)number(h + UID, 8);
	if (!x->gid)
		e->gid = (uint32_t)number(h + GID, 8);
	if (!x->mtime)
		e->mtime = (struct timespec){.tv_sec = (time_t)number_signed(h + MTIME, 12)};
	if (!x->link)
		field(e->link, h + LINK, 100);
	if (x->path)
		return;
	prefix[0] = '\0';
	if (memcmp(h + MAGIC, "ustar", 6) ==
	    0) /* with its NUL; GNU's has a blank there, and no prefix */
		field(prefix, h + PREFIX, 155);
	if (prefix[0]) {
		size_t n = strlen(prefix);

		memcpy(e->path, prefix, n);
		e->path[n++] = '/';
		field(e->path + n, h + NAME, 100);
	} else {
		field(e->path, h + NAME, 100);
	}
}

/* A member whose header is h. */
static int start_member(struct tar_reader *r, struct tar_entry *e, struct extended *x,
			const uint8_t *h)
{
	plain_fields(e, x, h);
	r->left = x->size ? x->size_v : number(h + SIZE, 12);
	r->padding = padding(r->left);
	e->size = r->left;
	if (e->type == 'S' && gnu_sparse(r, e, h) < 0)
		return -1;
	if (e->type == '\0' || e->type == '7')
		e->type = '0';
	if (x->sparse && e->type == '0') {
		if (pax_sparse(r) < 0)
			return -1;
		e->size = x->real_size ? x->real_v : 0;
	}
	if (r->sparse)
		return check_map(r, e) < 0 ? -1 : 1;
	if (e->type == '0' && e->path[0] && e->path[strlen(e->path) - 1] == '/')
		e->type = '5'; /* as before ustar */
	if (e->type != '0') {  /* a link's size says nothing of data unless it is pax */
		if (memchr("123456", e->type, 6)) {
			e->size = 0;
			if (!x->size && e->type != '1')
				r->left = r->padding = 0;
		}
	}
	return 1;
}

/* An extended header in place of a member. 1: it was none. */
static int extended_header(struct tar_reader *r, struct tar_entry *e, struct extended *x,
			   const uint8_t *h)
{
	uint64_t size = number(h + SIZE, 12);

	switch (h[TYPE]) {
	case 'x':
	case 'X':
		return read_extended(r, size) < 0 ? -1 : pax_records(r, x, e, (size_t)size);
	case 'g':
		return skip(r, size + padding(size));
	case 'L':
		return read_extended(r, size) < 0 ? -1
						  : set_text(r, e->path, &x->path, r->extended);
	case 'K':
		return read_extended(r, size) < 0 ? -1
						  : set_text(r, e->link, &x->link, r->extended);
	}
	return 1;
}

static bool all_zero(const uint8_t *h)
{
	return h[0] == 0 && memcmp(h, h + 1, TAR_BLOCK - 1) == 0;
}

/* Two blocks of zeros. What follows them belongs to nobody, and is read to the end. */
static int at_end(struct tar_reader *r, uint8_t *h)
{
	const uint8_t *p;
	ssize_t n;

	if (must_take(r, h, TAR_BLOCK) < 0)
		return -1;
	if (!all_zero(h))
		return wrong(r, "a block of zeros is followed by something else");
	while ((n = r->next(r->arg, &p, SIZE_MAX)) > 0)
		continue;
	return n < 0 ? wrong(r, NULL) : 0;
}

int tar_next(struct tar_reader *r, struct tar_entry *e)
{
	struct extended x = {0};
	uint8_t h[TAR_BLOCK];
	int ret;

	r->wrong = NULL;
	if (skip(r, r->left) < 0 || skip(r, r->padding) < 0)
		return -1;
	r->left = r->padding = r->at = 0;
	r->nmap = r->at_map = 0;
	r->sparse = false;
	do {
		ret = take(r, h, sizeof(h));
		if (ret <= 0)
			return ret < 0 ? -1 : wrong(r, "it ends without two blocks of zeros");
		if (all_zero(h))
			return at_end(r, h);
		if (!checksum_fits(h))
			return wrong(r, "a header's checksum is wrong: it is no tar archive, or a "
					"damaged one");
		ret = extended_header(r, e, &x, h);
	} while (ret == 0);
	return ret < 0 ? -1 : start_member(r, e, &x, h);
}

ssize_t tar_data(struct tar_reader *r, const uint8_t **p, uint64_t *at)
{
	uint64_t max = r->left;
	ssize_t n;

	if (r->sparse) {
		while (r->at_map < r->nmap && !r->map[r->at_map].size)
			r->at_map++;
		if (r->at_map == r->nmap)
			return 0;
		r->at = r->map[r->at_map].at;
		max = r->map[r->at_map].size;
	}
	if (max == 0)
		return 0;
	n = r->next(r->arg, p, max < SIZE_MAX ? (size_t)max : SIZE_MAX);
	if (n <= 0)
		return wrong(r, n < 0 ? NULL : "it ends inside of a member");
	*at = r->at;
	r->at += (uint64_t)n;
	r->left -= (uint64_t)n;
	if (r->sparse) {
		r->map[r->at_map].at += (uint64_t)n;
		r->map[r->at_map].size -= (uint64_t)n;
	}
	return n;
}

void tar_free(struct tar_reader *r)
{
	free(r->map);
	free(r->extended);
	r->map = NULL;
	r->extended = NULL;
	r->nmap = r->cap_map = 0;
}
