/* SPDX-License-Identifier: Apache-2.0 */
/* What finding (cgroup_find.c), trying (cgroup.c) and making (cgroup_vm.c) share. */
#ifndef HUTCH_HOST_CGROUP_PRIV_H
#define HUTCH_HOST_CGROUP_PRIV_H

#include "host/hutchd/cgroup.h"

#define CGROUP_PATH   1024u
#define CGROUP_PREFIX "hutch-" /* a VMM's cgroup is this and the VM's id */
#define CGROUP_LEAF   "hutchd" /* v2: where hutchd and its launcher are then */
/* A hierarchy with none of these is not worth a cgroup. */
#define CGROUP_WORTH (1u << CGROUP_CPU | 1u << CGROUP_MEMORY | 1u << CGROUP_PIDS)

struct cgroup_base {
	char path[CGROUP_PATH]; /* in which VMMs' cgroups are made; empty: none */
	int fd;
};

struct cgroups {
	struct cgroup_wish wish;
	struct cgroup_report report;
	struct cgroup_base
		bases[CGROUP_CONTROLLERS]; /* v1: by controller; v2: the first one for all */
};

/*
 * Where VMMs' cgroups may be made and what they would have, not yet tried: kind, has, bases of *c. -1: nowhere, with a reason
 * if there is such a hierarchy at all.
 */
int cgroup_find_v2(struct cgroups *c, const struct cgroup_places *places);
int cgroup_find_v1(struct cgroups *c, const struct cgroup_places *places);

void cgroup_base_close(struct cgroup_base *base);

/* Why there is not more; the first reason stays. */
void cgroups_set_reason(struct cgroups *c, const char *what, const char *path, int errnum);

/* Write a control file that is there. */
int cgroup_write(int dir, const char *file, const char *text);

#endif
