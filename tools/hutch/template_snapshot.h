/* SPDX-License-Identifier: Apache-2.0 */
/* The last step of building a template. */
#ifndef HUTCH_TEMPLATE_SNAPSHOT_H
#define HUTCH_TEMPLATE_SNAPSHOT_H

#include "tools/hutch/cli.h"

/* 0, also where the broker knows no snapshots; -1 with the failure printed. */
int template_snapshot(struct cli *cli, const char *name);

#endif
