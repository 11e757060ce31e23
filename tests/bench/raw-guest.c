/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in a VM: the least that can answer over vsock (vsock(7)), to tell what hutch adds from what the machine costs.
 * raw-guest PORT serves one connection at a time; its first byte says what for: 'p' each message back, 'x' for each
 * byte one /bin/true is started and waited for, and its status sent, 'i' all is read, then one byte sent, 'o' 256 MiB
 * are sent.
 */
#include <linux/vm_sockets.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char buf[65536];

static bool put(int fd, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, buf + at, len - at);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	return true;
}

static bool run_true(int fd)
{
	char path[] = "/bin/true", *argv[] = {path, NULL};
	int status = 0;
	pid_t pid;

	if (posix_spawn(&pid, path, NULL, NULL, argv, NULL) != 0 || waitpid(pid, &status, 0) != pid)
		status = -1;
	buf[0] = status == 0 ? 0 : 1;
	return put(fd, 1);
}

static void serve(int fd)
{
	char what;
	ssize_t n;

	if (read(fd, &what, 1) != 1)
		return;
	if (what == 'o')
		for (int i = 0; i < 4096 && put(fd, sizeof(buf)); i++)
			;
	else
		while ((n = read(fd, buf, sizeof(buf))) > 0)
			if ((what == 'p' && !put(fd, (size_t)n)) || (what == 'x' && !run_true(fd)))
				return;
	if (what == 'i')
		put(fd, 1);
}

int main(int argc, char **argv)
{
	struct sockaddr_vm at = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};
	int fd, s = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.svm_port = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
	signal(SIGPIPE, SIG_IGN);
	if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(s, 8) < 0)
		return 1;
	if (write(STDOUT_FILENO, "ready\n", 6) != 6)
		return 1;
	while ((fd = accept4(s, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		serve(fd);
		close(fd);
	}
	return 1;
}
