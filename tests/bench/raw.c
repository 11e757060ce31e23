/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of raw-guest.c: past the broker, to the VM's own vsock socket (host/vsock/README.md); see bench.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define MESSAGE 20 /* bytes, as many as a ping's call has */

static uint8_t buf[262144];

static size_t get(struct conn *c, size_t max)
{
	ssize_t n = recv(c->fd, buf, max, 0);

	if (n < 0)
		die("recv");
	return (size_t)n;
}

static struct conn *connect_to(const char *socket, long port, char what)
{
	struct conn *c = dial_plain(socket);
	char line[32];

	snprintf(line, sizeof(line), "CONNECT %ld\n", port);
	send_all(c, line, strlen(line));
	do
		if (get(c, 1) != 1) {
			errno = 0;
			die("the guest does not listen");
		}
	while (buf[0] != '\n');
	send_all(c, &what, 1);
	return c;
}

static void round_trips(struct conn *c, long n, size_t len)
{
	memset(buf, 0, len);
	for (long i = -3; i < n; i++) {
		double t = now_us();

		send_all(c, buf, len);
		for (size_t have = 0, more; have < len; have += more)
			if ((more = get(c, len - have)) == 0)
				die("the connection ended");
		if (buf[0] != 0)
			die("/bin/true failed");
		if (i >= 0)
			printf("%.4f\n", (now_us() - t) / 1e3);
	}
}

static size_t pour(struct conn *c, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof(buf))
		send_all(c, buf, sizeof(buf));
	shutdown(c->fd, SHUT_WR);
	return get(c, 1) == 1 ? size : 0;
}

static size_t drain(struct conn *c)
{
	size_t all = 0, n;

	while ((n = get(c, sizeof(buf))) > 0)
		all += n;
	return all;
}

void raw(const char *mode, const char *socket, long port, long n)
{
	struct conn *c;

	if (strcmp(mode, "raw-ping") == 0) {
		round_trips(connect_to(socket, port, 'p'), n, MESSAGE);
		return;
	}
	if (strcmp(mode, "raw-exec") == 0) {
		round_trips(connect_to(socket, port, 'x'), n, 1);
		return;
	}
	for (long i = 0; i < n; i++) {
		bool in = strcmp(mode, "raw-in") == 0;
		double t = now_us();

		c = connect_to(socket, port, in ? 'i' : 'o');
		if ((in ? pour(c, RAW_BYTES) : drain(c)) != RAW_BYTES)
			die("bytes are missing");
		printf("%.4f\n", RAW_BYTES / 1048576.0 / ((now_us() - t) / 1e6));
		close(c->fd);
	}
}
