/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-agent: runs commands in a machine on behalf of its host. PID 1, a service, or a plain process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/boot.h"
#include "guest/cgroup.h"
#include "guest/conn.h"
#include "guest/exec.h"
#include "guest/exec_table.h"
#include "guest/leftover.h"
#include "guest/limits.h"
#include "guest/listen.h"
#include "guest/log.h"
#include "guest/loop.h"
#include "guest/power.h"
#include "guest/reap.h"
#include "guest/ring.h"
#include "guest/worker.h"

struct agent agent = {.null_fd = -1, .proc_fd = -1, .oom_fd = -1};

struct options {
	const char *unix_path, *dial_path, *cgroup;
	bool service, verbose;
};

static const char usage[] =
	"usage: hutch-agent --unix PATH [--dial PATH] [--cgroup DIR] [--verbose]\n"
	"       hutch-agent --service [--cgroup DIR] [--verbose]\n"
	"\n"
	"Runs commands on behalf of the host (protocol/wire.md). As PID 1 it needs no arguments.\n"
	"\n"
	"  --service      serve on vsock port 520\n"
	"  --unix PATH    serve on a Unix socket\n"
	"  --dial PATH    say hello on this one\n"
	"  --cgroup DIR   an empty cgroup2 directory, for a cgroup per command\n"
	"  --verbose      log connections and commands\n"
	"  --version, --help\n";

static void bad_usage(void)
{
	(void)!write(2, usage, sizeof(usage) - 1);
	_exit(2);
}

/* --name VALUE and --name=VALUE; NULL when argv[*i] is not this option. */
static const char *option_value(char **argv, int *i, const char *name)
{
	size_t n = strlen(name);

	if (strncmp(argv[*i], name, n) != 0)
		return NULL;
	if (argv[*i][n] == '=')
		return argv[*i] + n + 1;
	if (argv[*i][n] != '\0')
		return NULL;
	if (!argv[*i + 1])
		bad_usage();
	return argv[++*i];
}

static void parse_option(char **argv, int *i, struct options *o)
{
	const char *v;

	if ((v = option_value(argv, i, "--unix"))) {
		o->unix_path = v;
	} else if ((v = option_value(argv, i, "--dial"))) {
		o->dial_path = v;
	} else if ((v = option_value(argv, i, "--cgroup"))) {
		o->cgroup = v;
	} else if (strcmp(argv[*i], "--service") == 0) {
		o->service = true;
	} else if (strcmp(argv[*i], "--verbose") == 0) {
		o->verbose = true;
	} else if (strcmp(argv[*i], "--version") == 0) {
		(void)!write(1, AGENT_NAME "\n", sizeof(AGENT_NAME));
		_exit(0);
	} else if (strcmp(argv[*i], "--help") == 0) {
		(void)!write(1, usage, sizeof(usage) - 1);
		_exit(0);
	} else {
		bad_usage();
	}
}

static void parse_options(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++)
		parse_option(argv, &i, o);
	if (!o->unix_path == !o->service || (o->dial_path && !o->unix_path))
		bad_usage();
}

/* Nothing of whoever started the agent may reach commands: signal dispositions, descriptors, umask. */
static void leave_parent(void)
{
	static const unsigned long
		by_default[4]; /* the kernel's struct sigaction: SIG_DFL, nothing set */
	sigset_t set;

	/* By the system call: libc keeps 32 and 33 to itself, and a parent's posix_spawn may have them ignored. */
	for (int sig = 1; sig < NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, &by_default, NULL, sizeof(uint64_t));
	/* No handler may ever run in a child that shares the agent's memory. Faults cannot be blocked. */
	sigfillset(&set);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGBUS);
	sigdelset(&set, SIGFPE);
	sigdelset(&set, SIGILL);
	sigdelset(&set, SIGABRT);
	sigdelset(&set, SIGTRAP);
	sigdelset(&set, SIGSYS);
	sigprocmask(SIG_SETMASK, &set, NULL);
	umask(022);
	syscall(SYS_close_range, 3u, ~0u, 0u);
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", O_RDWR);
}

static void raise_limits(void)
{
	struct rlimit own;

	agent.nice = getpriority(PRIO_PROCESS, 0);
	if (getrlimit(RLIMIT_NOFILE, &agent.nofile) < 0)
		log_panic("getrlimit: %m");
	if (agent.mode == AGENT_PID1) /* the kernel's default for init is 4096 at most */
		agent.nofile = (struct rlimit){1024, 524288};
	own = agent.nofile;
	if (own.rlim_cur < AGENT_NOFILE)
		own.rlim_cur = AGENT_NOFILE;
	if (own.rlim_max < own.rlim_cur)
		own.rlim_max = own.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &own) < 0) {
		own.rlim_cur = own.rlim_max = agent.nofile.rlim_max;
		setrlimit(RLIMIT_NOFILE, &own);
	}
}

