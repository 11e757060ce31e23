/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest VMM that boots nothing, for load.py: a thousand of them fit where fakevmm.py would need 10 GB.
 *
 * It takes the descriptors of a VMM (4 hybrid vsock, 5 QMP, 6 the library's control socket), starts the agent that LOAD_AGENT
 * names as a plain process in PID, mount and UTS namespaces of its own, answers `CONNECT 520` by a bridge to that agent, and
 * says yes to QMP and control commands. One poll loop; writes block, since what is carried is small.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_FDS 64
#define CHUNK	65536

enum kind { FREE, VSOCK, QMP, CTL, HANDSHAKE, BRIDGE, QMP_CLIENT, CTL_CLIENT };

struct slot {
	enum kind kind;
	int other; /* BRIDGE: the slot of the other end */
	char line[256];
	size_t len;
};

static struct pollfd fds[MAX_FDS];
static struct slot slots[MAX_FDS];
static char chunk[CHUNK];
static char agent_socket[100], dial_path[120];

static int add(int fd, enum kind kind)
{
	for (int i = 0; i < MAX_FDS; i++) {
		if (slots[i].kind != FREE)
			continue;
		slots[i] = (struct slot){.kind = kind, .other = -1};
		fds[i] = (struct pollfd){.fd = fd, .events = POLLIN};
		return i;
	}
	close(fd);
	return -1;
}

static void drop(int i)
{
	int other = slots[i].other;

	close(fds[i].fd);
	fds[i].fd = -1;
	slots[i].kind = FREE;
	if (other >= 0 && slots[other].kind == BRIDGE) {
		slots[other].other = -1;
		drop(other);
	}
}

static int put(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return -1;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

static int dial_agent(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", agent_socket);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void handshake(int i)
{
	static unsigned port = 1u << 30;
	int agent = strcmp(slots[i].line, "CONNECT 520") == 0 ? dial_agent() : -1;
	int n, other = agent < 0 ? -1 : add(agent, BRIDGE);
	char ok[32];

	if (other < 0) {
		drop(i);
		return;
	}
	n = snprintf(ok, sizeof(ok), "OK %u\n", port++);
	slots[i].kind = BRIDGE;
	slots[i].other = other;
	slots[other].other = i;
	if (put(fds[i].fd, ok, (size_t)n) < 0)
		drop(i);
}

static void qmp_line(int i)
{
	const char *id = strstr(slots[i].line, "\"id\"");
	unsigned long number = id ? strtoul(id + strcspn(id, "0123456789"), NULL, 10) : 0;
	bool status = strstr(slots[i].line, "query-status");
	char answer[200];
	int n = snprintf(answer, sizeof(answer), "{\"return\": {%s}, \"id\": %lu}\r\n",
			 status ? "\"status\": \"running\", \"running\": true" : "", number);

	if (put(fds[i].fd, answer, (size_t)n) < 0)
		drop(i);
}

static void line(int i)
{
	if (slots[i].kind == HANDSHAKE)
		handshake(i);
	else if (slots[i].kind == QMP_CLIENT)
		qmp_line(i);
	else if (put(fds[i].fd, "ok\n", 3) < 0)
		drop(i);
}

/* Byte by byte: what follows a handshake's line belongs to the agent. */
static void read_line(int i)
{
	struct slot *s = &slots[i];
	char c;

	if (read(fds[i].fd, &c, 1) != 1) {
		drop(i);
	} else if (c == '\n') {
		s->line[s->len] = '\0';
		s->len = 0;
		line(i);
	} else if (c != '\r' && s->len < sizeof(s->line) - 1) {
		s->line[s->len++] = c;
	}
}

static void accept_one(int i)
{
	static const char greeting[] =
		"{\"QMP\": {\"version\": {\"qemu\": {\"major\": 7, \"minor\": 2, \"micro\": 0}, "
		"\"package\": \"load\"}, \"capabilities\": []}}\r\n";
	int fd = accept4(fds[i].fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (slots[i].kind == QMP)
		put(fd, greeting, sizeof(greeting) - 1);
	add(fd, slots[i].kind == VSOCK ? HANDSHAKE
		: slots[i].kind == QMP ? QMP_CLIENT
				       : CTL_CLIENT);
}

static void carry(int i)
{
	ssize_t n = read(fds[i].fd, chunk, sizeof(chunk));

	if (n <= 0 || put(fds[slots[i].other].fd, chunk, (size_t)n) < 0)
		drop(i);
}

static void serve(int i)
{
	switch (slots[i].kind) {
	case VSOCK:
	case QMP:
	case CTL:
		accept_one(i);
		break;
	case BRIDGE:
		carry(i);
		break;
	case FREE:
		break;
	default:
		read_line(i);
	}
}

/* The agent, below an init that is nothing but that. */
static _Noreturn void guest(const char *agent)
{
	pid_t pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close_range(3, ~0u, 0);
	if (mount("proc", "/proc", "proc", 0, NULL) < 0)
		_exit(1);
	pid = fork();
	if (pid == 0) {
		execl(agent, agent, "--unix", agent_socket, "--dial", dial_path, (char *)NULL);
		_exit(127);
	}
	while (waitpid(-1, NULL, 0) != pid || errno == EINTR)
		;
	_exit(0);
}

int main(void)
{
	const char *agent = getenv("LOAD_AGENT"), *dir = getenv("LOAD_DIR");
	char link[100], cwd[4096];

	if (!agent || !dir || !getcwd(cwd, sizeof(cwd)))
		return 2;
	/* The run directory's own path may be too long for a socket's. */
	snprintf(agent_socket, sizeof(agent_socket), "%s/a%d", dir, (int)getpid());
	snprintf(link, sizeof(link), "%s/r%d", dir, (int)getpid());
	snprintf(dial_path, sizeof(dial_path), "%s/vsock_521", link);
	if (symlink(cwd, link) < 0 || unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		perror("load-vmm");
		return 1;
	}
	for (int i = 0; i < MAX_FDS; i++)
		fds[i].fd = -1;
	add(4, VSOCK);
	add(5, QMP);
	add(6, CTL);
	if (fork() == 0)
		guest(agent);
	for (;;) {
		if (poll(fds, MAX_FDS, -1) < 0 && errno != EINTR)
			return 1;
		for (int i = 0; i < MAX_FDS; i++)
			if (fds[i].fd >= 0 && fds[i].revents)
				serve(i);
	}
}
