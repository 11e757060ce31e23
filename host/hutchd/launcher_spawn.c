/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting one VMM.
 *
 * The launcher opens what the VMM needs, forks, and the child takes on its final shape step by
 * step; the name and errno of a step that fails come back through a close-on-exec pipe, on which
 * EOF means that the program runs. Before it enters the jail the child claims the run directory by
 * a file with its own pid (vmm_claim): whoever dies at whatever moment, a later broker either finds
 * that file or keeps the child from running.
 */
#include "host/hutchd/launcher_main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/hutchd/cgroup.h"
#include "host/hutchd/fdutil.h"
#include "host/hutchd/jail.h"
#include "host/hutchd/process.h"
#include "host/hutchd/tsc.h"
#include "host/hutchd/vmm.h"
#include "host/hutchd/vmm_qemu.h"

/* Sources of the fixed descriptors are kept above all their targets. */
#define FD_HIGH 256
static_assert(VMM_FD_END <= FD_HIGH, "sources and targets are apart");

enum {
	ENV_MARKER,
	ENV_VHOST,
	ENV_VSOCK,
	ENV_CTL,
	ENV_CONSOLE,
	ENV_DIAL,
	ENV_DEADLINE,
	ENV_MEMORY,
	ENV_BASE,
	ENV_LAYER,
	ENV_LAYERS,
	ENV_OURS
};

struct vmm_image {
	int fds[VMM_FD_END]; /* source of each fixed descriptor, 0-2 included; -1: none */
	int nfds;	     /* in use of them */
	int rundir;
	uint32_t start;
	int error_pipe;
	char *const *argv;
	char **envp;
	const struct jail *jail;
	struct jail_entry entry;
	struct cgroup_vm cgroup;
};

struct vmm_env {
	char ours[ENV_OURS][80];
	char preload[1040];
	char **list; /* malloc'ed array, NULL-terminated */
};

struct step_error {
	int32_t errnum;
	char stage[28];
};

/* An append-only log, mode 0600 whatever the umask. */
int launcher_log(int rundir, const char *name, int access)
{
	int fd = openat(rundir, name,
			access | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);

	if (fd >= 0 && fchmod(fd, 0600) < 0)
		fd_close(&fd);
	return fd;
}

static int open_template_file(int dir, const char *name)
{
	return openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
}

/*
 * Kernel, initramfs and root disk stay what they are now, even if the template is removed or
 * replaced meanwhile.
 */
static int open_template(const struct launcher_setup *setup, const struct launch_spawn *req,
			 struct vmm_image *image, struct launch_reply *reply)
{
	const struct {
		enum vmm_fd fd;
		const char *what, *name;
	} files[] = {
		{VMM_FD_ROOT, "root disk", req->root},
		{VMM_FD_KERNEL, "kernel", req->kernel},
		{VMM_FD_INITRAMFS, "initramfs", req->initramfs},
	};
	size_t count = req->flags & LAUNCH_RESTORE ? 1 : sizeof(files) / sizeof(files[0]);
	char path[sizeof(setup->template_dir) + sizeof(req->template_name) + sizeof(req->kernel) +
		  2];
	int dir, n;

	/* What is restored has its kernel in memory, and may outlive the template. */
	if (req->flags & LAUNCH_RESTORE && !req->root[0])
		return 0;
	n = snprintf(path, sizeof(path), "%s/%s", setup->template_dir, req->template_name);
	dir = dir_open(AT_FDCWD, path);
	if (dir < 0)
		return launch_fail(reply, errno, "template", path);
	for (size_t i = 0; i < count && !reply->errnum; i++) {
		if (!files[i].name[0])
			continue;
		image->fds[files[i].fd] = open_template_file(dir, files[i].name);
		if (image->fds[files[i].fd] >= 0)
			continue;
		snprintf(path + n, sizeof(path) - (size_t)n, "/%s", files[i].name);
		launch_fail(reply, errno, files[i].what, path);
	}
	fd_close(&dir);
	return reply->errnum ? -1 : 0;
}

