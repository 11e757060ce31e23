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
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/boot.h"
#include "guest/log.h"
#include "guest/loop.h"
#include "guest/worker.h"

#define MACHINE_ID     "/etc/machine-id"
#define MACHINE_ID_NEW "/etc/.machine-id.hutch"
#define MACHINE_ID_RUN "/run/machine-id"
#define ID_LINE	       33   /* with its newline */
#define IDLE_MS	       1000 /* what is done later is done when the VM has nothing else to do */

/*
 * A copy of a VM runs each piece of code for the first time, and under emulation that is what its identity costs: so
 * what can be opened before the snapshot is. The machine id's file only where no command runs, which would wait for it.
 */
static char *machine_id; /* the file, mapped; for nothing but a held agent's identity */
static bool usable;	 /* mapped since the agent is held: no command has touched it since */
static int random_fd = -1;

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
	char line[ID_LINE + 1];
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, line, (size_t)snprintf(line, sizeof(line), "%s\n", id));
	saved = errno;
	close(fd);
	errno = saved;
	return n < 0 ? -1 : 0;
}

/* The file as it was written here; -1: it is not, or a worker runs, which could make it shorter. */
static int open_written(void)
{
	int fd = worker_busy() ? -1
			       : open(MACHINE_ID, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
		       st.st_size == ID_LINE))
		return fd;
	close(fd);
	return -1;
}

/* While the agent is held nobody runs who could see it half written. */
static bool rewrite_machine_id(const struct agent_identity *id)
{
	bool done;
	int fd;

	if (usable) {
		memcpy(machine_id, id->machine_id, ID_LINE - 1);
		return true;
	}
	fd = open_written();
	done = fd >= 0 && pwrite(fd, id->machine_id, ID_LINE - 1, 0) == ID_LINE - 1;
	if (fd >= 0)
		close(fd);
	return done;
}

/* By rename; on a read-only root by a bind mount over the file that must be there. */
static int set_machine_id(const struct agent_identity *id, struct hutch_error *err)
{
	if (agent.held && rewrite_machine_id(id))
		return 0;
	mkdir("/etc", 0755);
	if (write_id(MACHINE_ID_NEW, id->machine_id) == 0 &&
	    rename(MACHINE_ID_NEW, MACHINE_ID) == 0)
		return 0;
	if (errno == EROFS && write_id(MACHINE_ID_RUN, id->machine_id) == 0 &&
	    mount(MACHINE_ID_RUN, MACHINE_ID, NULL, MS_BIND, NULL) == 0)
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
	int ret;

	if (random_fd < 0)
		random_fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	if (random_fd < 0)
		return fail(err, "entropy", "/dev/urandom cannot be opened");
	pool.info.entropy_count = (int)bits;
	pool.info.buf_size = (int)id->entropy_len;
	memcpy(pool.info.buf, id->entropy, id->entropy_len);
	ret = ioctl(random_fd, RNDADDENTROPY, &pool);
	if (ret == 0)
		ret = ioctl(random_fd, RNDRESEEDCRNG);
	if (ret < 0)
		fail(err, "entropy", "the random generator does not take the entropy");
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
	if (agent.mode == AGENT_PID1 &&
	    (set_machine_id(id, err) < 0 || identity_set_clock(id->realtime_ns, err) < 0 ||
	     add_entropy(id, (unsigned)id->entropy_len * 8, err) < 0))
		return -1;
	if (id->disk_bytes && boot_grow_disk(id->disk_bytes) < 0)
		return fail(err, "disk", "its file system cannot grow");
	agent.generation = id->generation;
	agent.needs_identity = false;
	log_debug("identity: generation %llu, host name %s", (unsigned long long)id->generation,
		  id->hostname);
	return 0;
}

static void unmap(struct loop_timer *t)
{
	(void)t;
	if (machine_id)
		munmap(machine_id, ID_LINE);
	machine_id = NULL;
}

static struct loop_timer idle = {.due = unmap, .always = true};

void identity_prepare(void)
{
	void *p;
	int fd;

	loop_timer_clear(&idle);
	unmap(NULL);
	fd = agent.mode == AGENT_PID1 ? open_written() : -1;
	if (fd < 0)
		return;
	p = mmap(NULL, ID_LINE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	usable = p != MAP_FAILED;
	if (usable)
		machine_id = p;
	close(fd);
}

void identity_over(void)
{
	usable = false;
	if (machine_id)
		loop_timer_after_ms(&idle, IDLE_MS);
}

int identity_rehearse(const struct agent_identity *id, struct hutch_error *err)
{
	struct agent_identity same = {.entropy = id->entropy, .entropy_len = id->entropy_len};
	struct timespec now;

	if (agent.mode != AGENT_PID1)
		return 0;
	gethostname(same.hostname, sizeof(same.hostname) - 1);
	clock_gettime(CLOCK_REALTIME, &now);
	if (set_hostname(&same, err) < 0 ||
	    identity_set_clock((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, err) < 0)
		return -1;
	return add_entropy(&same, 0, err);
}
