/* SPDX-License-Identifier: Apache-2.0 */
/* fs.*: the tables of parameters and methods, and what reads and writes by them. */
#include "protocol/msg_fs.h"

#include <assert.h>
#include <string.h>

enum kind { K_PATH, K_USER, K_SHA, K_SYNC, K_BOOL, K_MODE, K_ID, K_U32, K_UINT, K_TEXTS };

struct param {
	char key[11];
	uint8_t kind;
	uint16_t at; /* of the field in struct fs_call */
};

#define P(name, what, field)                                \
	{                                                   \
		name, what, offsetof(struct fs_call, field) \
	}
/* In the order of enum fs_param. */
static const struct param params[] = {
	P("user", K_USER, user),
	P("root", K_PATH, root),
	P("path", K_PATH, path),
	P("to", K_PATH, to),
	P("target", K_PATH, target),
	P("owner", K_USER, owner),
	P("sha256", K_SHA, sha256),
	P("if_sha256", K_SHA, if_sha256),
	P("sync", K_SYNC, sync),
	P("follow", K_BOOL, follow),
	P("stat", K_BOOL, stat),
	P("recursive", K_BOOL, recursive),
	P("parents", K_BOOL, parents),
	P("atomic", K_BOOL, atomic),
	P("truncate", K_BOOL, truncate),
	P("if_absent", K_BOOL, if_absent),
	P("missing_ok", K_BOOL, missing_ok),
	P("replace", K_BOOL, replace),
	P("preserve", K_BOOL, preserve),
	P("owner", K_BOOL, keep_owner),
	P("mode", K_MODE, mode),
	P("uid", K_ID, uid),
	P("gid", K_ID, gid),
	P("depth", K_U32, depth),
	P("offset", K_UINT, offset),
	P("length", K_UINT, length),
	P("size", K_UINT, size),
	P("if_size", K_UINT, if_size),
	P("mtime_ns", K_UINT, mtime_ns),
	P("atime_ns", K_UINT, atime_ns),
	P("names", K_TEXTS, names),
	P("exclude", K_TEXTS, exclude),
};
#undef P
static_assert(sizeof(params) / sizeof(params[0]) == 32, "a row per bit of enum fs_param");

#define COMMON (FS_P_USER | FS_P_ROOT | FS_P_PATH)
#define IDS    (FS_P_UID | FS_P_GID)

static const struct {
	char name[12];
	uint32_t takes; /* beside COMMON; path is always needed */
	uint32_t needs;
} methods[FS_METHODS] = {
	[FS_STAT] = {"fs.stat", FS_P_FOLLOW, 0},
	[FS_EXISTS] = {"fs.exists", FS_P_FOLLOW, 0},
	[FS_READLINK] = {"fs.readlink", 0, 0},
	[FS_STATFS] = {"fs.statfs", 0, 0},
	[FS_LIST] = {"fs.list", FS_P_DEPTH | FS_P_STAT, 0},
	[FS_READ] = {"fs.read", FS_P_OFFSET | FS_P_LENGTH, 0},
	[FS_TAR_OUT] = {"fs.tar_out", FS_P_NAMES | FS_P_EXCLUDE, 0},
	[FS_WATCH] = {"fs.watch", FS_P_RECURSIVE, 0},
	[FS_WRITE] = {"fs.write",
		      FS_P_MODE | IDS | FS_P_PARENTS | FS_P_ATOMIC | FS_P_OFFSET | FS_P_TRUNCATE |
			      FS_P_IF_ABSENT | FS_P_IF_SIZE | FS_P_IF_SHA256 | FS_P_SIZE |
			      FS_P_SHA256 | FS_P_SYNC,
		      0},
	[FS_APPEND] = {"fs.append", FS_P_MODE | FS_P_PARENTS | FS_P_SIZE | FS_P_SYNC, 0},
	[FS_MKDIR] = {"fs.mkdir", FS_P_MODE | FS_P_PARENTS, 0},
	[FS_REMOVE] = {"fs.remove", FS_P_RECURSIVE | FS_P_MISSING_OK, 0},
	[FS_MOVE] = {"fs.move", FS_P_TO | FS_P_REPLACE | FS_P_PARENTS, FS_P_TO},
	[FS_COPY] = {"fs.copy",
		     FS_P_TO | FS_P_RECURSIVE | FS_P_PRESERVE | FS_P_REPLACE | FS_P_PARENTS,
		     FS_P_TO},
	[FS_SYMLINK] = {"fs.symlink", FS_P_TARGET, FS_P_TARGET},
	[FS_LINK] = {"fs.link", FS_P_TO, FS_P_TO},
	[FS_CHMOD] = {"fs.chmod", FS_P_MODE | FS_P_RECURSIVE, FS_P_MODE},
	[FS_CHOWN] = {"fs.chown", IDS | FS_P_OWNER | FS_P_FOLLOW | FS_P_RECURSIVE, 0},
	[FS_UTIMES] = {"fs.utimes", FS_P_MTIME | FS_P_ATIME | FS_P_FOLLOW, 0},
	[FS_TAR_IN] = {"fs.tar_in", FS_P_PARENTS | FS_P_KEEP_OWNER | FS_P_REPLACE, 0},
};