static int open_image(const struct launcher_setup *setup, const struct launch_spawn *req,
		      const int *fds, struct vmm_image *image, struct launch_reply *reply)
{
	image->rundir = fds[SPAWN_FD_RUNDIR];
	image->fds[VMM_FD_VSOCK] = fds[SPAWN_FD_VSOCK];
	image->fds[VMM_FD_QMP] = fds[SPAWN_FD_QMP];
	image->fds[VMM_FD_CTL] = fds[SPAWN_FD_CTL];
	if (req->flags & LAUNCH_RESTORE) {
		image->fds[VMM_FD_BASE] = fds[SPAWN_FD_BASE];
		image->fds[VMM_FD_DEVICE] = fds[SPAWN_FD_DEVICE];
		for (unsigned i = 0; i < 2 * req->layers; i++)
			image->fds[VMM_FD_LAYERS + i] = fds[SPAWN_FD_LAYERS + i];
	}
	for (unsigned i = 0; req->disk_layers && i <= req->disk_layers; i++)
		image->fds[VMM_FD_DISK + i] = fds[launch_disk_fd(req) + i];
	image->fds[STDIN_FILENO] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	image->fds[VMM_FD_VHOST] = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (image->fds[STDIN_FILENO] < 0 || image->fds[VMM_FD_VHOST] < 0)
		return launch_fail(reply, errno, "open", "/dev/null");
	image->fds[STDERR_FILENO] = launcher_log(image->rundir, "vmm.log", O_WRONLY);
	if (image->fds[STDERR_FILENO] < 0)
		return launch_fail(reply, errno, "open", "vmm.log");
	image->fds[VMM_FD_CONSOLE] = launcher_log(image->rundir, "console.log", O_WRONLY);
	if (image->fds[VMM_FD_CONSOLE] < 0)
		return launch_fail(reply, errno, "open", "console.log");
	return setup->test ? 0 : open_template(setup, req, image, reply);
}

static void close_image(struct vmm_image *image)
{
	fd_close(&image->fds[STDIN_FILENO]);
	fd_close(&image->fds[STDERR_FILENO]);
	fd_close(&image->fds[VMM_FD_VHOST]);
	fd_close(&image->fds[VMM_FD_CONSOLE]);
	fd_close(&image->fds[VMM_FD_KERNEL]);
	fd_close(&image->fds[VMM_FD_INITRAMFS]);
	fd_close(&image->fds[VMM_FD_ROOT]);
}

static char *find_env(const char *name_and_equals)
{
	for (char **e = environ; *e; e++)
		if (strncmp(*e, name_and_equals, strlen(name_and_equals)) == 0)
			return *e;
	return NULL;
}

/* Of the variables above. */
static int ours_of(const struct launch_spawn *req)
{
	if (!(req->flags & LAUNCH_RESTORE))
		return ENV_BASE;
	return req->layers ? ENV_OURS : ENV_LAYER;
}

/*
 * QEMU gets nothing of the broker's environment but PATH; a test VMM gets all of it, without the
 * library.
 */
static int build_env(struct vmm_env *env, const struct launcher_setup *setup,
		     const struct launch_spawn *req)
{
	static char zygote[] = "HUTCH_ZYGOTE=1";
	size_t inherited = 0, n = 0;

	while (setup->test && environ[inherited])
		inherited++;
	env->list = calloc(inherited + ENV_OURS + 4, sizeof(*env->list));
	if (!env->list)
		return -1;
	snprintf(env->ours[ENV_MARKER], sizeof(env->ours[0]), VMM_MARKER "=%s", req->id);
	snprintf(env->ours[ENV_VHOST], sizeof(env->ours[0]), "HUTCH_VHOST_FD=%d", VMM_FD_VHOST);
	snprintf(env->ours[ENV_VSOCK], sizeof(env->ours[0]), "HUTCH_VSOCK_FD=%d", VMM_FD_VSOCK);
	snprintf(env->ours[ENV_CTL], sizeof(env->ours[0]), "HUTCH_CTL_FD=%d", VMM_FD_CTL);
	snprintf(env->ours[ENV_CONSOLE], sizeof(env->ours[0]), "HUTCH_CONSOLE_FD=%d",
		 VMM_FD_CONSOLE);
	snprintf(env->ours[ENV_DIAL], sizeof(env->ours[0]), "HUTCH_VSOCK_DIAL=vsock");
	snprintf(env->ours[ENV_DEADLINE], sizeof(env->ours[0]), "HUTCH_DEADLINE_MS=%llu",
		 (unsigned long long)req->deadline_ms);
	snprintf(env->ours[ENV_MEMORY], sizeof(env->ours[0]), "HUTCH_MEM_BYTES=%llu",
		 (unsigned long long)req->memory_mib << 20);
	snprintf(env->ours[ENV_BASE], sizeof(env->ours[0]), "HUTCH_MEM_FD=%d", VMM_FD_BASE);
	snprintf(env->ours[ENV_LAYER], sizeof(env->ours[0]), "HUTCH_LAYER_FD=%d", VMM_FD_LAYERS);
	snprintf(env->ours[ENV_LAYERS], sizeof(env->ours[0]), "HUTCH_LAYERS=%u", req->layers);
	for (int i = 0; i < ours_of(req); i++)
		env->list[n++] = env->ours[i];
	if (setup->test) {
		memcpy(env->list + n, environ, inherited * sizeof(*env->list));
		return 0;
	}
	snprintf(env->preload, sizeof(env->preload), "LD_PRELOAD=%s", setup->preload);
	env->list[n++] = env->preload;
	if (req->flags & LAUNCH_ZYGOTE)
		env->list[n++] = zygote;
	env->list[n] = find_env("PATH=");
	return 0;
}

