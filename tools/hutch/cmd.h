/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, one file each. */
#ifndef HUTCH_CMD_H
#define HUTCH_CMD_H

#include "tools/hutch/cli.h"

extern const struct command cmd_limits;
extern const struct command cmd_create, cmd_exec, cmd_run, cmd_ls, cmd_info, cmd_kill, cmd_ttl,
	cmd_doctor, cmd_cp, cmd_fs_ls, cmd_fs_stat, cmd_fs_cat, cmd_fs_write, cmd_fs_mkdir,
	cmd_fs_rm, cmd_fs_mv, cmd_fs_watch, cmd_shell, cmd_attach, cmd_ps, cmd_signal, cmd_cancel,
	cmd_wait, cmd_fork, cmd_pause, cmd_resume, cmd_park, cmd_idle, cmd_snapshot_create,
	cmd_snapshot_list, cmd_snapshot_info, cmd_snapshot_delete, cmd_snapshot_verify,
	cmd_pool_set, cmd_pool_list, cmd_template_build, cmd_template_snapshot, cmd_template_ls,
	cmd_template_rm, cmd_version, cmd_help;

#endif