static const char sync_names[][5] =
	{[FS_SYNC_NONE] = "none", [FS_SYNC_FILE] = "file", [FS_SYNC_ALL] = "all"};

int fs_method_find(const char *name)
{
	for (int i = 0; i < FS_METHODS; i++)
		if (strcmp(methods[i].name, name) == 0)
			return i;
	return -1;
}

const char *fs_method_name(enum fs_method method)
{
	return methods[method].name;
}

/* Reading */

static void get_sha(struct mp_reader *r, const char *key, const char **out)
{
	mp_get_str(r, key, 64, out);
	if (*out && (strlen(*out) != 64 || strspn(*out, "0123456789abcdef") != 64))
		mp_fail(r, "%s is not a SHA-256 digest; it must be 64 lower-case hex digits", key);
}

static void get_sync(struct mp_reader *r, const char *key, enum fs_sync *out)
{
	char name[16] = "none";

	mp_get_strbuf(r, key, name, sizeof(name));
	for (unsigned i = FS_SYNC_NONE; i <= FS_SYNC_ALL; i++) {
		if (strcmp(name, sync_names[i]) == 0) {
			*out = (enum fs_sync)i;
			return;
		}
	}
	mp_fail(r, "%s is \"%s\"; it must be none, file or all", key, name);
}

static void get_texts(struct mp_reader *r, struct fs_call *m, const struct param *p)
{
	bool names = p->at == offsetof(struct fs_call, names);
	char ***out = names ? &m->names : &m->exclude;
	size_t *count = names ? &m->nnames : &m->nexclude;

	mp_get_strv(r, p->key, names ? HUTCH_MAX_FS_NAMES : HUTCH_MAX_FS_EXCLUDE, out, count);
	for (size_t i = 0; mp_ok(r) && i < *count; i++)
		if (!(*out)[i][0] || strlen((*out)[i]) > HUTCH_MAX_PATH)
			mp_fail(r, "%s[%zu] must be 1 to %u bytes", p->key, i, HUTCH_MAX_PATH);
	if (mp_ok(r) && *count == 0)
		mp_fail(r, "%s is empty; leave it out for the default", p->key);
}

static void get_text(struct mp_reader *r, const char *key, size_t max, const char **out)
{
	mp_get_str(r, key, max, out);
	if (*out && !(*out)[0])
		mp_fail(r, "%s is empty", key);
}

static void get_param(struct mp_reader *r, struct fs_call *m, const struct param *p)
{
	void *field = (char *)m + p->at;

	switch ((enum kind)p->kind) {
	case K_PATH:
		get_text(r, p->key, HUTCH_MAX_PATH, field);
		break;
	case K_USER:
		get_text(r, p->key, HUTCH_MAX_USER, field);
		break;
	case K_SHA:
		get_sha(r, p->key, field);
		break;
	case K_SYNC:
		get_sync(r, p->key, field);
		break;
	case K_BOOL:
		mp_get_bool(r, p->key, field);
		break;
	case K_MODE:
		mp_get_u32(r, p->key, 0, 07777, field);
		break;
	case K_ID:
		mp_get_u32(r, p->key, 0, UINT32_MAX - 1, field);
		break;
	case K_U32:
		mp_get_u32(r, p->key, 0, UINT32_MAX, field);
		break;
	case K_UINT:
		mp_get_uint(r, p->key, 0, HUTCH_MAX_UINT, field);
		break;
	case K_TEXTS:
		get_texts(r, m, p);
		break;
	}
}

/* True when both are given: such a call is refused. */
static bool both(const struct fs_call *m, uint32_t a, uint32_t b)
{
	return (m->given & a) && (m->given & b);
}

