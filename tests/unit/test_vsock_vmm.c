/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The preloaded part, with this program in QEMU's place: the vhost ioctls in QEMU's order, the
 * thread and its eventfds, the control socket, the dead-man's timer, and the module itself in a real
 * LD_PRELOAD.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "tests/harness/fake_guest.h"

#define WAIT_MS 10000 /* for an event that must come */

static struct fake_guest fg;
static struct vmm *vmm;
static struct vmm_config cfg;
static char dir[] = "/tmp/test_vsock_XXXXXX";
static char prefix[64], ctl_path[64];
static uint8_t buf[262144];

static int listen_at(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	return fd;
}

static int connect_to(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct timeval tv = {.tv_sec = WAIT_MS / 1000};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(prefix, sizeof(prefix), "%s/vsock", dir);
	snprintf(ctl_path, sizeof(ctl_path), "%s/ctl", dir);
	cfg = (struct vmm_config){
		.vhost_fd = open("/dev/null", O_RDWR | O_CLOEXEC),
		.vsock_fd = listen_at(prefix),
		.ctl_fd = listen_at(ctl_path),
		.dial = prefix,
		.mem_fd = -1,
	};
	fg_init(&fg, &(struct fg_opts){.event_idx = true, .rx = FG_INDIRECT, .tx = FG_INDIRECT});
	vmm = vmm_start(&cfg);
	ck_assert_ptr_nonnull(vmm);
	vmm_vhost_attach(vmm);
}

static void teardown(void)
{
	char command[128];

	vmm_vhost_attach(NULL);
	vmm_stop(vmm);
	fg_free(&fg);
	close(cfg.vhost_fd);
	close(cfg.vsock_fd);
	close(cfg.ctl_fd);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

/* ---- QEMU's side ---- */

static int vhost(unsigned long request, void *arg)
{
	return ioctl(cfg.vhost_fd, request, arg);
}

/* vhost_dev_init() and vhost_vsock_set_guest_cid() */
static void qemu_init(void)
{
	uint64_t features, cid = FG_CID;

	ck_assert_int_eq(vhost(VHOST_SET_OWNER, NULL), 0);
	ck_assert_int_eq(vhost(VHOST_GET_FEATURES, &features), 0);
	ck_assert_uint_eq(features, vsock_dev_features());
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		struct vhost_vring_file f = {.index = q, .fd = fg.ring[q].call};

		ck_assert_int_eq(vhost(VHOST_SET_VRING_CALL, &f), 0);
		f.fd = -1;
		ck_assert_int_eq(vhost(VHOST_SET_VRING_ERR, &f), 0);
	}
	ck_assert_int_eq(vhost(VHOST_VSOCK_SET_GUEST_CID, &cid), 0);
}

static uint64_t hva(uint64_t gpa)
{
	return (uint64_t)(uintptr_t)fg_ptr(&fg, gpa, 1);
}

static void qemu_set_mem(void)
{
	size_t size = sizeof(struct vhost_memory) + 2 * sizeof(struct vhost_memory_region);
	struct vhost_memory *mem = calloc(1, size);

	ck_assert_ptr_nonnull(mem);
	mem->nregions = fg.regions;
	for (unsigned i = 0; i < fg.regions; i++)
		mem->regions[i] = (struct vhost_memory_region){
			.guest_phys_addr = fg.region[i].gpa,
			.memory_size = fg.region[i].size,
			.userspace_addr = (uint64_t)(uintptr_t)fg.region[i].hva,
		};
	ck_assert_int_eq(vhost(VHOST_SET_MEM_TABLE, mem), 0);
	free(mem);
}

