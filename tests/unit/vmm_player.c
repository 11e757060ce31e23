/* SPDX-License-Identifier: Apache-2.0 */
/* A VMM for tests: QMP on descriptor 5, the library's control socket on 6, misbehaving as asked. */
#include "tests/unit/vmm_player.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/launch_proto.h"

#define GREETING                                                                          \
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 3, \"minor\": 2, \"major\": 1}, " \
	"\"package\": \"\"}, \"capabilities\": []}}\r\n"

static const char *part = "";
static int commands;
static bool paused;
static int state_fd = -1; /* of add-fd: for the state of the devices */

static bool plays(const char *name)
{
	return strcmp(part, name) == 0;
}

static void say(int fd, const char *text)
{
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		perror("send");
}

static void note(const char *file, const char *text)
{
	FILE *f = fopen(file, "we");

	if (!f || fputs(text, f) < 0)
		_exit(99);
	fclose(f);
}

/*
 * What a VMM must find: exactly its descriptors, its own session, and none of the launcher's signal
 * state.
 */
static void check_shape(void)
{
	char text[512], fds[256] = "", cwd[128];
	struct rlimit core;
	struct sigaction pipe_action;
	sigset_t mask;
	DIR *dir = opendir("/proc/self/fd");
	int own = dirfd(dir);
	bool open_fds[64] = {false};

	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		if (e->d_name[0] != '.' && atoi(e->d_name) != own && atoi(e->d_name) < 64)
			open_fds[atoi(e->d_name)] = true;
	closedir(dir);
	for (int i = 0; i < 64; i++)
		if (open_fds[i])
			snprintf(fds + strlen(fds), sizeof(fds) - strlen(fds), "%d,", i);
	getrlimit(RLIMIT_CORE, &core);
	sigaction(SIGPIPE, NULL, &pipe_action);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	snprintf(text, sizeof(text),
		 "fds=%s leader=%d core=%d nnp=%d sigpipe=%d chld_blocked=%d umask=%o cwd=%s "
		 "deadline=%s dial=%s preload=%d",
		 fds, getsid(0) == getpid() && getpgrp() == getpid(), (int)core.rlim_max,
		 prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), pipe_action.sa_handler == SIG_DFL,
		 sigismember(&mask, SIGCHLD), (unsigned)umask(077),
		 getcwd(cwd, sizeof(cwd)) ? cwd : "?", getenv("HUTCH_DEADLINE_MS"),
		 getenv("HUTCH_VSOCK_DIAL"), getenv("LD_PRELOAD") != NULL);
	note("shape", text);
}

/* One read, of at most size - 1 bytes and the descriptors that came with them; the others are -1. */
static ssize_t read_with_fds(int fd, char *text, size_t size, int fds[2])
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec iov = {text, size - 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf)};
	ssize_t n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	fds[0] = fds[1] = -1;
	if (c)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return n;
}

/* xen-save-devices-state */
static void save_devices(void)
{
	static const char state[] = "devices";

	if (plays("save_dies"))
		raise(SIGKILL);
	if (ftruncate(state_fd, plays("save_huge") ? 2 << 20 : 0) < 0 ||
	    (!plays("save_nothing") && write(state_fd, state, sizeof(state) - 1) < 0))
		_exit(97);
}

static void answer(int fd, const char *line)
{
	char text[256];
	const char *id = strstr(line, "\"id\":");

	commands++;
	if (strstr(line, "\"stop\"")) {
		if (plays("stop_dies"))
			raise(SIGKILL);
		say(fd, "{\"event\":\"STOP\"}\r\n");
	}
	if (strstr(line, "\"cont\""))
		say(fd, "{\"event\":\"RESUME\"}\r\n");
	if (strstr(line, "xen-save-devices-state"))
		save_devices();
	if ((plays("error2") && commands == 2) ||
	    (plays("save_fails") && strstr(line, "xen-save-devices-state")))
		snprintf(
			text, sizeof(text),
			"{\"error\":{\"class\":\"GenericError\",\"desc\":\"refused\"},\"id\":%d}\r\n",
			atoi(id + 5));
	else if (plays("restored") && commands == 2)
		snprintf(text, sizeof(text),
			 "{\"return\":{\"status\":\"inmigrate\",\"running\":false},\"id\":%d}\r\n"
			 "{\"event\":\"MIGRATION\",\"data\":{\"status\":\"active\"}}\r\n"
			 "{\"event\":\"MIGRATION\",\"data\":{\"status\":\"completed\"}}\r\n",
			 atoi(id + 5));
	else if (plays("overtaken") && commands == 2)
		snprintf(text, sizeof(text),
			 "{\"event\":\"RESUME\"}\r\n"
			 "{\"event\":\"MIGRATION\",\"data\":{\"status\":\"completed\"}}\r\n"
			 "{\"return\":{\"status\":\"inmigrate\",\"running\":false},\"id\":%d}\r\n",
			 atoi(id + 5));
	else if (strstr(line, "query-status"))
		snprintf(text, sizeof(text),
			 "{\"return\":{\"status\":\"%s\",\"running\":%s},\"id\":%d}\r\n",
			 paused ? "paused" : "running", paused ? "false" : "true", atoi(id + 5));
	else
		snprintf(text, sizeof(text), "{\"return\":{},\"id\":%d}\r\n", atoi(id + 5));
	if (strstr(line, "\"cont\"")) {
		paused = false;
		note("continued", "");
	}
	say(fd, text);
}

static void shut_down(int fd, const char *reason)
{
	char text[128];

	snprintf(text, sizeof(text), "{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"%s\"}}\r\n",
		 reason);
	say(fd, text);
	_exit(0);
}