static void check_write(struct mp_reader *r, const struct fs_call *m)
{
	if (m->atomic && (m->given & (FS_P_OFFSET | FS_P_TRUNCATE)))
		mp_fail(r, "offset and truncate need \"atomic\": false");
	if (!m->atomic && (m->given & (FS_P_SHA256 | FS_P_IF_SHA256 | FS_P_IF_SIZE)))
		mp_fail(r, "sha256, if_sha256 and if_size need atomic");
	if (m->if_absent && (m->given & (FS_P_IF_SHA256 | FS_P_IF_SIZE)))
		mp_fail(r, "if_absent is given together with if_size or if_sha256");
}

static bool has_dotdot(const char *s)
{
	for (; s; s = strchr(s, '/')) {
		s += *s == '/';
		if (s[0] == '.' && s[1] == '.' && (!s[2] || s[2] == '/'))
			return true;
	}
	return false;
}

static void check(struct mp_reader *r, const struct fs_call *m)
{
	if (m->root && m->root[0] != '/')
		mp_fail(r, "root is \"%.80s\"; it must start with /", m->root);
	if (m->method == FS_WRITE)
		check_write(r, m);
	if (m->method == FS_CHOWN && !(m->given & (IDS | FS_P_OWNER)))
		mp_fail(r, "uid, gid or owner must be given");
	if (both(m, FS_P_OWNER, IDS))
		mp_fail(r, "owner and uid or gid are both given; it must be one of them");
	for (size_t i = 0; mp_ok(r) && i < m->nnames; i++)
		if (m->names[i][0] == '/' || has_dotdot(m->names[i]))
			mp_fail(r, "names[%zu] is \"%.80s\"; it must be relative, without ..", i,
				m->names[i]);
}

static void set_defaults(struct fs_call *m, enum fs_method method)
{
	memset(m, 0, sizeof(*m));
	m->method = method;
	m->follow = m->stat = m->atomic = m->replace = m->preserve = true;
	m->mode = method == FS_MKDIR ? 0755 : 0644;
	m->uid = m->gid = FS_NO_ID;
	m->depth = 1;
	m->length = m->size = HUTCH_MAX_UINT;
}

int fs_call_decode(struct fs_call *m, enum fs_method method, const void *data, size_t len,
		   struct hutch_error *err)
{
	uint32_t takes = methods[method].takes | COMMON, needs = methods[method].needs | FS_P_PATH;
	struct mp_reader r;

	set_defaults(m, method);
	if (mp_params_open(&m->doc, &r, data, len, methods[method].name, err) < 0)
		return -1;
	for (unsigned i = 0; i < 32; i++) {
		if (!(takes & 1u << i))
			continue;
		if (needs & 1u << i)
			mp_require(&r, params[i].key);
		if (!mp_find(&r, params[i].key))
			continue;
		m->given |= 1u << i;
		get_param(&r, m, &params[i]);
	}
	m->truncate = m->given & FS_P_TRUNCATE ? m->truncate : !(m->given & FS_P_OFFSET);
	if (mp_ok(&r))
		check(&r, m);
	return mp_ok(&r) ? 0 : -1;
}

void fs_call_free(struct fs_call *m)
{
	mp_doc_free(&m->doc);
	memset(m, 0, sizeof(*m));
}

/* Writing */

static void put_texts(struct mp_buf *out, char **v, size_t n)
{
	mp_array_begin(out);
	for (size_t i = 0; i < n; i++)
		mp_put_str(out, v[i]);
	mp_array_end(out);
}

static void put_param(struct mp_buf *out, const struct fs_call *m, const struct param *p)
{
	const void *field = (const char *)m + p->at;

	mp_key(out, p->key);
	switch ((enum kind)p->kind) {
	case K_PATH:
	case K_USER:
	case K_SHA:
		mp_put_str(out, *(const char *const *)field);
		break;
	case K_SYNC:
		mp_put_str(out, sync_names[*(const enum fs_sync *)field]);
		break;
	case K_BOOL:
		mp_put_bool(out, *(const bool *)field);
		break;
	case K_MODE:
	case K_ID:
	case K_U32:
		mp_put_uint(out, *(const uint32_t *)field);
		break;
	case K_UINT:
		mp_put_uint(out, *(const uint64_t *)field);
		break;
	case K_TEXTS:
		if (p->at == offsetof(struct fs_call, names))
			put_texts(out, m->names, m->nnames);
		else
			put_texts(out, m->exclude, m->nexclude);
		break;
	}
}

void fs_call_encode_params(struct mp_buf *out, const struct fs_call *m)
{
	uint32_t set = m->given & (methods[m->method].takes | COMMON);

	mp_map_begin(out);
	for (unsigned i = 0; i < 32; i++)
		if (set & 1u << i)
			put_param(out, m, &params[i]);
	mp_map_end(out);
}