/* vhost_dev_start() and vhost_vsock_set_running(); base is what qemu_stop() returned, or zeros */
static void qemu_start(const uint32_t base[VSOCK_QUEUES])
{
	uint64_t features = fg.features | 1ULL << 24; /* QEMU passes on bits that are not ours */
	int run = 1;

	ck_assert_int_eq(vhost(VHOST_SET_FEATURES, &features), 0);
	qemu_set_mem();
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		struct fg_ring *r = &fg.ring[q];
		struct vhost_vring_state s = {.index = q, .num = r->num};
		struct vhost_vring_addr a = {.index = q,
					     .desc_user_addr = hva(r->desc),
					     .avail_user_addr = hva(r->avail),
					     .used_user_addr = hva(r->used)};
		struct vhost_vring_file f = {.index = q, .fd = r->kick};

		ck_assert_int_eq(vhost(VHOST_SET_VRING_NUM, &s), 0);
		s.num = base[q];
		ck_assert_int_eq(vhost(VHOST_SET_VRING_BASE, &s), 0);
		ck_assert_int_eq(vhost(VHOST_SET_VRING_ADDR, &a), 0);
		ck_assert_int_eq(vhost(VHOST_SET_VRING_KICK, &f), 0);
		f.fd = r->call;
		ck_assert_int_eq(vhost(VHOST_SET_VRING_CALL, &f), 0);
	}
	ck_assert_int_eq(vhost(VHOST_VSOCK_SET_RUNNING, &run), 0);
}

static void qemu_stop(uint32_t base[VSOCK_QUEUES])
{
	int run = 0;

	ck_assert_int_eq(vhost(VHOST_VSOCK_SET_RUNNING, &run), 0);
	for (unsigned q = 0; q < VSOCK_QUEUES; q++) {
		struct vhost_vring_state s = {.index = q};

		ck_assert_int_eq(vhost(VHOST_GET_VRING_BASE, &s), 0);
		base[q] = s.num;
	}
}

static void boot(void)
{
	const uint32_t zero[VSOCK_QUEUES] = {0};

	qemu_init();
	qemu_start(zero);
	fg_fill_rx(&fg);
}

/* Sleeps until the receive interrupt, as a guest does. */
static void wait_interrupt(void)
{
	struct pollfd p = {.fd = fg.ring[VSOCK_QUEUE_RX].call, .events = POLLIN};

	ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
	ck_assert(fg_interrupted(&fg, VSOCK_QUEUE_RX));
}

static void recv_packet(struct packet *p, void *payload)
{
	while (!fg_recv(&fg, p, payload))
		wait_interrupt();
}

static int connect_to_guest(struct fg_conn *c, uint32_t port)
{
	int fd = connect_to(prefix);
	struct packet p;
	char line[32];
	ssize_t n = snprintf(line, sizeof(line), "CONNECT %u\n", port);

	ck_assert_int_eq(send(fd, line, (size_t)n, 0), n);
	recv_packet(&p, NULL);
	ck_assert_uint_eq(p.op, VIRTIO_VSOCK_OP_REQUEST);
	ck_assert_uint_eq(p.dst_port, port);
	*c = (struct fg_conn){.host_port = p.src_port,
			      .guest_port = port,
			      .buf_alloc = 262144,
			      .peer_alloc = p.buf_alloc,
			      .open = true};
	fg_op(&fg, c, VIRTIO_VSOCK_OP_RESPONSE, 0);
	n = recv(fd, line, sizeof(line), 0);
	ck_assert_int_gt(n, 4);
	ck_assert_int_eq(line[n - 1], '\n');
	return fd;
}

static void guest_reads(struct fg_conn *c, void *to, size_t n)
{
	size_t got = 0;

	for (;;) {
		got += fg_conn_recv(&fg, c, (uint8_t *)to + got, n - got, true);
		if (got == n)
			return;
		wait_interrupt();
	}
}

static void ping(struct fg_conn *c, int fd, uint64_t x)
{
	uint64_t y = 0;

	ck_assert_int_eq(send(fd, &x, sizeof(x), MSG_NOSIGNAL), sizeof(x));
	guest_reads(c, &y, sizeof(y));
	ck_assert_uint_eq(x, y);
	ck_assert_uint_eq(fg_conn_send(&fg, c, &x, sizeof(x)), sizeof(x));
	ck_assert_int_eq(recv(fd, &y, sizeof(y), MSG_WAITALL), sizeof(y));
	ck_assert_uint_eq(x, y);
}

