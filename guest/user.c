/* SPDX-License-Identifier: Apache-2.0 */
/* Users from /etc/passwd and /etc/group; see user.h. */
#include "guest/user.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "guest/lines.h"

static void open_etc(struct lines *l, const char *etc, const char *name)
{
	char path[512];

	l->fd = -1;
	l->at = l->len = 0;
	if (snprintf(path, sizeof(path), "%s/%s", etc, name) < (int)sizeof(path))
		lines_open(l, AT_FDCWD, path);
}

/* Split at ':' in place; false when there are not exactly n fields. */
static bool split(char *line, char **field, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char *colon = strchr(line, ':');

		field[i] = line;
		if ((i + 1 < n) != (colon != NULL))
			return false;
		if (colon) {
			*colon = '\0';
			line = colon + 1;
		}
	}
	return true;
}

/* A decimal id; (uint32_t)-1 means "leave" to the kernel, so it is none. */
static bool parse_id(const char *s, uint32_t *id)
{
	uint64_t v = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		v = v * 10 + (uint64_t)(*s - '0');
		if (v >= UINT32_MAX)
			return false;
	}
	*id = (uint32_t)v;
	return true;
}

static void copy_field(char *to, size_t size, const char *from, const char *dflt)
{
	if (!*from || strlen(from) >= size)
		from = dflt;
	memmove(to, from, strlen(from) + 1);
}

/* Fill u from the first entry of that name (NULL: of that uid). */
static bool find_passwd(const char *etc, const char *name, uid_t uid, struct user *u)
{
	struct lines l;
	char *f[7];
	bool found = false;
	uint32_t id, gid;

	open_etc(&l, etc, "passwd");
	while (!found && lines_next(&l)) {
		if (!split(l.line, f, 7) || !parse_id(f[2], &id) || !parse_id(f[3], &gid))
			continue;
		if (name ? strcmp(f[0], name) != 0 : id != uid)
			continue;
		if (!*f[0] || strlen(f[0]) >= sizeof(u->name))
			continue;
		found = true;
		u->uid = id;
		u->gid = gid;
		copy_field(u->name, sizeof(u->name), f[0], "");
		copy_field(u->home, sizeof(u->home), f[5], "/");
		copy_field(u->shell, sizeof(u->shell), f[6], "/bin/sh");
	}
	lines_close(&l);
	return found;
}

static bool find_group(const char *etc, const char *name, gid_t *gid)
{
	struct lines l;
	char *f[4];
	bool found = false;

	open_etc(&l, etc, "group");
	while (!found && lines_next(&l))
		found = split(l.line, f, 4) && strcmp(f[0], name) == 0 && parse_id(f[2], gid);
	lines_close(&l);
	return found;
}

static bool is_member(const char *members, const char *name)
{
	size_t n = strlen(name);

	while (*members) {
		size_t len = strcspn(members, ",");

		if (len == n && memcmp(members, name, n) == 0)
			return true;
		members += len + (members[len] == ',');
	}
	return false;
}

static void find_memberships(const char *etc, struct user *u)
{
	struct lines l;
	char *f[4];
	uint32_t gid;

	open_etc(&l, etc, "group");
	while (u->ngroups < AGENT_MAX_GROUPS && lines_next(&l))
		if (split(l.line, f, 4) && parse_id(f[2], &gid) && gid != u->gid &&
		    is_member(f[3], u->name))
			u->groups[u->ngroups++] = gid;
	lines_close(&l);
}

static void set_unknown(struct user *u, uid_t uid)
{
	u->uid = uid;
	u->gid = uid;
	snprintf(u->name, sizeof(u->name), "%u", uid);
	strcpy(u->home, "/");
	strcpy(u->shell, "/bin/sh");
}

void user_describe(const char *etc, uid_t uid, struct user *u)
{
	u->ngroups = 0;
	if (!find_passwd(etc, NULL, uid, u))
		set_unknown(u, uid);
}

/* An entry's name goes before the number that it may look like. */
static int find_user(const char *etc, const char *who, struct user *u, bool *known,
		     struct hutch_error *err)
{
	uint32_t uid;

	*known = find_passwd(etc, who, 0, u);
	if (*known)
		return 0;
	if (!parse_id(who, &uid))
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "user \"%s\" is not in %s/passwd and is no uid", who, etc);
	*known = find_passwd(etc, NULL, uid, u);
	if (!*known)
		set_unknown(u, uid);
	return 0;
}

int user_lookup(const char *etc, const char *spec, struct user *u, struct hutch_error *err)
{
	const char *group = strchr(spec, ':');
	size_t n = group ? (size_t)(group - spec) : strlen(spec);
	char who[sizeof(u->name)];
	bool known;

	memset(u, 0, sizeof(*u));
	if (!n || n >= sizeof(who))
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "user \"%.100s\" has no user name, or one above %zu bytes",
				       spec, sizeof(who) - 1);
	memcpy(who, spec, n);
	who[n] = '\0';
	if (find_user(etc, who, u, &known, err) < 0)
		return -1;
	if (group && !find_group(etc, group + 1, &u->gid) && !parse_id(group + 1, &u->gid))
		return hutch_error_set(err, HUTCH_E_INVALID, 0,
				       "group \"%.100s\" of user \"%s\" is not in %s/group and is "
				       "no gid",
				       group + 1, who, etc);
	u->groups[u->ngroups++] = u->gid;
	if (!group && known)
		find_memberships(etc, u);
	return 0;
}
