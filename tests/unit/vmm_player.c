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

#define GREETING                                                                          \
	"{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 3, \"minor\": 2, \"major\": 1}, " \
	"\"package\": \"\"}, \"capabilities\": []}}\r\n"

static const char *part = "";
static int commands;
static bool paused;

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

static void answer(int fd, const char *line)
{
	char text[256];
	const char *id = strstr(line, "\"id\":");

	commands++;
	if (plays("error2") && commands == 2)
		snprintf(
			text, sizeof(text),
			"{\"error\":{\"class\":\"GenericError\",\"desc\":\"refused\"},\"id\":%d}\r\n",
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
	ssize_t n = read(fd, text, sizeof(text) - 1);

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

static void serve_ctl(int fd)
{
	char text[256];
	ssize_t n = read(fd, text, sizeof(text) - 1);

	if (n <= 0) {
		close(fd);
		return;
	}
	text[n] = '\0';
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

void vmm_play(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "--id") != 0)
		return;
	alarm(120); /* a test that failed does not end it */
	part = getenv("HUTCH_PLAY") ? getenv("HUTCH_PLAY") : "";
	for (int fd = 4; fd <= 6; fd++)
		fcntl(fd, F_SETFL, 0);
	if (plays("shape"))
		check_shape();
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
