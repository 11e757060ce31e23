/* SPDX-License-Identifier: Apache-2.0 */
/* Hybrid vsock: the CONNECT line, and the way from a guest's port to a Unix socket. */
#include "host/vsock/hybrid.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT_ANY 0xffffffffU /* VMADDR_PORT_ANY: names no port */

static const char verb[] = "CONNECT ";

#define VERB_LEN (sizeof(verb) - 1)

int hybrid_parse_connect(const char *buf, size_t len, uint32_t *port)
{
	size_t i = len < VERB_LEN ? len : VERB_LEN;
	uint64_t value = 0;

	if (memcmp(buf, verb, i) != 0)
		return -1;
	for (i = VERB_LEN; i < len; i++) {
		if (buf[i] == '\n' && i > VERB_LEN) {
			*port = (uint32_t)value;
			return (int)i + 1;
		}
		if (buf[i] < '0' || buf[i] > '9' || i == VERB_LEN + 10)
			return -1;
		value = value * 10 + (uint64_t)(buf[i] - '0');
		if (value >= PORT_ANY)
			return -1;
	}
	return 0;
}

size_t hybrid_format_ok(char *buf, uint32_t port)
{
	return (size_t)snprintf(buf, HYBRID_OK_MAX, "OK %u\n", port);
}

static int dial_addr(const char *prefix, uint32_t port, struct sockaddr_un *sa)
{
	int n;

	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	n = snprintf(sa->sun_path, sizeof(sa->sun_path), "%s_%u", prefix, port);
	return n > 0 && (size_t)n < sizeof(sa->sun_path) ? 0 : -ENAMETOOLONG;
}

int hybrid_check_prefix(const char *prefix)
{
	struct sockaddr_un sa;

	return dial_addr(prefix, UINT32_MAX, &sa);
}

int hybrid_dial(const char *prefix, uint32_t port)
{
	struct sockaddr_un sa;
	int fd, r = dial_addr(prefix, port, &sa);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}