static _Noreturn void step_failed(const struct vmm_image *image, const char *stage)
{
	struct step_error e = {.errnum = errno};
	ssize_t n;

	snprintf(e.stage, sizeof(e.stage), "%s", stage);
	n = write(image->error_pipe, &e, sizeof(e));
	(void)n;
	_exit(127);
}

static void reset_signals(void)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/*
 * dup2 each source to its place. They were moved out of the way first, so that none overwrites
 * another.
 */
static int place_fds(struct vmm_image *image)
{
	image->fds[STDOUT_FILENO] = image->fds[STDERR_FILENO];
	for (int i = 0; i < image->nfds; i++) {
		if (image->fds[i] < 0)
			continue;
		image->fds[i] = fcntl(image->fds[i], F_DUPFD_CLOEXEC, FD_HIGH);
		if (image->fds[i] < 0)
			return -1;
	}
	image->error_pipe = fcntl(image->error_pipe, F_DUPFD_CLOEXEC, FD_HIGH);
	image->rundir = fcntl(image->rundir, F_DUPFD_CLOEXEC, FD_HIGH);
	if (image->error_pipe < 0 || image->rundir < 0)
		return -1;
	for (int i = 0; i < image->nfds; i++) {
		if (image->fds[i] < 0)
			close(i);
		else if (dup2(image->fds[i], i) < 0)
			return -1;
	}
	return close_range((unsigned)image->nfds, ~0u, CLOSE_RANGE_CLOEXEC);
}

/* Write beside and rename, but never over a file that is there: EEXIST. */
int launcher_claim(int rundir, uint32_t start, pid_t pid, uint64_t start_time)
{
	char name[VMM_PID_NAME];
	char text[64];
	int fd, len;

	len = snprintf(text, sizeof(text), "%ld %llu\n", (long)pid, (unsigned long long)start_time);
	fd = openat(rundir, "." VMM_PID_FILE ".new",
		    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write_all(fd, text, (size_t)len) < 0) {
		fd_close(&fd);
		return -1;
	}
	fd_close(&fd);
	vmm_pid_name(name, start);
	return renameat2(rundir, "." VMM_PID_FILE ".new", rundir, name, RENAME_NOREPLACE);
}

static int claim_rundir(int rundir, uint32_t start)
{
	struct process_stat st;
	pid_t pid = 0;
	int fd, rc;

	/* In a PID namespace of its own getpid() is 1; the host's /proc knows the other one. */
	fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	rc = fd < 0 ? -1 : process_read_from(fd, &pid, &st);
	fd_close(&fd);
	return rc < 0 ? -1 : launcher_claim(rundir, start, pid, st.start_time);
}

static _Noreturn void run_child(struct vmm_image *image)
{
	const char *stage;

	if (cgroup_vm_enter(&image->cgroup) < 0)
		step_failed(image, "cgroup");
	if (setsid() < 0)
		step_failed(image, "session");
	reset_signals();
	umask(0077);
	if (place_fds(image) < 0)
		step_failed(image, "descriptors");
	if (claim_rundir(image->rundir, image->start) < 0)
		step_failed(image, "claim");
	image->entry.rundir = image->rundir;
	if (jail_enter(image->jail, &image->entry, &stage) < 0)
		step_failed(image, stage);
	execve(image->argv[0], image->argv, image->envp);
	step_failed(image, "exec");
}

/* 0 when the program runs; else the child's error is in reply. */
static int await_exec(int error_pipe, struct launch_reply *reply)
{
	struct step_error e;
	ssize_t n;

	do
		n = read(error_pipe, &e, sizeof(e));
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return 0;
	if (n != (ssize_t)sizeof(e))
		return launch_fail(reply, n < 0 ? errno : EPROTO, "fork", NULL);
	e.stage[sizeof(e.stage) - 1] = '\0';
	return launch_fail(reply, e.errnum, e.stage, NULL);
}

