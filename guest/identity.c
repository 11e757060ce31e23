/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of agent.identity (wire.md section 3). */
#include "guest/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/log.h"

#define MACHINE_ID     "/etc/machine-id"
#define MACHINE_ID_NEW "/etc/.machine-id.hutch"
#define MACHINE_ID_RUN "/run/machine-id"
#define REHEARSED      "/etc/.machine-id.warm"

static int fail(struct hutch_error *err, const char *stage, const char *what)
{
	hutch_error_set(err, HUTCH_E_IO, errno, "%s: %s", what, strerror(errno));
	snprintf(err->stage, sizeof(err->stage), "%s", stage);
	return -1;
}

static int set_hostname(const struct agent_identity *id, struct hutch_error *err)
{
	if (sethostname(id->hostname, strlen(id->hostname)) < 0)
		return fail(err, "hostname", "the host name cannot be set");
	return 0;
}

static int write_id(const char *path, const char *id)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0444), saved;
	char line[34];
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, line, (size_t)snprintf(line, sizeof(line), "%s\n", id));
	saved = errno;
	close(fd);
	errno = saved;
	return n < 0 ? -1 : 0;
}

/* By rename; on a read-only root by a bind mount over the file that must be there. */
static int set_machine_id(const struct agent_identity *id, const char *path,
			  struct hutch_error *err)
{
	mkdir("/etc", 0755);
	if (write_id(MACHINE_ID_NEW, id->machine_id) == 0 && rename(MACHINE_ID_NEW, path) == 0)
		return 0;
	if (errno == EROFS && write_id(MACHINE_ID_RUN, id->machine_id) == 0 &&
	    mount(MACHINE_ID_RUN, path, NULL, MS_BIND, NULL) == 0)
		return 0;
	return fail(err, "machine_id", MACHINE_ID " cannot be written");
}

int identity_set_clock(uint64_t realtime_ns, struct hutch_error *err)
{
	struct timespec ts = {
		.tv_sec = (time_t)(realtime_ns / 1000000000u),
		.tv_nsec = (long)(realtime_ns % 1000000000u),
	};

	if (clock_settime(CLOCK_REALTIME, &ts) < 0)
		return fail(err, "clock", "the clock cannot be set");
	return 0;
}

/* random(4): credit the bytes, then make the generator use them now. */
static int add_entropy(const struct agent_identity *id, unsigned bits, struct hutch_error *err)
{
	union {
		struct rand_pool_info info; /* ends with the bytes */
		uint8_t room[sizeof(struct rand_pool_info) + HUTCH_MAX_ENTROPY];
	} pool;
	int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC), ret;

	if (fd < 0)
		return fail(err, "entropy", "/dev/urandom cannot be opened");
	pool.info.entropy_count = (int)bits;
	pool.info.buf_size = (int)id->entropy_len;
	memcpy(pool.info.buf, id->entropy, id->entropy_len);
	ret = ioctl(fd, RNDADDENTROPY, &pool);
	if (ret == 0)
		ret = ioctl(fd, RNDRESEEDCRNG);
	if (ret < 0)
		fail(err, "entropy", "the random generator does not take the entropy");
	close(fd);
	explicit_bzero(&pool, sizeof(pool));
	return ret;
}

int identity_set(const struct agent_identity *id, struct hutch_error *err)
{
	if (id->generation < agent.generation + agent.held)
		return hutch_error_set(err, HUTCH_E_STATE, 0,
				       "generation %llu does not follow %llu, which is in force",
				       (unsigned long long)id->generation,
				       (unsigned long long)agent.generation);
	if (id->generation == agent.generation)
		return 0;
	if (agent.mode != AGENT_PLAIN && set_hostname(id, err) < 0)
		return -1;
	if (agent.mode == AGENT_PID1 && (set_machine_id(id, MACHINE_ID, err) < 0 ||
					 identity_set_clock(id->realtime_ns, err) < 0 ||
					 add_entropy(id, (unsigned)id->entropy_len * 8, err) < 0))
		return -1;
	agent.generation = id->generation;
	agent.needs_identity = false;
	log_info("identity: generation %llu, host name %s", (unsigned long long)id->generation,
		 id->hostname);
	return 0;
}

void identity_rehearse(void)
{
	struct agent_identity id = {.entropy = (const uint8_t *)id.machine_id,
				    .entropy_len = HUTCH_MIN_ENTROPY};
	struct hutch_error err;
	struct timespec now;

	if (agent.mode != AGENT_PID1)
		return;
	memset(id.machine_id, '0', HUTCH_MIN_ENTROPY);
	gethostname(id.hostname, sizeof(id.hostname) - 1);
	set_hostname(&id, &err);
	set_machine_id(&id, REHEARSED, &err);
	unlink(REHEARSED);
	clock_gettime(CLOCK_REALTIME, &now);
	identity_set_clock((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, &err);
	add_entropy(&id, 0, &err);
}