static void read_boot_id(void)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, agent.boot_id, HUTCH_UUID_LEN);

	if (n != HUTCH_UUID_LEN)
		agent.boot_id[0] = '\0';
	if (fd >= 0)
		close(fd);
}

/* The kernel is to end a command rather than the agent (proc(5)). */
static void protect_from_oom(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "-1000", 5) == 5) {
		agent.oom_fd = fd;
		return;
	}
	boot_failed("oom_score_adj");
	if (fd >= 0)
		close(fd);
}

static void open_own(void)
{
	agent.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (agent.null_fd < 0)
		log_panic("/dev/null: %m");
	agent.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (chdir("/") < 0)
		log_error("chdir /");
	prctl(PR_SET_NAME, "hutch-agent");
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		log_error("sub-reaper");
	read_boot_id();
	agent.started_ns = loop_now();
}

static void use_cgroups(const struct options *o)
{
	const char *dir = o->cgroup;
	struct hutch_error err;

	if (!dir && agent.mode == AGENT_PID1)
		dir = "/sys/fs/cgroup";
	if (dir && cgroup_init(dir, &err) < 0) {
		errno = err.errnum;
		boot_failed("%s", err.message);
	}
}

static void stop_ready(struct loop_source *src, uint32_t events)
{
	struct signalfd_siginfo info;

	(void)events;
	if (read(src->fd, &info, sizeof(info)) < 0)
		return;
	if (agent.mode == AGENT_PID1)
		power_down(POWER_GRACE_MS);
	else
		loop_stop();
}

static struct loop_source stop_source = {.fd = -1};

/* The signals by which an init is asked to end; kill(1) of them, or the kernel on Ctrl-Alt-Del. */
static void watch_stop_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGPWR);
	loop_source_init(&stop_source, signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), stop_ready);
	loop_watch(&stop_source, EPOLLIN);
}

static void fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code <= 0 && info->si_pid != getpid())
		return; /* sent by a process, which may not end its init */
	log_info("signal %d: a fault of the agent itself, power off", sig);
	power_off();
}

/* The end of PID 1 by a signal is a kernel panic. */
static void catch_faults(void)
{
	static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
	static char stack[8192];
	const stack_t alt = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_ONSTACK | SA_SIGINFO};

	sigaltstack(&alt, NULL);
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		sigaction(sigs[i], &sa, NULL);
	log_on_panic(power_off);
}

static int serve(const struct options *o)
{
	if (agent.mode == AGENT_PLAIN)
		return listen_unix(o->unix_path);
	return listen_vsock();
}

static bool end_exec(struct exec *e, void *arg)
{
	(void)arg;
	if (e->state == EXEC_RUNNING)
		tree_signal(e, SIGKILL);
	return true;
}

/* Not as PID 1: its commands end with it. */
static void shut_down(void)
{
	dial_exit();
	listen_exit();
	conn_close_all();
	worker_exit();
	exec_each(end_exec, NULL);
	exec_forget_all();
	leftover_close_all();
	reap_exit();
	loop_close(&stop_source);
	cgroup_exit();
	loop_exit();
	close(agent.null_fd);
	if (agent.proc_fd >= 0)
		close(agent.proc_fd);
}

int main(int argc, char **argv)
{
	struct options o = {0};

	/* The kernel hands its unknown parameters on to init: they are not for the agent. */
	agent.mode = getpid() == 1 && (argc < 2 || strcmp(argv[1], "--unix") != 0) ? AGENT_PID1
										   : AGENT_PLAIN;
	if (agent.mode != AGENT_PID1) {
		parse_options(argc, argv, &o);
		agent.mode = o.service ? AGENT_SERVICE : AGENT_PLAIN;
		log_setup(2, o.verbose);
	}
	leave_parent();
	if (agent.mode == AGENT_PID1) {
		catch_faults();
		boot_early();
		boot();
		agent.needs_identity = true;
	}
	if (agent.mode != AGENT_PLAIN)
		protect_from_oom();
	raise_limits();
	open_own();
	use_cgroups(&o);
	if (loop_init() < 0 || reap_init() < 0)
		log_panic("event loop: %m");
	watch_stop_signals();
	ring_on_pressure(exec_ring_pressure);
	if (serve(&o) < 0) {
		if (agent.mode != AGENT_PID1)
			log_panic("listening socket: %m");
		boot_failed("listening socket");
	}
	if (agent.mode != AGENT_PLAIN || o.dial_path)
		dial_start(o.dial_path);
	loop_run();
	shut_down();
	return 0;
}