/* What a running VMM does next. */
static void act_when_up(int fd)
{
	if (plays("poweroff"))
		shut_down(fd, "guest-shutdown");
	if (plays("reboot"))
		shut_down(fd, "guest-reset");
	if (plays("panic")) {
		static const char text[] = "[ 1.0] Kernel panic - not syncing: test\r\n";

		if (write(7, text, sizeof(text) - 1) < 0)
			_exit(98);
		shut_down(fd, "guest-reset");
	}
	if (plays("exit_later")) {
		fputs("first line\nlast line\n", stderr);
		_exit(7);
	}
	if (plays("crash"))
		raise(SIGSEGV);
	if (plays("flood"))
		for (;;)
			say(fd,
			    "{\"event\":\"X\",\"data\":{\"a\":\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"}}\n");
}

static void greet(int fd)
{
	if (plays("garbage"))
		say(fd, "this is not QMP\n");
	if (plays("silent"))
		return;
	say(fd, GREETING);
	if (plays("close_and_exit")) {
		fputs("closing\n", stderr);
		shutdown(fd, SHUT_RDWR);
		usleep(50000);
		_exit(5);
	}
	if (plays("close_and_stay"))
		shutdown(fd, SHUT_RDWR);
}

static void serve_qmp(int fd)
{
	char text[4096];
	int fds[2];
	ssize_t n = read_with_fds(fd, text, sizeof(text), fds);

	if (fds[0] >= 0)
		state_fd = fds[0];
	if (n <= 0) {
		close(fd);
		if (plays("close_and_stay"))
			return;
		greet(accept(5, NULL, NULL)); /* it gets the same number */
		return;
	}
	text[n] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		answer(fd, line);
	if (strstr(text, "query-status"))
		act_when_up(fd);
}

static void capture(int fd, const char *line, const int fds[2])
{
	if (plays("memory_full"))
		say(fd, "err capture: data: errno=28 No space left on device\n");
	else if (plays("memory_refused"))
		say(fd, "err the VM is running\n");
	else if (plays("memory_closes"))
		shutdown(fd, SHUT_RDWR);
	else if (write(fds[0], line, strlen(line)) < 0 ||
		 (fds[1] >= 0 && write(fds[1], "e", 1) < 0))
		_exit(96);
	else
		say(fd, "ok bytes=123456789012 extents=7 us=5\n");
	close(fds[0]);
	if (fds[1] >= 0)
		close(fds[1]);
}

/* What a restored VMM is given. */
static void check_restored(void)
{
	char text[64];
	ssize_t n = read(12, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	note("device", text);
	n = pread(VMM_FD_LAYERS, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	note("layer", text);
	note("fcntl", (fcntl(11, F_GETFL) & O_ACCMODE) == O_RDONLY &&
				      fcntl(VMM_FD_LAYERS + 1, F_GETFD) >= 0 &&
				      fcntl(15, F_GETFD) < 0
			      ? "good"
			      : "bad");
	note("layers", getenv("HUTCH_LAYERS") ? getenv("HUTCH_LAYERS") : "none");
}

static void serve_ctl(int fd)
{
	char text[256];
	int fds[2];
	ssize_t n = read_with_fds(fd, text, sizeof(text), fds);

	if (n <= 0) {
		close(fd);
		return;
	}
	text[n] = '\0';
	if (strncmp(text, "capture ", 8) == 0) {
		capture(fd, text, fds);
		return;
	}
	note("renewed.new", text);
	rename("renewed.new", "renewed");
	if (plays("ctl_err"))
		say(fd, "err no\n");
	else
		say(fd, "ok\n");
	if (plays("ctl_closes"))
		close(fd);
}

static void serve(void)
{
	int qmp = accept(5, NULL, NULL), ctl = -1;

	greet(qmp);
	for (;;) {
		struct pollfd p[3] = {{.fd = qmp, .events = POLLIN},
				      {.fd = ctl < 0 ? 6 : -1, .events = POLLIN},
				      {.fd = ctl, .events = POLLIN}};

		poll(p, 3, -1);
		if (p[0].revents)
			serve_qmp(qmp);
		if (p[2].revents) {
			serve_ctl(ctl);
			if (fcntl(ctl, F_GETFD) < 0)
				ctl = -1;
		}
		if (p[1].revents && ctl < 0)
			ctl = accept(6, NULL, NULL);
	}
}

/* The file "play" in the run directory. */
static const char *read_part(void)
{
	static char text[32];
	FILE *f = fopen("play", "re");

	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
		fclose(f);
	}
	return text;
}

void vmm_play(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--id") != 0)
		return;
	alarm(120); /* a test that failed does not end it */
	part = getenv("HUTCH_PLAY") ? getenv("HUTCH_PLAY") : read_part();
	for (int fd = 4; fd <= 6; fd++)
		fcntl(fd, F_SETFL, 0);
	if (plays("shape"))
		check_shape();
	if (plays("restored"))
		check_restored();
	if (plays("exit")) {
		fputs("cannot start, as asked\n", stderr);
		_exit(3);
	}
	if (plays("no_qmp"))
		for (;;)
			pause();
	if (plays("paused"))
		paused = true;
	if (plays("bare")) {
		pid_t pid = fork();
		char text[32];

		if (pid == 0)
			execle("/bin/sleep", "sleep", "100", (char *)NULL, (char *[]){NULL});
		snprintf(text, sizeof(text), "%d", pid);
		note("bare", text);
	}
	if (plays("litter"))
		for (int i = 0; i < 3; i++)
			if (fork() == 0) {
				setsid();
				if (fork() == 0)
					setsid();
				for (;;)
					pause();
			}
	serve();
}
