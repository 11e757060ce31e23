/* SPDX-License-Identifier: Apache-2.0 */
/* hutch shell: a terminal in a VM. */
#include "tools/hutch/cmd.h"
#include "tools/hutch/cmd_exec.h"
#include "tools/hutch/signals.h"

/* The user's shell of the image's /etc/passwd, as a login shell. */
static const char *const login[] = {"/bin/sh", "-c", "exec \"${SHELL:-/bin/sh}\" -l", NULL};

static int parse(struct exec_args *e, struct args *a)
{
	int id;

	e->x.input = e->x.pty = true;
	while ((id = args_next(a)) > 0)
		if (exec_option(e, a, id) < 0)
			return -1;
	if (id < 0 || exec_check(e, a) < 0)
		return -1;
	if (a->count == 0) {
		cli_usage(a->cli, "ID is missing");
		return -1;
	}
	e->x.argv = a->count > 1 ? (const char *const *)a->operands + 1 : login;
	return 0;
}

static int run(struct cli *cli, struct args *a)
{
	return exec_in_vm(cli, a, parse);
}

static const struct opt options[] = {
	{'u', "user", "USER", "name, uid, name:group or uid:gid"},
	{'w', "workdir", "DIR", "directory to start in (default: the user's home)"},
	{'e', "env", "K=V", "add to the environment; K alone takes its value from yours"},
	{EXEC_DETACH_KEYS, "detach-keys", "KEYS",
	 "keys that leave it running (default: " KEYS_DEFAULT "; empty: none)"},
	{0},
};

const struct command cmd_shell = {
	.name = "shell",
	.operands = "ID [--] [CMD [ARG]...]",
	.summary = "Open a terminal in a VM, with the user's shell or CMD",
	.details =
		"The exit status is the shell's, as for hutch exec. All keys go to the VM but\n"
		"those that detach: the shell then runs on, and hutch attach comes back to it.\n",
	.opts = options,
	.literal = 2,
	FAILS_ASIDE,
	.run = run,
};