/* Fork and exec; returns the pidfd. */
static int start(struct vmm_image *image, struct launch_reply *reply)
{
	struct process_stat st = {.start_time = 0};
	int error_pipe[2], pidfd;
	pid_t pid;

	if (pipe2(error_pipe, O_CLOEXEC) < 0)
		return launch_fail(reply, errno, "fork", NULL);
	image->error_pipe = error_pipe[1];
	pid = jail_fork(image->jail, image->cgroup.into, image->entry.zygote);
	if (pid == 0)
		run_child(image);
	fd_close(&error_pipe[1]);
	if (pid < 0) {
		launch_fail(reply, errno, "fork", NULL);
		fd_close(&error_pipe[0]);
		return -1;
	}
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0 || process_read(pid, &st) < 0)
		launch_fail(reply, errno, "fork", NULL);
	else
		await_exec(error_pipe[0], reply);
	fd_close(&error_pipe[0]);
	if (reply->errnum == 0) {
		reply->pid = pid;
		reply->start_time = st.start_time;
		return pidfd;
	}
	kill(pid, SIGKILL); /* our child, not reaped */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	fd_close(&pidfd);
	return -1;
}

/* start, in a cgroup of its own where this host has them. */
static int start_apart(const struct launcher_setup *setup, const struct launch_spawn *req,
		       struct vmm_image *image, struct launch_reply *reply)
{
	const struct cgroup_size size = {.id = req->id,
					 .memory_mib = req->memory_mib,
					 .vcpus = req->vcpus,
					 .tcg = req->accel == LAUNCH_TCG};
	int pidfd;

	if (cgroup_vm_make(setup->cgroups, &size, image->rundir, &image->cgroup) < 0)
		return launch_fail(reply, errno, "cgroup", NULL);
	pidfd = start(image, reply);
	cgroup_vm_close(&image->cgroup);
	if (pidfd < 0)
		cgroup_vm_unmake(setup->cgroups, req->id);
	return pidfd;
}

static int spawn_test(const struct launcher_setup *setup, const struct launch_spawn *req,
		      struct vmm_image *image, struct launch_reply *reply)
{
	char memory[16], vcpus[16], cid[16], vmm[sizeof(setup->vmm)], id[sizeof(req->id)];
	char *argv[] = {vmm,	 "--id", id,  "--memory-mib", memory, "--vcpus", vcpus,
			"--cid", cid,	 NULL};

	memcpy(vmm, setup->vmm, sizeof(vmm));
	memcpy(id, req->id, sizeof(id));
	snprintf(memory, sizeof(memory), "%u", req->memory_mib);
	snprintf(vcpus, sizeof(vcpus), "%u", req->vcpus);
	snprintf(cid, sizeof(cid), "%u", req->cid);
	image->argv = argv;
	return start_apart(setup, req, image, reply);
}

static int spawn_qemu(const struct launcher_setup *setup, const struct launch_spawn *req,
		      struct vmm_image *image, struct launch_reply *reply)
{
	struct qemu_args args;

	if (access(setup->vmm_library, R_OK) < 0)
		return launch_fail(reply, errno, "library", setup->vmm_library);
	if (qemu_build_args(&args, setup->vmm, req, req->accel == LAUNCH_TCG ? tsc_khz() : 0) < 0)
		return launch_fail(reply, errno, "arguments", NULL);
	image->argv = args.argv;
	return start_apart(setup, req, image, reply);
}

int launcher_spawn(const struct launcher_setup *setup, const struct launch_spawn *req,
		   const int *fds, struct launch_reply *reply)
{
	struct vmm_image image = {.jail = setup->jail,
				  .entry = {.uid = req->uid,
					    .kvm = req->accel == LAUNCH_KVM,
					    .tied = req->flags & LAUNCH_TIED,
					    .zygote = req->flags & LAUNCH_ZYGOTE,
					    .launcher = getpid()},
				  .start = req->start,
				  .nfds = VMM_FD_LAYERS + 2 * (int)req->layers};
	struct vmm_env env;
	int pidfd = -1;

	for (int i = 0; i < VMM_FD_END; i++)
		image.fds[i] = -1;
	if (req->flags & LAUNCH_FORKED)
		return launcher_fork(setup, req, fds, reply);
	if (!setup->vmm[0])
		return launch_fail(reply, ENOENT, "exec", "qemu-system-x86_64");
	if (req->flags & LAUNCH_ZYGOTE && !jail_has_zygotes(setup->jail))
		return launch_fail(reply, EPERM, "zygote", NULL);
	if (open_image(setup, req, fds, &image, reply) < 0)
		goto out;
	if (build_env(&env, setup, req) < 0) {
		launch_fail(reply, ENOMEM, "memory", NULL);
		goto out;
	}
	image.envp = env.list;
	pidfd = setup->test ? spawn_test(setup, req, &image, reply)
			    : spawn_qemu(setup, req, &image, reply);
	if (pidfd < 0 && !reply->path[0])
		snprintf(reply->path, sizeof(reply->path), "%s", setup->vmm);
	free(env.list);
out:
	close_image(&image);
	return pidfd;
}
