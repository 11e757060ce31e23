/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a command; see env.h. Values are copied as they are: nothing is ever parsed as text. */
#include "guest/env.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEFAULTS 6

struct pair {
	const char *name, *value;
};

static bool is_set(const struct exec_start *m, const char *name)
{
	for (size_t i = 0; i < m->env_pairs; i++)
		if (strcmp(m->env[2 * i], name) == 0)
			return true; /* or removed */
	return false;
}

static size_t collect_defaults(const struct exec_start *m, const struct user *u,
			       struct pair out[MAX_DEFAULTS])
{
	const struct pair all[MAX_DEFAULTS] = {
		{"PATH", ENV_DEFAULT_PATH}, {"HOME", u->home},	 {"USER", u->name},
		{"LOGNAME", u->name},	    {"SHELL", u->shell}, {"TERM", m->pty ? m->term : NULL},
	};
	size_t n = 0;

	for (size_t i = 0; !m->clear_env && i < MAX_DEFAULTS; i++)
		if (all[i].value && !is_set(m, all[i].name))
			out[n++] = all[i];
	return n;
}

static char *put(struct env *env, size_t *at, char *to, const struct pair *p)
{
	size_t name = strlen(p->name), value = strlen(p->value);

	env->vec[(*at)++] = to;
	memcpy(to, p->name, name);
	to[name] = '=';
	memcpy(to + name + 1, p->value, value + 1);
	if (strcmp(p->name, "PATH") == 0)
		env->path = to + name + 1;
	if (strcmp(p->name, "HOME") == 0)
		env->home = to + name + 1;
	return to + name + value + 2;
}

static size_t size_of(const struct pair *p)
{
	return strlen(p->name) + strlen(p->value) + 2;
}

int env_build(struct env *env, const struct exec_start *m, const struct user *u)
{
	struct pair defaults[MAX_DEFAULTS];
	size_t n = collect_defaults(m, u, defaults), size = 1, at = 0;
	char *to;

	env->path = ENV_DEFAULT_PATH;
	env->home = NULL;
	for (size_t i = 0; i < n; i++)
		size += size_of(&defaults[i]);
	for (size_t i = 0; i < m->env_pairs; i++)
		if (m->env[2 * i + 1])
			size += size_of(&(struct pair){m->env[2 * i], m->env[2 * i + 1]});
	env->vec = malloc((n + m->env_pairs + 1) * sizeof(*env->vec));
	env->block = to = malloc(size);
	if (!env->vec || !env->block) {
		env_free(env);
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		to = put(env, &at, to, &defaults[i]);
	for (size_t i = 0; i < m->env_pairs; i++)
		if (m->env[2 * i + 1])
			to = put(env, &at, to, &(struct pair){m->env[2 * i], m->env[2 * i + 1]});
	env->vec[at] = NULL;
	return 0;
}

void env_free(struct env *env)
{
	free(env->vec);
	free(env->block);
	env->vec = NULL;
	env->block = NULL;
}