/* ---- vhost ---- */

START_TEST(other_ioctls_pass)
{
	uint64_t features = 0;
	int p[2], n = -1;

	ck_assert_int_eq(pipe(p), 0);
	ck_assert_int_eq(write(p[1], "abc", 3), 3);
	ck_assert_int_eq(ioctl(p[0], FIONREAD, &n), 0);
	ck_assert_int_eq(n, 3);
	ck_assert_int_eq(ioctl(p[0], VHOST_GET_FEATURES, &features), -1);
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_int_eq(ioctl(cfg.vhost_fd, FIONREAD, &n),
			 -1); /* our descriptor, not a vhost request */
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_int_eq(ioctl(-1, FIONREAD, &n), -1);
	ck_assert_int_eq(errno, EBADF);
	close(p[0]);
	close(p[1]);
}
END_TEST

START_TEST(bad_requests_fail)
{
	struct vhost_memory *mem = calloc(1, sizeof(*mem) + 65 * sizeof(mem->regions[0]));
	struct vhost_vring_addr logged = {.flags = 1 << VHOST_VRING_F_LOG};
	struct vhost_vring_state s = {.index = 0, .num = VHOST_VRING_BIG_ENDIAN};
	uint64_t value = 1ULL << 40;
	int run = 1;

	ck_assert_int_eq(vhost(VHOST_SET_OWNER, NULL), 0);
	ck_assert_int_eq(vhost(VHOST_SET_OWNER, NULL), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(vhost(VHOST_SET_LOG_BASE, &value), -1);
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_int_eq(vhost(VHOST_GET_FEATURES, NULL), -1);
	ck_assert_int_eq(errno, EFAULT);
	mem->nregions = 65;
	ck_assert_int_eq(vhost(VHOST_SET_MEM_TABLE, mem), -1);
	ck_assert_int_eq(errno, E2BIG);
	mem->nregions = 1;
	ck_assert_int_eq(vhost(VHOST_SET_MEM_TABLE, mem), -1);
	ck_assert_int_eq(errno, EINVAL);
	mem->padding = 1;
	ck_assert_int_eq(vhost(VHOST_SET_MEM_TABLE, mem), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(vhost(VHOST_SET_VRING_ADDR, &logged), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(vhost(VHOST_SET_VRING_ENDIAN, &s), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(vhost(VHOST_GET_VRING_ENDIAN, &s), 0);
	ck_assert_uint_eq(s.num, VHOST_VRING_LITTLE_ENDIAN);
	ck_assert_int_eq(vhost(VHOST_SET_BACKEND_FEATURES, &value), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(vhost(VHOST_GET_BACKEND_FEATURES, &value), 0);
	ck_assert_uint_eq(value, 0);
	ck_assert_int_eq(vhost(VHOST_VSOCK_SET_RUNNING, &run), -1); /* no rings */
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(vhost(VHOST_RESET_OWNER, NULL), 0);
	ck_assert_int_eq(vhost(VHOST_SET_OWNER, NULL), 0);
	free(mem);
}
END_TEST

START_TEST(serves_by_interrupts)
{
	struct fg_conn c, d;
	int fd, fd2;

	boot();
	fd = connect_to_guest(&c, 520);
	for (uint64_t i = 0; i < 2000; i++)
		ping(&c, fd, i);
	fd2 = connect_to_guest(&d, 521);
	ping(&d, fd2, 7);
	close(fd);
	close(fd2);
}
END_TEST

START_TEST(stop_and_start_under_load)
{
	uint32_t base[VSOCK_QUEUES];
	uint64_t got = 0, want = 40 << 20;
	struct fg_conn c;
	int fd, stops = 0;
	pid_t pid;

	boot();
	fd = connect_to_guest(&c, 520);
	pid = fork();
	if (pid == 0) {
		memset(buf, 0x5a, sizeof(buf));
		for (uint64_t left = want; left > 0; left -= sizeof(buf)) {
			for (size_t n = 0; n < sizeof(buf);) {
				ssize_t k = send(fd, buf + n, sizeof(buf) - n, MSG_NOSIGNAL);

				if (k <= 0)
					_exit(1);
				n += (size_t)k;
			}
		}
		_exit(0);
	}
	while (got < want) {
		size_t n = fg_conn_recv(&fg, &c, buf, sizeof(buf), true);

		if (n > 0)
			ck_assert(buf[0] == 0x5a && memcmp(buf, buf + 1, n - 1) == 0);
		got += n;
		if (got / (1 << 20) > (uint64_t)stops) {
			qemu_stop(base);
			qemu_start(base);
			stops++;
		} else if (n == 0) {
			wait_interrupt();
		}
	}
	ck_assert_int_ge(stops, 30);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ping(&c, fd, 99);
	close(fd);
}
END_TEST

START_TEST(reboot)
{
	const uint32_t zero[VSOCK_QUEUES] = {0};
	uint32_t base[VSOCK_QUEUES];
	struct fg_conn c;
	char byte;
	int fd;

	boot();
	for (int i = 0; i < 20; i++) {
		fd = connect_to_guest(&c, 520);
		ping(&c, fd, 1);
		qemu_stop(base);
		fg_reset_rings(&fg);
		qemu_start(zero);
		fg_fill_rx(&fg);
		ck_assert_int_eq(recv(fd, &byte, 1, 0), 0);
		close(fd);
	}
}
END_TEST

START_TEST(thread_takes_no_signals)
{
	struct fg_conn c;
	char path[64], status[4096];
	sigset_t set, old;
	FILE *f;
	int fd;

	boot();
	fd = connect_to_guest(&c, 520);
	/* With SIGUSR1 blocked here too, nobody but the library's thread could take it. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &old);
	kill(getpid(), SIGUSR1);
	ping(&c, fd, 1);
	snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)getpid());
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	status[fread(status, 1, sizeof(status) - 1, f)] = '\0';
	fclose(f);
	ck_assert_ptr_nonnull(strstr(status, "ShdPnd:\t0000000000000200"));
	signal(SIGUSR1, SIG_IGN);
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(fd);
}
END_TEST

/* ---- control socket ---- */

static const char *ask(int fd, const char *request)
{
	static char reply[VMM_CTL_REPLY + 1];
	size_t n = 0;

	ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL),
			 (ssize_t)strlen(request));
	while (n < VMM_CTL_REPLY) {
		ssize_t k = recv(fd, reply + n, 1, 0);

		if (k <= 0)
			return "EOF";
		if (reply[n] == '\n')
			break;
		n++;
	}
	reply[n] = '\0';
	return reply;
}

START_TEST(control_answers)
{
	static const char *const wrong[] = {"\n",
					    "renew\n",
					    "renew \n",
					    "renew x\n",
					    "renew -1\n",
					    "renew 5 \n",
					    "renew 99999999999999999999\n",
					    "status x\n",
					    "quit\n",
					    "RENEW 5\n",
					    " renew 5\n",
					    "renewal 5\n",
					    "statu\n"};
	int fd = connect_to(ctl_path);

	ck_assert_str_eq(ask(fd, "renew 100000\n"), "ok");
	ck_assert_ptr_nonnull(
		strstr(ask(fd, "status\n"), "ok running=0 broken=0 cid=0 deadline_ms="));
	ck_assert_uint_gt(vmm_deadline_left(&vmm->deadline), 90000);
	ck_assert_str_eq(ask(fd, "renew 0\n"), "ok");
	ck_assert_ptr_nonnull(strstr(ask(fd, "status\n"), " deadline_ms=0 "));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(memcmp(ask(fd, wrong[i]), "err ", 4), 0);
	ck_assert_str_eq(ask(fd, "renew 3162240000000\n"), "ok");
	ck_assert_int_eq(memcmp(ask(fd, "renew 3162240000001\n"), "err ", 4), 0);
	boot();
	ck_assert_ptr_nonnull(strstr(ask(fd, "status\n"), "ok running=1 broken=0 cid=77 "));
	close(fd);
}
END_TEST

START_TEST(control_lines)
{
	int fd = connect_to(ctl_path);
	char longest[VMM_CTL_LINE + 2];

	/* In pieces, and several at once. */
	ck_assert_int_eq(send(fd, "ren", 3, 0), 3);
	ck_assert_ptr_nonnull(strstr(ask(fd, "ew 0\nstatus\n"), "ok"));
	ck_assert_ptr_nonnull(strstr(ask(fd, "renew 0\n"), "ok running"));
	ck_assert_str_eq(ask(fd, "renew 0\n"), "ok");
	ck_assert_str_eq(ask(fd, "renew 0\n"), "ok");
	close(fd);
	/* As long as allowed, and one longer. */
	fd = connect_to(ctl_path);
	memset(longest, 'x', sizeof(longest));
	longest[VMM_CTL_LINE - 1] = '\n';
	longest[VMM_CTL_LINE] = '\0';
	ck_assert_str_eq(ask(fd, longest), "err unknown request");
	longest[VMM_CTL_LINE - 1] = 'x';
	longest[VMM_CTL_LINE] = '\n';
	longest[VMM_CTL_LINE + 1] = '\0';
	ck_assert_str_eq(ask(fd, longest), "err line too long");
	ck_assert_int_le(recv(fd, longest, 1, 0), 0);
	close(fd);
}
END_TEST

START_TEST(control_connections_give_way)
{
	int fd[40];

	for (int i = 0; i < 40; i++) {
		fd[i] = connect_to(ctl_path);
		ck_assert_str_eq(ask(fd[i], "renew 0\n"), "ok");
	}
	ck_assert_str_eq(ask(fd[39], "renew 0\n"), "ok");
	ck_assert_str_eq(ask(fd[32], "renew 0\n"), "ok");
	for (int i = 0; i < 40; i++) {
		char byte;

		if (i < 32)
			ck_assert_int_eq(recv(fd[i], &byte, 1, 0), 0);
		close(fd[i]);
	}
}
END_TEST

START_TEST(control_peer_that_does_not_read)
{
	int fd = connect_to(ctl_path), other;

	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < 100000; i++) {
		if (send(fd, "status\n", 7, MSG_NOSIGNAL) != 7 && errno != EAGAIN)
			break;
	}
	ck_assert(errno == EPIPE || errno == ECONNRESET);
	other = connect_to(ctl_path);
	ck_assert_str_eq(ask(other, "renew 0\n"), "ok");
	close(fd);
	close(other);
}
END_TEST

/* ---- deadline ---- */

/*
 * Runs a VMM in a child with this deadline; request is sent to it at once. Returns its wait status.
 */
static int child_with_deadline(uint64_t ms, const char *request)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct vmm_config c = {.vhost_fd = -1,
				       .vsock_fd = -1,
				       .ctl_fd = listen_at("ctl-child"),
				       .mem_fd = -1,
				       .deadline_ms = ms};
		int fd;

		if (!freopen("/dev/null", "w", stderr) || !vmm_start(&c))
			_exit(1);
		fd = connect_to("ctl-child");
		if (request && strcmp(ask(fd, request), "ok") != 0)
			_exit(2);
		poll(NULL, 0, 1000);
		_exit(0); /* outlived it */
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	unlink("ctl-child");
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(deadline_ends_the_process)
{
	ck_assert_int_eq(chdir(dir), 0);
	ck_assert_int_eq(child_with_deadline(50, NULL), VMM_DEADLINE_EXIT);
	ck_assert_int_eq(child_with_deadline(0, "renew 50\n"), VMM_DEADLINE_EXIT);
	ck_assert_int_eq(child_with_deadline(300, "renew 60000\n"), 0);
	ck_assert_int_eq(child_with_deadline(300, "renew 0\n"), 0);
	ck_assert_int_eq(child_with_deadline(0, NULL), 0);
}
END_TEST

/* ---- memory file ---- */

/* ---- environment, and the module in earnest ---- */

START_TEST(environment)
{
	struct vmm_config c;
	char fd[16];

	ck_assert_int_eq(vmm_config_from_env(&c), 0);
	snprintf(fd, sizeof(fd), "%d", dup(cfg.vhost_fd));
	setenv("HUTCH_VHOST_FD", fd, 1);
	ck_assert_int_eq(vmm_config_from_env(&c), 1);
	ck_assert_int_eq(c.vhost_fd, atoi(fd));
	ck_assert_int_eq(fcntl(c.vhost_fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(c.vsock_fd, -1);
	ck_assert_int_eq(c.ctl_fd, -1);
	ck_assert_uint_eq(c.deadline_ms, 0);
	setenv("HUTCH_DEADLINE_MS", "60000", 1);
	setenv("HUTCH_VSOCK_DIAL", "vsock", 1);
	ck_assert_int_eq(vmm_config_from_env(&c), 1);
	ck_assert_uint_eq(c.deadline_ms, 60000);
	ck_assert_str_eq(c.dial, "vsock");
	setenv("HUTCH_DEADLINE_MS", "1s", 1);
	ck_assert_int_eq(vmm_config_from_env(&c), -1);
	setenv("HUTCH_DEADLINE_MS", "", 1);
	ck_assert_int_eq(vmm_config_from_env(&c), -1);
	setenv("HUTCH_DEADLINE_MS", "18446744073709551616", 1);
	ck_assert_int_eq(vmm_config_from_env(&c), -1);
	unsetenv("HUTCH_DEADLINE_MS");
	setenv("HUTCH_CTL_FD", "999", 1);
	ck_assert_int_eq(vmm_config_from_env(&c), -1);
	setenv("HUTCH_CTL_FD", "-1", 1);
	ck_assert_int_eq(vmm_config_from_env(&c), -1);
}
END_TEST

static int shell(const char *command)
{
	int status = system(command);

	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(preloaded)
{
	/*
	 * Without its variables it does nothing; with them, children don't inherit it; a bad one is
	 * fatal.
	 */
	ck_assert_int_eq(shell("env LD_PRELOAD=" HUTCH_VMM_MODULE
			       " sh -c '[ \"$LD_PRELOAD\" ] && : <>/dev/null'"),
			 0);
	ck_assert_int_eq(shell("env LD_PRELOAD=" HUTCH_VMM_MODULE
			       " HUTCH_VHOST_FD=3 sh -c '[ -z \"$LD_PRELOAD\" ]' 3<>/dev/null"),
			 0);
	ck_assert_int_eq(shell("env LD_PRELOAD=" HUTCH_VMM_MODULE
			       " HUTCH_VHOST_FD=99 true 2>/dev/null"),
			 1);
	ck_assert_int_eq(
		shell("env LD_PRELOAD=" HUTCH_VMM_MODULE
		      " HUTCH_VHOST_FD=3 HUTCH_DEADLINE_MS=50 sleep 10 3<>/dev/null 2>/dev/null"),
		VMM_DEADLINE_EXIT);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vsock_vmm");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, other_ioctls_pass);
	tcase_add_test(t, bad_requests_fail);
	tcase_add_test(t, serves_by_interrupts);
	tcase_add_test(t, stop_and_start_under_load);
	tcase_add_test(t, reboot);
	tcase_add_test(t, thread_takes_no_signals);
	tcase_add_test(t, control_answers);
	tcase_add_test(t, control_lines);
	tcase_add_test(t, control_connections_give_way);
	tcase_add_test(t, control_peer_that_does_not_read);
	tcase_add_test(t, deadline_ends_the_process);
	tcase_add_test(t, environment);
	tcase_add_test(t, preloaded);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
