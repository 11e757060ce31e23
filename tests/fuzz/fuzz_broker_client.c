/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's bytes, from HELLO on, against the broker's client side and dispatch. The first byte says how many bytes
 * come at a time, so that frames are cut everywhere.
 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/hutchd/client.h"
#include "host/hutchd/log.h"

static struct broker broker;
static struct config config;

static void drain(int fd)
{
	static uint8_t sink[65536];

	while (read(fd, sink, sizeof(sink)) > 0)
		;
}

static void set_up(void)
{
	log_setup("fuzz", LOG_LEVEL_ERROR + 1, 0);
	config_defaults(&config);
	broker.config = &config;
	broker.ttl_fd = broker.vms_fd = broker.state_fd = broker.templates_fd = -1;
	broker.stopping = true; /* vm.create is decoded and refused */
	TAILQ_INIT(&broker.vms);
	TAILQ_INIT(&broker.tombs);
	TAILQ_INIT(&broker.clients);
	if (loop_init(&broker.loop) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t step;
	int pair[2];

	if (!broker.config)
		set_up();
	if (size < 2 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
		return 0;
	if (!client_new(&broker, pair[0], 1000, 1))
		abort();
	step = data[0] ? data[0] : size;
	for (size_t at = 1; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		if (send(pair[1], data + at, n, MSG_NOSIGNAL) < 0)
			break;
		event_base_loop(broker.loop.base, EVLOOP_NONBLOCK);
		drain(pair[1]);
	}
	close(pair[1]);
	event_base_loop(broker.loop.base, EVLOOP_NONBLOCK);
	while (!TAILQ_EMPTY(&broker.clients))
		client_close(TAILQ_FIRST(&broker.clients));
	event_base_loop(broker.loop.base, EVLOOP_NONBLOCK);
	return 0;
}
